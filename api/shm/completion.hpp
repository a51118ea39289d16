// The completion page: how outcomes reach a client. One struct (CompletionSegment) has two classes: one for
// the engine, one for the client.
//
// The outcome of a point is the first of these that holds:
//   - the point lies in a failed interval that the page or the reader remembers: the failure's status;
//   - its timeline has reached it: kOk;
//   - the session is closed: the status with which it was closed;
//   - else kPending.
// The page holds the latest failure of a timeline, and the reader keeps older ones. The reader sees every
// failure: a lane runs again only when its client asks, and the client calls remember_reset before its next
// start. Until then no later failure can replace the one on the page. The reader keeps the latest
// kEpisodesMax per lane; points before those return kStale, never kOk by mistake.
#pragma once

#include "api/base/bounded.hpp"
#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/counters.hpp"
#include "api/shm/layout.hpp"
#include "api/shm/revision.hpp"
#include "api/shm/wake.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster::shm {

// An epoch of a group that spans nodes (decision D18): the same for all of its members.
struct GroupEpoch {
  std::uint64_t group = 0;  // a number of the group, whatever its handles are
  std::uint64_t epoch = 0;
};

// Owns    what it has published so far; not the page.
// Thread  one at a time per timeline; wake, beat and close from any.
// Bound   every call is a handful of stores; wake makes one system call if the client sleeps.
// Fails   never; asserts on a value that goes back or lands in a failed interval.
class CompletionWriter {
 public:
  CompletionWriter(CompletionSegment* page, const SubmissionHeader* submission);

  // All work up to `value` is complete and its memory can be read. Publish a batch, then wake() once.
  void publish(std::uint32_t timeline, std::uint64_t value);
  // The next value is that of a collective of a group that spans nodes. Call it before publish().
  void set_group_epoch(std::uint32_t lane, const GroupEpoch& met);

  // `from_value` and all later values fail with `status` until a reset. No effect if that value has failed
  // already. A step that was in flight may make an earlier value fail later. `culprit_rank` is -1 if no rank
  // is to blame; a long text is cut.
  void fail(std::uint32_t lane, std::uint64_t from_value, Code status, std::int32_t culprit_rank,
            std::string_view text);

  // Values above `up_to` run again: the last value admitted before the client's reset. No effect if the lane
  // runs.
  void reset(std::uint32_t lane, std::uint64_t up_to);

  // So many starts of the lane have failed, and may still touch their memory. Call it before fail().
  void quarantine(std::uint32_t lane, std::uint32_t starts);

  // Wakes the client if it sleeps. A client that is not woken looks again after CompletionReader::kSliceMax.
  void wake();

  // Stamps the page: the engine was alive at `now`.
  void beat(Instant now);

  // Closes the session: pending points get `status`. Wakes. `why` of the first close is kept, cut to fit.
  void close(Code status, std::string_view why = {});

 private:
  struct Sent {
    std::uint64_t reached = 0;
    std::uint64_t failed_from = 0;
    std::uint64_t failed_to = 0;
    RevisionWriter<> revision;
  };
  void write_text(std::uint32_t lane, std::string_view text);

  CompletionSegment* page_;
  Waker<> waker_;
  std::array<Sent, kTimelinesMax> timelines_{};
};

// Owns    the failures it has seen before; not the pages.
// Thread  one, the client's.
// Bound   test: no system call, lock or heap, at most kTries looks at a page. wait: sleeps at most kSliceMax
//         at a time.
// Fails   kProtocol if the page cannot be true, kBadArgument for a point of no timeline.
class CompletionReader {
 public:
  // The failure that stopped a lane.
  struct LaneFailure {
    Code status = Code::kInternal;
    std::int32_t culprit_rank = -1;
    std::uint64_t failed_from = 0;  // first value that will never be reached
    std::string text;
  };

  static constexpr int kTries = 16;  // looks per test at a timeline that is being changed
  static constexpr std::uint32_t kUnstableMax =
      1u << 20;                                   // unstable tests in a row before the page is called corrupt
  static constexpr std::size_t kEpisodesMax = 8;  // earlier failures remembered per lane
  static constexpr Nanos kSliceMax = std::chrono::milliseconds(100);

  CompletionReader(const CompletionSegment* page, SubmissionHeader* submission);

  // The outcome of a point: kOk, kPending, or why it failed. Point 0 is kOk.
  Code test(std::uint64_t point);

  // The outcome of the first of `points` that has one; *index is that point. kPending if none has. Skips
  // point 0.
  Code test_any(std::span<const std::uint64_t> points, std::size_t* index);

  // Waits for an outcome: tests `spins` times and yields the core in between, because ranks may outnumber
  // cores; then sleeps. kWaitTimeout at `deadline`; a deadline in the past tests once. A caller that must
  // watch other things too, such as whether the daemon lives, waits in slices.
  Code wait(std::uint64_t point, std::uint32_t spins, Instant deadline, const Clock& clock);
  Code wait_any(std::span<const std::uint64_t> points, std::uint32_t spins, Instant deadline,
                const Clock& clock, std::size_t* index);

