// The communicator seam: one group's collectives, enqueued on the streams of its local members. A
// CommunicatorFactory makes them.
// tests/transport/communicator_conformance.hpp is the suite.
//
// Order of one launch.
//   1. Before a launch the members' streams hold only waits. The first stream holds those of all members, and
//      each other stream its own. So all of it may run on the first one's stream.
//   2. Where it runs on several streams, a member's part runs after what lies on its own.
//   3. The first member's stream ends the step. Work that the launch puts on other streams ends before its
//      work on that stream does, also if the launch fails.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/collective/signature.hpp"
#include "api/base/nodes/span.hpp"
#include "api/base/result.hpp"
#include "kernels/device/device.hpp"
#include "transport/collective/step_outcome.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace muster::transport {

// One local member's part of a collective.
struct LocalMember {
  const Share* share = nullptr;
  device::Stream* stream = nullptr;      // of its device
  Share::Bases bases;                    // where its vectors begin, whatever the share says
  const Signature* signature = nullptr;  // read if the group has members on other nodes
  // Of an EXCHANGE whose members are all local: it has come before, and is here for those that meet it now.
  bool passive = false;
};

// Owns    its links. Thread  one issuing thread at a time.
// Bound   ranks(), fixed at creation; all links and memory are made then, or by prepare().
// Fails   prepare: kBadArgument if validate() refuses the collective, or a member is missing or given twice.
//         launch: kBusy when a stream is full. After the launch, and until the step has ended, by its
//         StepOutcome.
class Communicator {
 public:
  // A collective and its local members as a communicator keeps them, for any number of launches (decision
  // D31).
  //
  // Owns    what does not differ between launches. It refers to the collective, the shares and the
  //         signatures, which outlive the launches of it. It may end before these are over.
  // Thread  that of the communicator's launches.
  // Bound   -. Fails  -.
  class Prepared {
   public:
    virtual ~Prepared() = default;
  };

  virtual ~Communicator() = default;
  virtual std::int32_t ranks() const noexcept = 0;
  // The caller has passed each share to check_share(). Streams and bases of the members are not read. An
  // EXCHANGE whose members are all local may be given some of them: faces move between those given, unless
  // both are passive.
  virtual Result<std::shared_ptr<Prepared>> prepare(const Collective& collective,
                                                    std::span<const LocalMember> members) = 0;
  // False: prepare() is called before each launch, because it takes no heap. Its result is valid until its
  // next call.
  virtual bool keeps_prepared() const { return true; }
  // Enqueues one collective of all local members, which are given as to prepare() and in the same order. If
  // all members are local, the edges of operations that agree pair by pair match. If not, the step fails with
  // kMismatch at all nodes that it has, and writes nothing, unless they mean the same. The shares, the
  // streams and `outcome` live until the step has ended; `members` and `key` are read during the call only.
  // `priority`: that of the lane, between nodes.
  virtual Status launch(const std::shared_ptr<Prepared>& prepared, std::span<const LocalMember> members,
                        const MatchKey& key, device::Priority priority, StepOutcome& outcome) = 0;
  // The epoch in which a new group begins: a group of these members may have had earlier ones.
  virtual std::uint64_t first_epoch() const { return 1; }
  // The group's traffic between nodes. Any thread.
  struct Traffic {
    // Messages of other nodes that were dropped, because their epoch had ended, or their connection.
    std::uint64_t late_messages = 0;
    // The most bytes of other operations that an urgent message was sent after. The library had these bytes
    // already, and sends in order.
    std::uint64_t bulk_ahead = 0;
    // Elements that this node has sent to other nodes, in operations that are over: their bytes alone.
    std::uint64_t sent_bytes = 0;
    // Operations that this node keeps now: they are in flight, or have failed and messages of them go on.
    std::uint64_t kept = 0;
  };
  virtual Traffic traffic() const { return {}; }
  // The caller no longer waits for this launched step, which has passed its deadline. The step's work outside
  // the streams ends as soon as possible, still by release().
  virtual void cancel(StepOutcome& outcome) { static_cast<void>(outcome); }
  // For a report: the members of the group, by index, whose nodes have not come to a launched step. For a
  // SEND or RECV it is the other member. Empty: unknown, or none.
  virtual std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const {
    static_cast<void>(outcome);
    return {};
  }
  // For its deadline: when something of a launched step last moved between nodes. Nothing: it has not, or
  // that is unknown, or the step has failed and is not over yet.
  virtual std::optional<Instant> moved_at(const StepOutcome& outcome) const {
    static_cast<void>(outcome);
    return std::nullopt;
  }
};

}  // namespace muster::transport
