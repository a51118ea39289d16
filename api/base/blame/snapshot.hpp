// Snapshot: at one moment, which ranks of a job wait for which, and what each rank's process does. Its author
// has copied and checked all values.
#pragma once

#include "api/base/blame/stragglers.hpp"
#include "api/base/clock.hpp"
#include "api/base/collective/path.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::blame {

struct RankState {
  enum class Process : std::uint8_t {
    kUnknown,  // not read, or not readable
    kRunning,
    kStopped,  // by a signal or a debugger
    kFrozen,   // by its cgroup
    kDead,
  };

  // The latest operation that a rank has finished.
  struct LastOperation {
    std::string group;
    std::string label;
    Path path = Path::kEngine;
    std::uint64_t number = 0;
    Instant at{0};
  };

  // How late a rank arrives in the group where its lag is worst; the histogram is of that group.
  struct Lag {
    Straggler figures;
    Stragglers::Histogram histogram{};
  };

  bool local = false;   // the author of this snapshot knows it; of others nothing is known
  std::string node;     // where it runs; empty: on the only node
  std::string unknown;  // why nothing is known of it: its node has not answered; empty: it is known
  bool attached = false;
  bool was_attached = false;  // it has been before, and has left
  std::int32_t pid = 0;
  Process process = Process::kUnknown;
  std::string where;             // kFrozen: the cgroup
  std::optional<Instant> heard;  // its last sign of life
  std::optional<LastOperation> finished;
  std::optional<Lag> lag;
};
const char* process_state_name(RankState::Process state) noexcept;  // "stopped"

// An operation of a group that spans nodes, by numbers that are the same on all of its nodes.
struct SpanKey {
  std::uint64_t group = 0;
  std::uint64_t lane = 0;    // 0 for a SEND or RECV
  std::int32_t sender = -1;  // of a SEND or RECV, by index in the group; else -1
  std::int32_t receiver = -1;
  std::uint32_t tag = 0;     // of a SEND or RECV
  std::uint64_t epoch = 0;   // decision D18
  std::uint64_t number = 0;  // from 1 in each epoch
  friend auto operator<=>(const SpanKey&, const SpanKey&) = default;
  bool same_place(const SpanKey& other) const {
    return group == other.group && lane == other.lane && sender == other.sender && receiver == other.receiver;
  }
};

// An operation of a group that at least one member has begun and that is not over.
struct Wait {
  // One operation, as a report names it.
  struct Operation {
    std::string label;  // "all_reduce"
    std::uint64_t bytes = 0;
    std::string dtype;                      // "bf16"; empty: it has none
    std::string site;                       // place in the client's program; empty: unknown
    std::optional<std::uint32_t> tag = {};  // of a SEND or RECV
    std::string common = {};                // hash of all that its members must say alike; empty: unknown
    // "all_reduce", "recv of tag 9".
    std::string name() const;
  };

  struct Arrived {
    std::uint32_t rank = 0;
    Instant at{0};
  };

  // A member that has not arrived at an operation.
  struct Missing {
    std::uint32_t rank = 0;
    // Index of the wait behind which the rank's submitted part is queued. Empty if the rank has submitted
    // nothing, or if its part is not held back by a wait for other ranks.
    std::optional<std::size_t> behind;
    std::string reason;  // what holds a submitted part back, if it is no wait; empty: nothing is submitted
    std::string stands =
        {};  // where a submitted part stands: "position 2 of lane halo"; empty: nothing is submitted
  };

  std::uint32_t group = 0;
  std::string group_name;
  std::size_t members = 0;  // of the group
  Path path = Path::kEngine;
  std::string lane;          // kEngine: "small"
  std::uint64_t number = 0;  // in the order that the group agrees on
  Operation operation;
  Instant since{0};  // arrival of its first member
  std::vector<Arrived> arrived;
  std::vector<Missing> missing;       // empty: all have arrived, and the operation runs
  std::vector<std::uint32_t> inside;  // kDirect, all have arrived: ranks that have not finished their part
  // kDirect, all have arrived: ranks that have finished their part, and wait until the ranks in `inside` have
  // read their memory.
  std::vector<std::uint32_t> awaiting;
  std::string difference;  // how the signatures of the arrived members differ; empty: they do not
  // Of a group that spans nodes: its name on all of them, and the ranks that take part. A snapshot of one
  // node lists its own ranks alone as arrived or missing.
  std::optional<SpanKey> span;
  std::vector<std::uint32_t> takes_part;
};

struct Snapshot {
  // A rank has submitted its part of operations of a group that spans nodes, and has not come to any.
  struct Queued {
    SpanKey place;       // without epoch and number
    Wait::Missing part;  // the rank, and what holds its part back
  };

  // A node of the job that has not answered.
  struct SilentNode {
    std::string node;
    std::string why;
    std::vector<std::uint32_t> ranks;
  };

  // The place where users ask about a job, for advice that can be followed.
  struct AskedDaemon {
    std::string endpoint;        // of the daemon, unless it is the usual one
    std::string reports;         // the folder where records of passed deadlines are; empty: none are kept
    bool ends_with_run = false;  // nobody can ask the daemon after the run
  };

  std::string job;
  AskedDaemon asked;
  Instant now{0};
  Nanos patience{0};  // younger waits count as healthy
  std::vector<RankState> ranks;
  std::vector<Wait> waits;
  std::vector<Straggler> stragglers;
  // In the snapshot of one node, for merge(): parts that are held back, and the latest operation of each
  // place to which all ranks of the node have come.
  std::vector<Queued> queued;
  std::vector<SpanKey> reached;
  std::vector<SilentNode> silent;  // of a merged one
};

}  // namespace muster::blame