  // The failure that stopped the lane. kNotFound while it runs; kPending: try again; kProtocol: the page is
  // corrupt.
  Result<LaneFailure> failure(std::uint32_t lane);

  // Whether the lane is stopped by a failure for which remember_reset() was not called yet. Such a lane stays
  // stopped until its client asks for a reset. kProtocol: the page is corrupt.
  Code stopped(std::uint32_t lane, bool* stopped);

  // Remembers the outcome of a stopped lane's points up to `up_to`, the last value submitted on it. Call it
  // after the reset command is written and before the next start. Write that command only while the lane is
  // seen stopped: otherwise a failure between look and command is not kept, and the next failure hides it.
  // Points above `up_to` are pending from then on, also while the engine has not read the reset yet. No
  // effect if the lane runs and its latest failure is known.
  Code remember_reset(std::uint32_t lane, std::uint64_t up_to);

  // How many starts of the lane have failed, and may still touch their memory.
  std::uint32_t quarantined(std::uint32_t lane) const {
    return Untrusted<std::uint32_t>(&page_->timelines[lane].quarantined).load_acquire();
  }

  // The epoch of the lane's latest collective of a group that spans nodes. The caller knows that this
  // collective has completed, and has started none behind it.
  GroupEpoch group_epoch(std::uint32_t lane) const {
    const TimelineWord& word = page_->timelines[lane];
    return {Untrusted<std::uint64_t>(&word.group).load(), Untrusted<std::uint64_t>(&word.epoch).load()};
  }

  // Returns the value up to which the lane's starts have their outcome, or fail at once. It is at most
  // `submitted`, the number of starts. Later starts fill the lane. 0 if the engine is changing the lane at
  // this moment, or the page is corrupt.
  std::uint64_t decided(std::uint32_t lane, std::uint64_t submitted);

  // kOk while the session is open, else the status with which the engine closed it.
  Code closed() const {
    return Untrusted<std::uint32_t>(&page_->closed).load_acquire() == 0 ? Code::kOk : closed_how();
  }
  // The engine's reason for closing the session; empty: it gave none.
  std::string closed_text() const;

  // Time since the engine's last turn. While it has a core its turns are at most 100 ms apart. 0 if it has
  // taken no turn yet, or the page is corrupt.
  Nanos silence(Instant now) const;

 private:
  Code closed_how() const;
  struct Snapshot {
    std::uint64_t reached, failed_from, failed_to;
    std::int32_t status, culprit_rank;
  };
  struct Episode {
    std::uint64_t from = 0, to = 0;
    Code status = Code::kOk;
  };
  struct History {
    BoundedVector<Episode, kEpisodesMax> episodes;
    std::uint64_t forgotten_to = 0;  // outcomes of values up to this one are no longer known
  };

  // One consistent copy, checked; kPending if the engine is changing the timeline at this moment.
  Code look(std::uint32_t timeline, Snapshot* out, std::string* text);
  std::optional<Snapshot> attempt(std::uint32_t timeline, std::string* text, bool* text_fits) const;
  Code unstable();
  Code look_until_seen(std::uint32_t lane, Snapshot* now);
  bool is_stopped(std::uint32_t lane, const Snapshot& now) const;
  Code decide(std::uint32_t timeline, std::uint64_t value);
  template<class Test>
  Code wait_until(Test test, std::uint32_t spins, Instant deadline, const Clock& clock);

  const CompletionSegment* page_;
  Sleeper<> sleeper_;
  std::array<History, kLanesMax> histories_{};
  std::uint32_t unstable_ = 0;
};

// The engine's side of the counters: add and set, no read.
//
// Owns    nothing.
// Thread  any of the engine's.
// Bound   one atomic operation.
// Fails   never.
class CounterWriter {
 public:
  explicit CounterWriter(CompletionSegment* page) : page_(page) {}
  void add(Counter counter, std::uint64_t by) { word(counter).add(by); }
  void set(Counter counter, std::uint64_t value) { word(counter).store(value); }

 private:
  Published<std::uint64_t> word(Counter counter) {
    MUSTER_ASSERT(counter < Counter::kCount);
    return Published<std::uint64_t>(&page_->counters[static_cast<std::size_t>(counter)]);
  }
  CompletionSegment* page_;
};

// The client's side of the counters: read, by enum or by name. Works while the daemon is stuck.
//
// Owns    nothing.
// Thread  any.
// Bound   one load.
// Fails   kNotFound for an unknown name; the text lists the names.
class CounterReader {
 public:
  explicit CounterReader(const CompletionSegment* page) : page_(page) {}
  std::uint64_t value(Counter counter) const {
    MUSTER_ASSERT(counter < Counter::kCount);
    return Untrusted<std::uint64_t>(&page_->counters[static_cast<std::size_t>(counter)]).load();
  }
  Result<std::uint64_t> value(std::string_view name) const;

 private:
  const CompletionSegment* page_;
};

}  // namespace muster::shm
