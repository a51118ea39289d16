// SpanGroups: what the transport between nodes knows of each group on the side that the engine calls.
#pragma once

#include "api/base/collective/tag_counts.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/span/wire.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace muster::transport::span {

// Owns    the groups that are open, and of others epoch and launches, because they may be made again.
// Thread  any. One mutex, which is never held for long.
// Bound   open groups, groups of which an epoch has ended, and the tags that closed ones have used since
// then. Fails   open: as it says.
class SpanGroups {
 public:
  // Owns    the counters of one communicator; its operations keep them.
  // Thread  now, begun: any. All else: one at a time.
  // Bound   fixed. Fails  never.
  class Traffic {
   public:
    void begun() { kept_.fetch_add(1, std::memory_order_relaxed); }
    // An operation that had begun is kept no longer. `bulk_ahead`: of its urgent messages, at most.
    void ended(std::uint64_t bulk_ahead, std::uint64_t sent_bytes) {
      sent_bytes_.fetch_add(sent_bytes, std::memory_order_relaxed);
      if (bulk_ahead > bulk_ahead_.load(std::memory_order_relaxed))
        bulk_ahead_.store(bulk_ahead, std::memory_order_relaxed);
      kept_.fetch_sub(1, std::memory_order_relaxed);
    }
    void came_late() { late_messages_.fetch_add(1, std::memory_order_relaxed); }
    Communicator::Traffic now() const {
      return {late_messages_.load(std::memory_order_relaxed), bulk_ahead_.load(std::memory_order_relaxed),
              sent_bytes_.load(std::memory_order_relaxed), kept_.load(std::memory_order_relaxed)};
    }

   private:
    std::atomic<std::uint64_t> late_messages_{0};
    std::atomic<std::uint64_t> bulk_ahead_{0};
    std::atomic<std::uint64_t> sent_bytes_{0};
    std::atomic<std::uint64_t> kept_{0};
  };

  // The latest number of each tag, by place, in one epoch.
  struct Launches {
    std::uint64_t epoch = 0;
    std::map<PlaceKey, TagCounts> counts;
  };
  struct OpenGroup {
    std::shared_ptr<const Span> span;
    std::shared_ptr<Traffic> traffic;
    Launches before;  // those of its earlier lives
  };

  // kUnsupported: a group of that number is open.
  Result<OpenGroup> open(const Span& span);
  // `launches`: those of this life, with those of earlier ones.
  void close(std::uint64_t group, Launches launches);
  std::shared_ptr<const Span> span_of(std::uint64_t group) const;  // null: it is not open
  std::uint64_t first_epoch(std::uint64_t group) const;
  // Moves on from the epoch.
  void end(const EpochEnd& end);
  // Notes a message that is dropped because it comes too late.
  void came_late(Bytes message);

 private:
  struct Group {
    std::shared_ptr<const Span> span;  // null: it is not open
    std::shared_ptr<Traffic> traffic;  // as the span
    Launches launches;
    std::uint64_t present_epoch = 1;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Group> groups_;
};

}  // namespace muster::transport::span
