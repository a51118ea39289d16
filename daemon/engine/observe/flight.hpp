// FlightLog: the last collectives that each rank has started on each lane of the engine path, with their
// times. It is always on. The direct path has records of its own (api/shm/direct.hpp).
#pragma once

#include "api/base/world.hpp"
#include "api/shm/control.hpp"
#include "scheduler/run/request.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace muster::engine {

struct FlightEntry {
  enum class State : std::uint8_t { kScheduled, kStarted, kCompleted, kFailed };
  std::uint64_t value = 0;  // the point it reaches; 0: no entry
  std::uint32_t group = 0;
  std::uint32_t lane = 0;  // its number at the rank
  LaneId lane_id{};
  muster_op op = 0;
  muster_dtype dtype = 0;
  std::int32_t sender = -1;  // SEND, RECV: indices in the group
  std::int32_t receiver = -1;
  std::uint64_t source_bytes = 0;
  std::uint64_t target_bytes = 0;
  // The number in its channel, or among the messages of its pair; 0: not known yet, since it still waits.
  std::uint64_t number = 0;
  // For a collective whose group spans nodes, once it was launched: its number on all nodes, by epochs.
  std::uint64_t span_number = 0;
  bool uneven = false;  // blocks of several sizes
  Instant created{0};
  Instant started{0};
  Instant completed{0};
  Nanos timeout{0};
  State state = State::kScheduled;
  std::array<char, shm::kSiteBytes> site{};  // zero-terminated; empty: not given
};

// Turns a number that begins anew with each epoch into one that rises over all epochs.
std::uint64_t numbered_by_epoch(std::uint64_t epoch, std::uint64_t number);

// Owns    the entries.
// Thread  under the engine's lock.
// Bound   kEntriesPerLane of each rank's lanes; an older one is overwritten. submitted(), launched() and
//         retired() need no heap for what attached() and expect() have made room for.
// Fails   never. A start whose entry was overwritten is not noted.
class FlightLog {
 public:
  static constexpr std::uint64_t kEntriesPerLane = 128;

  explicit FlightLog(const World& world) : ranks_(world) {}

  // The rank has a new client: forgets what the last one did, and makes room for its lanes' entries. Pages
  // stay untouched until a lane has its first collective.
  void attached(Rank rank);
  // The rank has a lane of that number.
  void expect_lane(Rank rank, std::uint32_t lane);
  // Makes room for the numbers of the pair's messages; sender and receiver are indices in the group.
  void expect(GroupId group, std::int32_t sender, std::int32_t receiver);
  void submitted(const scheduler::Request& request, Instant now);
  // A collective for all its members, or a message. `number`: of the operation in its channel.
  void launched(const scheduler::Step& step, std::uint64_t number, Instant now);
  // `number` counts for a start that had not been launched. Returns the start's entry, if there is one.
  const FlightEntry* retired(Rank rank, std::uint32_t lane, std::uint64_t value, bool well,
                             std::uint64_t number, Instant end);
  // Forgets a group, so that another may use its id.
  void forget(GroupId group);
  // All entries of a rank, in order of creation.
  std::vector<FlightEntry> entries(Rank rank) const;
  // Whether older entries of the rank have been overwritten.
  bool overwritten(Rank rank) const { return ranks_[rank].overwritten; }

 private:
  struct RankLog {
    std::vector<std::vector<FlightEntry>> lanes{MUSTER_LANE_CLASSES};  // by number
    bool overwritten = false;
  };
  // A message has a number once both sides have come to it. Failed messages after it take the next numbers,
  // counted on each side alone: the n-th lost send and the n-th lost receive share a number.
  struct Pair {
    std::uint64_t met = 0;
    std::array<std::uint64_t, 2> fallen{};  // failed since then: of the sender, of the receiver
  };
  Pair& pair_of(const FlightEntry& entry);
  FlightEntry* find(Rank rank, std::uint32_t lane, std::uint64_t value);
  void failed(RankLog& log, FlightEntry& entry, std::uint64_t number);

  RankTable<RankLog> ranks_;
  std::map<std::array<std::uint32_t, 3>, Pair> pairs_;  // by group, sender, receiver
};

}  // namespace muster::engine
