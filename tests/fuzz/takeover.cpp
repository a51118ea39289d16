#include "tests/fuzz/takeover.hpp"

#include "api/shm/endpoint.hpp"
#include "api/shm/message.hpp"
#include "tests/fuzz/promise.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;
using fuzz::Bytes;
using shm::Descriptor;
using shm::MessageKind;

constexpr int kStepsMax = 64;
constexpr std::uint32_t kStartsMax = 4;
constexpr std::uint64_t kTurnsMax = 4096;  // of a supervisor that has come to rest long before
constexpr std::size_t kClientsMax = 24;
constexpr std::size_t kTokensMax = 24;
constexpr const char* kDoorName = "musterd.socket";

Descriptor copy_of(int descriptor) {
  return Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
}

std::pair<Descriptor, Descriptor> socket_pair(int kind) {
  int ends[2];
  MUSTER_PROMISE(socketpair(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A socket unit's socket, the same one for all inputs.
//
// Owns    the folder that its path is in.
// Thread  one.
// Bound   -
// Fails   a broken promise: this machine has no room for one.
class SocketUnit {
 public:
  SocketUnit() {
    MUSTER_PROMISE(mkdtemp(folder_) != nullptr);
    auto listener = shm::Listener::open(std::string(folder_) + "/socket", {});
    MUSTER_PROMISE(listener);
    listener_.emplace(*std::move(listener));
  }
  ~SocketUnit() {
    listener_.reset();
    rmdir(folder_);
  }
  const shm::Listener& listener() const { return *listener_; }

 private:
  char folder_[40] = "/tmp/muster-fuzz-state-XXXXXX";
  std::optional<shm::Listener> listener_;
};

const shm::Listener& unit() {
  static const SocketUnit the_unit;
  return the_unit.listener();
}

// The number in a name of this kind: "channel-1f" has the number 0x1f. None for any other name.
std::optional<std::uint64_t> number_of(const std::string& name, const std::string& kind) {
  // Hexadecimal digits and nothing else: a name with 0x has no number.
  const bool ours = name.starts_with(kind) && name.size() > kind.size() &&
                    name.find_first_not_of("0123456789abcdefABCDEF", kind.size()) == std::string::npos;
  if (!ours) return std::nullopt;
  return std::strtoull(name.c_str() + kind.size(), nullptr, 16);
}

const SavedJob* find(const State& state, std::uint64_t epoch) {
  for (const SavedJob& job : state.jobs)
    if (job.spec.epoch == epoch) return &job;
  return nullptr;
}

// As `muster_open` on a machine of this user.
shm::Hello hello_of(const FuzzClient& client, std::uint32_t serial, std::int32_t world) {
  auto hello = shm::make_message<shm::Hello>(MessageKind::kHello, serial);
  hello.rank = client.rank;
  hello.world_size = world;
  MUSTER_PROMISE(shm::set_text(hello.job, client.job.c_str(), "job").ok());
  MUSTER_PROMISE(shm::set_text(hello.token, client.token.c_str(), "token").ok());
  return hello;
}

}  // namespace

// ---- the service manager

bool Keeper::hear(const std::string& text, std::span<const int> descriptors) {
  const auto name_at = text.find("FDNAME=");
  if (name_at == std::string::npos) return true;  // of no descriptor
  const std::string name = text.substr(name_at + 7);
  MUSTER_PROMISE(!name.empty() && name.size() <= 255 && name.find_first_of(":\n") == std::string::npos);
  if (text.starts_with("FDSTORE=1\n")) {
    MUSTER_PROMISE(descriptors.size() == 1);
    keep(name, copy_of(descriptors[0]));
  } else {
    MUSTER_PROMISE(text.starts_with("FDSTOREREMOVE=1\n") && descriptors.empty());
    std::erase_if(kept_, [&](const auto& entry) { return entry.first == name; });
  }
  return true;
}

void Keeper::keep(const std::string& name, Descriptor descriptor) {
  MUSTER_PROMISE(descriptor.valid());
  kept_.emplace_back(name, std::move(descriptor));
}

std::vector<DescriptorStore::Inherited> Keeper::hand_over() const {
  std::vector<DescriptorStore::Inherited> all;
  for (const auto& [name, descriptor] : kept_) all.push_back({name, copy_of(descriptor.get())});
  return all;
}

int Keeper::find(const std::string& name) const {
  const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const auto& e) { return e.first == name; });
  return it == kept_.end() ? -1 : it->second.get();
}

