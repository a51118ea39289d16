// Epochs: how the operations of one place fail (decision D18).
//
// A place is where operations of a group match: a (group, lane), a pair of members, or all operations that
// the group runs directly. The time of a place is cut into epochs, counted from 1. Each operation carries the
// epoch in which its member stood when the engine read the operation.
//
//   1. An end closes the present epoch, with a cause. The next epoch begins at once.
//   2. Operations match within one epoch. An operation of an ended epoch fails with the cause of that epoch.
//   3. A member that attaches for the first time in its run stands in the epoch in which the run began; one
//      that attaches again, in the present one. A run begins with the job, and anew when no rank is left.
//   4. A member moves on by an act of its own alone: when it learns of a fault. It moves past all ends but a
//      loss of which it has not learned. A member that came late moves on by one epoch at a time, until it
//      has caught up: it learns of all faults that the others have learned of, in order.
//   5. One fault ends a place at most once, so members cannot end each other's work for ever.
//
// tests/models/epochs.pml searches this rule exhaustively.
#pragma once

#include "scheduler/run/cause.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::scheduler {

// Owns    the causes of the latest ends.
// Thread  one.
// Bound   kCausesKept causes. Older epochs report the oldest cause that is kept.
// Fails   never.
class Epochs {
 public:
  static constexpr std::size_t kCausesKept = 16;
  enum class Why : std::uint8_t { kLoss, kOther };

  // The epoch in which a member stands at a place.
  //
  // Owns    that epoch, and whether it is still behind since it attached.
  // Thread  that of its place.
  // Bound   -
  // Fails   never.
  class Member {
   public:
    explicit Member(std::uint64_t epoch = 1) : epoch_(epoch) {}

    std::uint64_t epoch() const { return epoch_; }
    // The member has its first client in this run.
    void begin(const Epochs& epochs) { late_ = epochs.has_ended(epoch_); }
    // It has another one, or a new run begins.
    void enter(const Epochs& epochs) { *this = Member(epochs.present()); }
    // The member has learned of `fault` by an operation of this place. Returns whether it has moved.
    bool move_on(const Epochs& epochs, std::uint64_t fault);
    // The member has learned of `fault`, perhaps elsewhere. It moves on if the fault has ended its epoch, or
    // a later one and it has not come late.
    bool hear(const Epochs& epochs, std::uint64_t fault);

   private:
    std::uint64_t epoch_;
    bool late_ = false;  // since it began it has not stood in the present epoch
  };

  explicit Epochs(std::uint64_t present = 1) : present_(present) {}

  std::uint64_t present() const { return present_; }
  bool has_ended(std::uint64_t epoch) const { return epoch != present_; }
  // Ends the present epoch. Returns false, and changes nothing, if that fault has ended the place before.
  bool end(CausePtr cause, Why why);
  // All epochs before `epoch` have ended, by the latest cause; some of them on other nodes only.
  void skip_to(std::uint64_t epoch);
  bool ended_by(std::uint64_t fault) const;
  // The epoch must have ended.
  const CausePtr& cause_of(std::uint64_t epoch) const;
  // The epoch to which a member in `epoch` moves when it learns of `fault`.
  std::uint64_t after(std::uint64_t epoch, std::uint64_t fault) const;
  // Whether `fault` has ended `epoch` or a later one.
  bool ended_since(std::uint64_t epoch, std::uint64_t fault) const;

 private:
  struct End {
    CausePtr cause;
    Why why = Why::kOther;
  };
  std::uint64_t oldest() const { return present_ - ends_.size(); }
  const End& end_of(std::uint64_t epoch) const;

  std::uint64_t present_;
  std::vector<End> ends_;  // of the epochs before the present one, oldest first
};

}  // namespace muster::scheduler
