// The door: messages of orphaned engines to the supervisor, answers of an engine to it, and answers to
// clients. Framed packets with any CBOR inside, Hellos with any fields, claims in any order, and plain bytes.
#include "api/base/mesh/group_list.hpp"
#include "api/shm/message.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <iterator>
#include <map>
#include <optional>

namespace muster::control {
namespace {

using fuzz::Bytes;
using shm::MessageKind;

constexpr std::uint32_t kUid = 1000;
constexpr std::int64_t kWorldBuilt = 256;  // larger worlds cost time and show nothing new

// The mesh and groups, which an engine makes of a job before anything else.
void check_mesh(const JobSpec& spec) {
  const auto degrees = mesh::Degrees::parse(spec.mesh);
  if (!degrees || spec.world.size() > kWorldBuilt) return;
  std::vector<mesh::Mesh::Flatten> flattens;
  for (const auto& [name, dims] : spec.flatten) flattens.push_back({name, dims});
  const auto built = mesh::Mesh::build(*degrees, spec.world.size(), flattens);
  if (!built) return;
  MUSTER_PROMISE(built->world() == spec.world.size());
  const mesh::GroupList groups(*built);
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    for (const Rank rank : groups.group(GroupId(g)).ranks) MUSTER_PROMISE(rank.value < spec.world.size());
  MUSTER_PROMISE(mesh::Degrees::parse(built->degrees().canonical()));
}

void check_job(const Json& asked) {
  const JobSpec defaults;
  const auto spec = job_asked_for(asked, defaults, kUid);
  if (!spec) return;
  MUSTER_PROMISE(spec->owner == control::Identity(kUid) && spec->world.size() >= 1 &&
                 spec->world.size() <= kWorldMax);
  MUSTER_PROMISE(spec->arena_bytes_max == defaults.arena_bytes_max && spec->plans_max == defaults.plans_max);
  const auto again = job_from_json(to_json(*spec));
  MUSTER_PROMISE(again && again->mesh == spec->mesh && again->flatten == spec->flatten);
  check_mesh(*spec);
}

void check_packet(const Packet& packet) {
  MUSTER_PROMISE(packet.body.is_object());
  MUSTER_PROMISE(!Json::to_cbor(packet.body).empty());
  // Answers are read outside of any try: whatever they hold, nothing is thrown, and a no is never a yes.
  const auto result = result_of(packet);
  if (!result) MUSTER_PROMISE(!result.error().ok() && static_cast<int>(result.error().code()) < 0);
  const auto spec = packet.body.find("spec");
  if (spec != packet.body.end()) check_job(*spec);
}

void check_datagram(std::span<const std::byte> datagram) {
  const auto packet = parse_packet(datagram, {});
  if (packet) return check_packet(*packet);
  MUSTER_PROMISE(static_cast<int>(packet.error().code()) < 0);
}

std::vector<std::byte> framed(MessageKind kind, std::span<const std::uint8_t> body) {
  shm::MessageHeader header;
  header.kind = kind;
  header.serial = 7;
  header.bytes = static_cast<std::uint32_t>(sizeof header + body.size());
  std::vector<std::byte> datagram(header.bytes);
  std::memcpy(datagram.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(datagram.data() + sizeof header, body.data(), body.size());
  return datagram;
}

// A body too large for a datagram comes as memory.
void check_memory_body(Bytes& bytes) {
  const auto memory = text_descriptor(bytes.rest_as_text());
  if (!memory) return;  // an empty one cannot be made
  std::vector<shm::Descriptor> descriptors;
  descriptors.emplace_back(::dup(memory->get()));
  const auto packet = parse_packet(framed(MessageKind::kReply, {}), std::move(descriptors));
  if (packet) check_packet(*packet);
}

void check_hello(Bytes& bytes) {
  auto hello = shm::make_message<shm::Hello>(MessageKind::kHello, 1);
  const auto fields = bytes.some(sizeof hello - sizeof hello.header);
  if (!fields.empty())
    std::memcpy(reinterpret_cast<std::byte*>(&hello) + sizeof hello.header, fields.data(), fields.size());
  const auto checked = shm::checked<shm::Hello>(shm::bytes_of(hello), MessageKind::kHello);
  MUSTER_PROMISE(checked);
  const auto job = shm::checked_text(checked->job, "job");
  const auto token = shm::checked_text(checked->token, "token");
  const auto mesh = shm::checked_text(checked->mesh, "mesh");
  if (!job || !token || !mesh) return;
  if (check_job_name(std::string(*job)).ok()) MUSTER_PROMISE(!job->empty() && job->size() < 64);
  if (checked->world_size > kWorldBuilt) return;
  JobSpec spec;
  spec.mesh = *mesh;
  spec.world = checked->world_size > 0 ? static_cast<std::uint32_t>(checked->world_size) : 1;
  check_mesh(spec);
}

// Any datagram in place of an answer to a client: it is read, or refused with an error.
void check_answers(Bytes& bytes) {
  const auto kind = static_cast<MessageKind>(bytes.take<std::uint8_t>());
  const auto datagram = framed(kind, bytes.rest());
  const auto heard = [&](const auto& answer) {
    if (!answer) MUSTER_PROMISE(static_cast<int>(answer.error().code()) < 0);
  };
  heard(shm::checked_answer<shm::Welcome>(datagram, MessageKind::kWelcome, 7));
  heard(shm::checked_answer<shm::BufferGrant>(datagram, MessageKind::kBufferGrant, 7));
  heard(shm::checked_answer<shm::GroupAnswer>(datagram, MessageKind::kGroupAnswer, 7, shm::Tail::kAllowed));
  heard(shm::checked_answer<shm::Plain>(datagram, MessageKind::kDone, 7));
}

// Meshes that a client may name in a job of three ranks. The first kMeshesThatFit fit the job.
constexpr const char* kMeshes[] = {"", "dp_shard=3", "dp_shard=-1,tp=1", "tp=3", "dp_shard=4", "no mesh"};
constexpr std::size_t kMeshesThatFit = 3;

// Goal:   each rank has one holder, a token opens its rank once, and no client gets into another mesh than it
//         names.
// Method: a model beside the table.
void check_claims(Bytes& bytes) {
  supervisor::JobTable table(supervisor::Shares({4, 0, 4}, 0));
  JobSpec spec;
  spec.name = "job";
  spec.world = 3;
  spec.mesh = "dp_shard=3";
  spec.owner = kUid;
  spec.claim = bytes.flag() ? ClaimRule::kToken : ClaimRule::kOwner;
  MUSTER_PROMISE(table.create(spec));
  table.ready("job");
  std::map<std::int32_t, bool> held;
  std::map<std::int32_t, std::string> good;
  while (!bytes.empty()) {
    const auto rank = static_cast<std::int32_t>(bytes.below(5)) - 1;
    const std::string token(1, static_cast<char>('a' + bytes.below(3)));
    const bool exists = rank >= 0 && rank < 3;
    switch (bytes.below(3)) {
      case 0:
        MUSTER_PROMISE(table.issue("job", Rank(static_cast<std::uint32_t>(rank)), token).ok() == exists);
        if (exists) good[rank] = token;
        break;
      case 1: {
        const std::uint32_t uid = bytes.flag() ? kUid : kUid + 1;
        const bool invited = spec.claim == ClaimRule::kOwner || (exists && good[rank] == token);
        const std::size_t words = bytes.below(std::size(kMeshes));
        const bool fits = words < kMeshesThatFit;
        const bool may = exists && uid == kUid && invited && fits && !held[rank];
        MUSTER_PROMISE(table.claim("job", {{uid, false}, 1, rank, -1, token, kMeshes[words]}).ok() == may);
        if (may) {
          held[rank] = true;
          good[rank].clear();
        }
        break;
      }
      default:
        table.release("job", Rank(static_cast<std::uint32_t>(rank)));
        held[rank] = false;
    }
  }
}

void run(Bytes& bytes) {
  switch (bytes.below(7)) {
    case 0:
      return check_datagram(std::as_bytes(bytes.rest()));
    case 1:
      return check_datagram(framed(MessageKind::kCommand, bytes.rest()));
    case 2:
      return check_datagram(framed(MessageKind::kReply, bytes.rest()));
    case 3:
      return check_hello(bytes);
    case 4:
      return check_answers(bytes);
    case 5:
      return check_claims(bytes);
    default:
      return check_memory_body(bytes);
  }
}

}  // namespace
}  // namespace muster::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::control::run(bytes);
  return 0;
}