std::vector<std::string> Keeper::names() const {
  std::vector<std::string> all;
  for (const auto& [name, descriptor] : kept_) all.push_back(name);
  return all;
}

void Keeper::lose(std::size_t index) {
  kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(index));
}

void FuzzEngine::end() {
  alive = false;
  channel.reset();
  const std::uint64_t one = 1;
  MUSTER_PROMISE(write(death.get(), &one, sizeof one) == sizeof one);
}

// ---- the first supervisor

FuzzedTakeover::FuzzedTakeover(Bytes& bytes) : bytes_(bytes) {
  while (unit().accept()) {  // whom an input before this one has left there
  }
  keeper_.keep(kDoorName, copy_of(unit().descriptor().get()));
  found();
}

FuzzedTakeover::~FuzzedTakeover() = default;

void FuzzedTakeover::found() {
  State state;
  state.epoch = 11;
  state.instance = 1;
  state.started_ns = 5;
  state.upgrade_ns = bytes_.flag() ? 7 : 0;
  if (bytes_.flag()) state.later["more"] = bytes_.number();
  const auto jobs = static_cast<std::uint32_t>(bytes_.below(4));
  for (std::uint32_t i = 0; i < jobs; ++i) found_job(state, i);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    auto [ours, theirs] = socket_pair(SOCK_SEQPACKET);
    keep_oddly(owner_name(id), theirs.get());
    owners_.emplace_back(id, std::move(ours));
  }
  found_state(state);
}

void FuzzedTakeover::found_job(State& state, std::uint32_t index) {
  auto engine = std::make_unique<FuzzEngine>();
  SavedJob job;
  job.spec.name = std::string("job") + static_cast<char>('a' + index);
  job.spec.world = static_cast<std::uint32_t>(1 + bytes_.below(3));
  job.spec.mesh = "dp_shard=-1";
  job.spec.epoch = index + 1;
  job.spec.owner = geteuid();
  job.spec.claim = bytes_.flag() ? control::ClaimRule::kToken : control::ClaimRule::kOwner;
  job.engine_pid = 1 << 30;
  job.owner = bytes_.below(4);  // one, two, or nobody who is there
  if (bytes_.below(8) == 7) job.ending = "it was told to";
  for (std::uint32_t rank = 0; rank < job.spec.world.size(); ++rank) {
    const auto how = bytes_.take<std::uint8_t>();
    FuzzEngine::Seat seat{(how & 1) != 0, how / 8u};
    if (seat.attached) ++seat.attachments;
    if ((how & 2) != 0) {
      // It was used if the engine has counted on since it was issued.
      const bool used = (how & 4) != 0 && seat.attachments > 0;
      const std::string text = job.spec.name + std::to_string(rank);
      job.tokens.push_back({rank, seat.attachments - (used ? 1 : 0), text});
      tokens_.push_back({job.spec.name, text, rank, used});
    }
    engine->seats.push_back(seat);
  }
  auto [ours, theirs] = socket_pair(SOCK_SEQPACKET);
  engine->spec = job.spec;
  engine->channel = std::move(theirs);
  engine->death = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  keep_oddly(channel_name(job.spec.epoch), ours.get());
  keep_oddly(pidfd_name(job.spec.epoch), engine->death.get());
  if (!memory_) {
    memory_ = shm::MemoryPage::create(job.spec.owner.uid, 0, job.spec.owner.uid, shm::memory_headroom());
    MUSTER_PROMISE(*memory_);
    keep_oddly(memory_name(job.spec.owner.account), (*memory_)->descriptor().get());
  }
  if (bytes_.below(8) != 7) MUSTER_PROMISE((*memory_)->give(job.spec.epoch));
  if (bytes_.flag()) keeper_.keep(counters_name(job.spec.epoch), copy_of(engine->death.get()));
  engines_.push_back(std::move(engine));
  state.jobs.push_back(std::move(job));
}

