// Data from another node: frames in pieces of any size, its greeting, and the ranks that it gathers.
#include "daemon/control/link/frame.hpp"
#include "daemon/supervisor/peers/membership.hpp"
#include "daemon/supervisor/spanning/rendezvous.hpp"

#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

namespace muster::supervisor {
namespace {

using control::FrameReader;
using control::Json;

constexpr std::size_t kPieceMax = 250;  // so that one byte says how long a piece is

const Roster& roster() {
  static const Roster the_roster = [] {
    Roster made;
    made.cluster = "lab-a";
    made.here = "node01";
    for (const char* name : {"node01", "node02", "node03"}) made.members.push_back({name, {name, 7733}});
    made.configuration = {"port 7733", "job train: 4 ranks"};
    return made;
  }();
  return the_roster;
}

// An admitted node is a member, and the one that it has proved to be.
void check_greeting(const Json& greeting, std::string_view proved, std::string_view wanted) {
  static const Membership membership(roster(), Instant(0));
  const auto name = membership.check(proved, wanted, greeting);
  if (!name) {
    MUSTER_PROMISE(!name.error().message().empty());
    return;
  }
  MUSTER_PROMISE(roster().find(*name) != nullptr && *name != roster().here);
  MUSTER_PROMISE(proved.empty() || proved == *name);
  MUSTER_PROMISE(wanted.empty() || wanted == *name);
  MUSTER_PROMISE(greeting.at("configuration") == membership.greeting({}).at("configuration"));
}

// Only a waiting rank of this node is refused, and a job that is made has a place for each of its ranks.
void check_gathering(const Json& frame) {
  if (!Rendezvous::is_one(frame)) return;
  constexpr std::uint32_t kWorld = 4;
  Rendezvous gathering(roster());
  gathering.on_up("node02");
  Rendezvous::Rank waits;
  waits.ticket = 1;
  waits.job = {"7", "train"};
  waits.world = kWorld;
  MUSTER_PROMISE(gathering.come(waits).ok());
  const Status heard = gathering.heard("node02", frame);
  const std::string text = gathering.text_of(waits.job);
  const Rendezvous::Orders orders = gathering.take();
  MUSTER_PROMISE(heard.ok() || (orders.refusals.empty() && orders.jobs.empty()));
  for (const auto& refusal : orders.refusals) MUSTER_PROMISE(refusal.ticket == 1 && !refusal.why.ok());
  MUSTER_PROMISE(text.empty() == !orders.refusals.empty());
  for (const auto& placement : orders.jobs) {
    MUSTER_PROMISE(placement.nodes == std::vector<std::string>({"node01", "node02"}));
    MUSTER_PROMISE(placement.node_of == std::vector<std::uint32_t>({0, 1, 1, 1}));
  }
}

// The length of the frame that begins here; 0: not all of it is there.
std::size_t length_at(std::span<const std::byte> stream) {
  if (stream.size() < control::kFrameLengthBytes) return 0;
  std::size_t length = 0;
  for (std::size_t i = 0; i < control::kFrameLengthBytes; ++i)
    length = length << 8 | std::to_integer<std::size_t>(stream[i]);
  return length;
}

void frames(fuzz::Bytes& bytes) {
  const char* names[] = {"", "node01", "node02", "node03", "node04"};
  const std::string_view proved = names[bytes.below(5)];
  const std::string_view wanted = names[bytes.below(5)];
  const bool admitted = bytes.flag();
  const std::size_t limit = admitted ? control::kFrameBytesMax : control::kGreetingBytesMax;
  FrameReader reader;
  if (admitted) reader.set_limit(limit);
  std::vector<std::byte> unread;  // as a plain reading of the rules has it
  bool broken = false;
  while (!bytes.empty()) {
    const auto piece = std::as_bytes(bytes.some(1 + bytes.below(kPieceMax)));
    reader.add(piece);
    unread.insert(unread.end(), piece.begin(), piece.end());
    while (true) {
      auto frame = reader.next();
      MUSTER_PROMISE(!broken || !frame);
      const std::size_t length = length_at(unread);
      if (length > limit) MUSTER_PROMISE(!frame);  // at once: nobody waits for such a frame
      if (!frame) {
        broken = true;
        break;
      }
      if (!*frame) break;
      MUSTER_PROMISE((*frame)->is_object());
      MUSTER_PROMISE(unread.size() >= control::kFrameLengthBytes + length);
      unread.erase(unread.begin(),
                   unread.begin() + static_cast<std::ptrdiff_t>(control::kFrameLengthBytes + length));
      check_gathering(**frame);
      check_greeting((*frame)->contains("greeting") ? (*frame)->at("greeting") : **frame, proved, wanted);
    }
  }
}

}  // namespace
}  // namespace muster::supervisor

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::supervisor::frames(bytes);
  return 0;
}