// As it should be, mostly.
void FuzzedTakeover::keep_oddly(const std::string& name, int descriptor) {
  const auto how = bytes_.below(64);
  const auto word = [&](std::size_t size) {  // as a manager lets names be
    std::string text = bytes_.text(size);
    for (char& c : text) c = static_cast<char>('0' + static_cast<unsigned char>(c) % 74);
    std::replace(text.begin(), text.end(), ':', '-');
    return text;
  };
  const auto other = [&]() -> Descriptor {
    switch (bytes_.below(4)) {
      case 0:
        return Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
      case 1:
        return Descriptor(memfd_create("other", MFD_CLOEXEC));
      case 2:
        return socket_pair(SOCK_STREAM).first;
      default:
        return Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
  };
  if (how == 1) return;  // it was not taken
  if (how == 2) return keeper_.keep(name, other());
  if (how == 3) keeper_.keep(name, other());
  keeper_.keep(name, copy_of(descriptor));
  if (how == 4) keeper_.keep(name, other());
  if (how == 5) keeper_.keep(word(8) + name, other());
  if (how == 6) keeper_.keep(name.substr(0, name.find('-') + 1) + "0" + word(2), other());
}

void FuzzedTakeover::found_state(const State& state) {
  const auto how = bytes_.below(16);
  if (how == 1) return;
  auto file = StateFile::create();
  MUSTER_PROMISE(file);
  State::Format format;
  if (how == 2) format = {2, 1, {{"next", bytes_.number()}}};
  if (how == 3) format = {2, 2, {}};
  const std::uint64_t writes = how == 4 ? 0 : 1 + bytes_.below(2);
  for (std::uint64_t i = 0; i < writes; ++i) MUSTER_PROMISE(file->write(state, format).ok());
  keep_oddly(kStateName, file->descriptor().get());
  if (how == 5) tear_a_write();
}

// ---- one supervisor after another

std::optional<State> FuzzedTakeover::state_now() const {
  const int descriptor = keeper_.find(kStateName);
  if (descriptor < 0) return std::nullopt;
  auto file = StateFile::adopt(copy_of(descriptor));
  auto read = file ? file->read(state_format().version) : Result<Decoded>(fail(file.error()));
  return read ? std::optional(std::move(read->state)) : std::nullopt;
}

void FuzzedTakeover::start() {
  supervisor_.reset();  // no farewell, as if killed
  if (starts_ == kStartsMax) return;
  ++starts_;
  const std::optional<State> left = state_now();
  const auto names = sound_names();
  Options options;
  options.runtime_directory = shm::directory_of(unit().path());
  options.engine_program = "/nonexistent";
  options.auto_create_jobs = false;
  options.random_word = [this] { return ++words_ * 0x9e3779b97f4a7c15ULL; };
  options.random_hex = [this] { return fmt::format("{:064x}", ++words_); };
  options.notify = [this](const std::string& text, std::span<const int> d) { return keeper_.hear(text, d); };
  auto opened = Supervisor::open(std::move(options), clock_, keeper_.hand_over());
  MUSTER_PROMISE(opened);
  supervisor_ = *std::move(opened);
  const std::optional<State> state = state_now();
  MUSTER_PROMISE(state);  // what it says of itself can be read
  check_names(*state);
  check_successor(left, *state, names);
}

// The kept names, without channels that are no packet sockets: no job can be taken over by such a channel.
std::vector<std::string> FuzzedTakeover::sound_names() const {
  std::vector<std::string> names;
  for (const DescriptorStore::Inherited& one : keeper_.hand_over()) {
    int type = 0;
    socklen_t bytes = sizeof type;
    const bool packets =
        getsockopt(one.descriptor.get(), SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
    if (packets || !one.name.starts_with("channel-")) names.push_back(one.name);
  }
  return names;
}

// Goal:   nothing that was left is lost or changed, and nothing else is taken over.
void FuzzedTakeover::check_successor(const std::optional<State>& left, const State& state,
                                     const std::vector<std::string>& names) {
  if (!left) {
    MUSTER_PROMISE(state.jobs.empty() && state.instance == 1 && state.later.empty());
    return;
  }
  MUSTER_PROMISE(state.epoch == left->epoch && state.instance == left->instance + 1);
  MUSTER_PROMISE(state.started_ns == left->started_ns && state.later == left->later);
  MUSTER_PROMISE(state.upgrade_ns == 0);
  const auto was_kept = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const SavedJob& job : left->jobs) {
    const SavedJob* taken = find(state, job.spec.epoch);
    const bool kept = was_kept(channel_name(job.spec.epoch)) && was_kept(pidfd_name(job.spec.epoch));
    if (kept) MUSTER_PROMISE(taken != nullptr);
    // A job that was told to end ends, even if a write was torn since.
    if (to_end_.contains(job.spec.epoch)) MUSTER_PROMISE(!job.ending.empty());
    if (!job.ending.empty()) to_end_.insert(job.spec.epoch);
  }
  for (const SavedJob& job : state.jobs) {
    const SavedJob* before = find(*left, job.spec.epoch);
    MUSTER_PROMISE(before != nullptr && control::to_json(before->spec) == control::to_json(job.spec));
    MUSTER_PROMISE(before->gid == job.gid && before->owner == job.owner);
    MUSTER_PROMISE(before->engine_pid == job.engine_pid);
    MUSTER_PROMISE(before->ending.empty() || before->ending == job.ending);
    MUSTER_PROMISE(before->tokens.size() == job.tokens.size());
    for (std::size_t i = 0; i < job.tokens.size(); ++i)
      MUSTER_PROMISE(before->tokens[i].rank == job.tokens[i].rank &&
                     before->tokens[i].attachments == job.tokens[i].attachments &&
                     before->tokens[i].text == job.tokens[i].text);
  }
}

// Goal:   the manager keeps nothing of ours that no job needs.
void FuzzedTakeover::check_names(const State& state) const {
  for (const std::string& name : keeper_.names()) {
    for (const char* kind : {"channel-", "pidfd-", "counters-", "pids-", "users-"})
      if (const auto epoch = number_of(name, kind)) MUSTER_PROMISE(find(state, *epoch) != nullptr);
    if (const auto uid = number_of(name.substr(0, name.rfind('-')), "memory-"))
      MUSTER_PROMISE(std::any_of(state.jobs.begin(), state.jobs.end(),
                                 [&](const SavedJob& job) { return job.spec.owner.uid == *uid; }));
    if (const auto id = number_of(name, "owner-"))
      MUSTER_PROMISE(std::any_of(state.jobs.begin(), state.jobs.end(),
                                 [&](const SavedJob& job) { return job.owner == *id; }));
  }
}

// A supervisor that was killed in the middle of a write: of the one after the last, or of the last.
void FuzzedTakeover::tear_a_write() {
  const int descriptor = keeper_.find(kStateName);
  if (descriptor < 0) return;
  auto file = StateFile::adopt(copy_of(descriptor));
  auto read = file ? file->read(state_format().version) : Result<Decoded>(fail(file.error()));
  if (!read) return;
  const bool of_the_last = bytes_.flag();
  if (!of_the_last) ++read->state.instance;
  const std::uint64_t sequence = read->sequence + (of_the_last ? 0 : 1);
  auto bytes = encode(read->state, state_format(), sequence);
  const std::size_t cut = static_cast<std::size_t>(bytes_.below(bytes.size()));
  if (of_the_last) std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(cut), bytes.end(), std::byte{0});
  const std::size_t written = of_the_last ? bytes.size() : cut;
  const auto offset = static_cast<off_t>((sequence % 2) * kStateBytesMax);
  MUSTER_PROMISE(pwrite(descriptor, bytes.data(), written, offset) == static_cast<ssize_t>(written));
}

void FuzzedTakeover::turns(std::uint64_t count) {
  for (std::uint64_t i = 0; supervisor_ && i < count && supervisor_->turn(); ++i) {
  }
}

void FuzzedTakeover::step() {
  switch (bytes_.below(12)) {
    case 0:
      return start();
    case 1:
      supervisor_.reset();
      return tear_a_write();
    case 2:
      if (const auto size = keeper_.size(); size > 1)
        if (const auto index = bytes_.below(256); index != 0 && index < size) {
          supervisor_.reset();  // a manager forgets between two of them
          keeper_.lose(index);
        }
      return;
    case 3:
      return turns(1 + bytes_.below(4));
    case 4:
    case 5:
      return claim();
    case 6:
      return owner_speaks();
    case 7:
      return owner_hears();
    case 8:
      if (FuzzEngine* engine = any_engine()) rank_leaves(*engine);
      return;
    case 9:
      if (FuzzEngine* engine = any_engine(); engine == nullptr || bytes_.below(8) != 7)
        return turns(1);
      else
        return engine_lies(*engine);
    case 10:
      if (FuzzEngine* engine = any_engine(); engine != nullptr && bytes_.below(4) == 3) engine->end();
      return;
    default:
      if (FuzzEngine* engine = any_engine()) engine_hears(*engine);
      return turns(1 + bytes_.below(16));
  }
}

void FuzzedTakeover::run() {
  start();
  for (int i = 0; i < kStepsMax && !bytes_.empty(); ++i) step();
  start();
  settle();
}

// All send until none has anything left to send.
void FuzzedTakeover::settle() {
  if (!supervisor_) return;
  std::uint64_t count = 0;
  for (bool moved = true; moved;) {
    moved = supervisor_->turn();
    for (const auto& engine : engines_)
      if (engine->alive && engine->honest) moved = engine_hears(*engine) || moved;
    MUSTER_PROMISE(++count < kTurnsMax);
  }
  const auto state = state_now();
  MUSTER_PROMISE(state);
  check_names(*state);
}

// ---- clients

void FuzzedTakeover::claim() {
  if (clients_.size() == kClientsMax) return;
  FuzzClient client;
  client.job = std::string("job") + static_cast<char>('a' + bytes_.below(3));
  client.rank = static_cast<std::int32_t>(bytes_.below(3));
  if (const auto which = bytes_.below(tokens_.size() + 2); which < tokens_.size())
    client.token = tokens_[which].text;
  auto socket = shm::connect_to(unit().path(), clock_.now() + std::chrono::seconds(1), clock_);
  MUSTER_PROMISE(socket);
  client.socket = *std::move(socket);
  const auto serial = static_cast<std::uint32_t>(clients_.size() + 1);
  const auto hello = hello_of(client, serial, -1);
  static_cast<void>(shm::send_message(client.socket, shm::bytes_of(hello)));
  clients_.push_back(std::move(client));
}

void FuzzedTakeover::owner_speaks() {
  auto& [id, socket] = owners_[bytes_.below(owners_.size())];
  if (bytes_.below(16) == 15) return socket.reset();
  if (!socket.valid() || asked_.size() == kTokensMax) return;
  const std::string job = std::string("job") + static_cast<char>('a' + bytes_.below(3));
  const auto rank = static_cast<std::uint32_t>(bytes_.below(3));
  Json command{{"command", "token"}, {"job", job}, {"rank", rank}};
  if (bytes_.below(16) == 15) command["command"] = "job_destroy";
  asked_.emplace_back(job, rank);
  static_cast<void>(control::send_packet(socket, MessageKind::kCommand,
                                         static_cast<std::uint32_t>(asked_.size()), command));
}

void FuzzedTakeover::owner_hears() {
  for (auto& [id, socket] : owners_) {
    if (!socket.valid()) continue;
    const auto packet = control::receive_packet(socket);
    if (!packet || packet->kind != MessageKind::kReply) continue;
    MUSTER_PROMISE(packet->serial >= 1 && packet->serial <= asked_.size());
    const auto result = control::result_of(*packet);
    if (!result || !result->contains("token")) continue;
    const auto& [job, rank] = asked_[packet->serial - 1];
    tokens_.push_back({job, result->at("token").get<std::string>(), rank, false});
  }
}

// ---- engines

FuzzEngine* FuzzedTakeover::any_engine() {
  if (engines_.empty()) return nullptr;
  FuzzEngine* engine = engines_[bytes_.below(engines_.size())].get();
  return engine->alive ? engine : nullptr;
}

// Its next message, if there is one.
bool FuzzedTakeover::engine_hears(FuzzEngine& engine) {
  if (!engine.channel.valid()) return false;
  auto question = control::receive_packet(engine.channel);
  if (!question && question.error().code() == Code::kPending) return false;
  if (!question) {  // nobody holds its channel any more: it ends with its last rank
    MUSTER_PROMISE(question.error().code() == Code::kDaemonLost);
    engine.channel.reset();
    return false;
  }
  if (!engine.honest) return true;
  Descriptor with;
  const bool ends = question->body.at("command") == "stop";
  const Json answer = answer_to(engine, *question, &with);
  const int descriptor = with.get();
  static_cast<void>(control::send_packet(engine.channel, MessageKind::kReply, question->serial, answer,
                                         std::span(&descriptor, with.valid() ? 1 : 0)));
  if (ends) engine.end();
  return true;
}

Json FuzzedTakeover::answer_to(FuzzEngine& engine, const Packet& question, Descriptor* with) {
  const std::string command = question.body.at("command");
  if (command == "attach") return let_in(engine, question);
  if (command == "counters") {
    *with = Descriptor(memfd_create("counters", MFD_CLOEXEC));
    return control::success(Json::object());
  }
  if (command == "report") {
    Json ranks = Json::array();
    for (const auto& seat : engine.seats)
      ranks.push_back({{"attached", seat.attached}, {"pid", 4711}, {"attachments", seat.attachments}});
    return control::success({{"ranks", ranks}});
  }
  MUSTER_PROMISE(command == "stop");
  return control::success(Json::object());
}

// Goal:   a rank has one holder at a time; a token lets in once.
Json FuzzedTakeover::let_in(FuzzEngine& engine, const Packet& question) {
  const auto rank = question.body.at("rank").get<std::uint32_t>();
  const auto serial = question.body.at("serial").get<std::uint32_t>();
  MUSTER_PROMISE(question.descriptors.size() == 2 && rank < engine.seats.size());
  MUSTER_PROMISE(serial >= 1 && serial <= clients_.size());
  const FuzzClient& client = clients_[serial - 1];
  MUSTER_PROMISE(client.job == engine.spec.name && client.rank == static_cast<std::int32_t>(rank));
  FuzzEngine::Seat& seat = engine.seats[rank];
  MUSTER_PROMISE(!seat.attached);
  const auto token = std::find_if(tokens_.begin(), tokens_.end(), [&](const FuzzToken& t) {
    return t.text == client.token && t.job == client.job && t.rank == rank;
  });
  if (engine.spec.claim == control::ClaimRule::kToken) MUSTER_PROMISE(token != tokens_.end() && !token->used);
  const auto how = bytes_.below(16);
  if (how == 1) return control::failed(failure(Code::kNoResource, "there is no room"));
  ++seat.attachments;
  seat.attached = how != 2;
  if (token != tokens_.end()) token->used = true;
  Json answer = how == 2 ? control::failed(failure(Code::kDaemonLost, "it left before it was welcomed"))
                         : control::success({{"session", 1}});
  answer["attachments"] = seat.attachments;
  return answer;
}

void FuzzedTakeover::rank_leaves(FuzzEngine& engine) {
  const auto rank = static_cast<std::uint32_t>(bytes_.below(engine.seats.size()));
  if (!std::exchange(engine.seats[rank].attached, false) || !engine.channel.valid()) return;
  static_cast<void>(control::send_packet(engine.channel, MessageKind::kCommand, 0,
                                         Json{{"event", "detached"}, {"rank", rank}}));
}

// An engine that says something else than it should, and from then on anything. It may harm its own job.
void FuzzedTakeover::engine_lies(FuzzEngine& engine) {
  if (!engine.channel.valid()) return;
  engine.honest = false;
  const auto question = control::receive_packet(engine.channel);
  const std::uint32_t serial = question ? question->serial : 0;
  const auto body = bytes_.some(1 + bytes_.below(64));
  Json answer;
  switch (bytes_.below(6)) {
    case 0: {
      static_cast<void>(shm::send_message(engine.channel, std::as_bytes(body)));
      return;
    }
    case 1:
      answer = control::success({{"ranks", Json::array({{{"attached", true}}})}});
      break;
    case 2:
      answer = control::failed(
          failure(Code::kState, "{}", std::string(bytes_.below(8192), static_cast<char>(bytes_.below(256)))));
      break;
    case 3:
      answer =
          control::success({{"ranks", Json::array({{{"attached", true}, {"pid", 1}, {"attachments", 9}}})}});
      break;
    case 4:
      answer = Json{{"event", "detached"}, {"rank", bytes_.number()}};
      static_cast<void>(control::send_packet(engine.channel, MessageKind::kCommand, 0, answer));
      return;
    default:
      answer = Json::from_cbor(body.begin(), body.end(), false, false);
      if (answer.is_discarded()) return;
  }
  static_cast<void>(control::send_packet(engine.channel, MessageKind::kReply, serial, answer));
}

}  // namespace muster::supervisor
