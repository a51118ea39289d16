// The completion page: how verdicts reach a client. One struct (CompletionSegment), two classes: the engine's
// rights and the client's.
//
// What a point says, in this order:
//   - it lies in a failed interval that the page or the reader's own memory knows: the failure's status;
//   - its timeline has reached it: kOk;
//   - the session is closed: the status it was closed with;
//   - else kPending.
// The page holds the latest failure of a timeline. Older ones are kept by the reader, which learns of each
// because a lane only runs again when its client asks (remember_reset, between that request and the next
// start: until then no later failure can take its place on the page). It keeps the latest kEpisodesMax per
// lane; points older than that say kStale, never kOk by mistake.
#pragma once

#include "api/base/bounded.hpp"
#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/counters.hpp"
#include "api/shm/layout.hpp"
#include "api/shm/revision.hpp"
#include "api/shm/wake.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster::shm {

// Owns    what it has published so far; not the page.
// Thread  one at a time per timeline; wake, beat and close from any.
// Bound   every call is a handful of stores; wake makes one system call if the client sleeps.
// Fails   never; a value that goes back, or lands in a failed interval, is our own bug and asserted.
class CompletionWriter {
 public:
  CompletionWriter(CompletionSegment* page, const SubmissionHeader* submission);

  // All up to `value` is complete and its memory can be read. Batch several, then wake() once.
  void publish(std::uint32_t timeline, std::uint64_t value);

  // `from_value` and all later values fail with `status` until a reset. The first failure of a stopped lane
  // stands, a second changes nothing. `culprit_rank` is -1 if nobody in particular; a long text is cut.
  void fail(std::uint32_t lane, std::uint64_t from_value, Code status, std::int32_t culprit_rank,
            std::string_view text);

  // Values above `up_to` run again. `up_to` is the last value admitted before the client's reset. Nothing if
  // the lane runs.
  void reset(std::uint32_t lane, std::uint64_t up_to);

  // Wakes the client if it sleeps. Without it a verdict is seen within CompletionReader::kSliceMax.
  void wake();

  // Stamps the page: the engine was alive at `now`.
  void beat(Instant now);

  // No further verdict will come: waiters get `status`. Wakes. `why`: of the first close, as much as fits.
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

// What stopped a lane.
struct LaneFailure {
  Code status = Code::kInternal;
  std::int32_t culprit_rank = -1;
  std::uint64_t failed_from = 0;  // first value that will never be reached
  std::string text;
};

// Owns    the failures it has seen before; not the pages.
// Thread  one, the client's.
// Bound   test: no system call, lock or heap, at most kTries looks at a page. wait: sleeps at most kSliceMax
//         at a time.
// Fails   kProtocol if the page cannot be true, kBadArgument for a point of no timeline.
class CompletionReader {
 public:
  static constexpr int kTries = 16;  // looks per test at a timeline that is being changed
  static constexpr std::uint32_t kUnstableMax =
      1u << 20;  // tests in a row that found it so, before it is called corrupt
  static constexpr std::size_t kEpisodesMax = 8;  // earlier failures remembered per lane
  static constexpr Nanos kSliceMax = std::chrono::milliseconds(100);

  CompletionReader(const CompletionSegment* page, SubmissionHeader* submission);

  // The verdict on a point: kOk, kPending, or why it failed. Point 0 is kOk.
  Code test(std::uint64_t point);

  // The verdict of the first of `points` that has one, and which that is; kPending if none has. Point 0 never
  // has one here: it is passed over.
  Code test_any(std::span<const std::uint64_t> points, std::size_t* index);

  // Waits for a verdict: `spins` tests with the core given away in between (ranks may outnumber cores), then
  // asleep. kWaitTimeout at `deadline`; a deadline in the past tests once. To look after other things too,
  // such as whether the daemon lives, wait in slices.
  Code wait(std::uint64_t point, std::uint32_t spins, Instant deadline, const Clock& clock);
  Code wait_any(std::span<const std::uint64_t> points, std::uint32_t spins, Instant deadline,
                const Clock& clock, std::size_t* index);

  // What stopped the lane. kNotFound while it runs (to be tried again: kPending); kProtocol if the page
  // cannot be true.
  Result<LaneFailure> failure(std::uint32_t lane);

  // Whether the lane is stopped by a failure that remember_reset() does not know. A lane that is stays so
  // until its client asks. Fails with kProtocol if the page cannot be true.
  Code stopped(std::uint32_t lane, bool* stopped);

  // Keeps the verdict of a stopped lane's points up to `up_to`, the last value submitted on it. Call it when
  // the command that resets the lane is written, before the next start, and write that command only while the
  // lane is seen stopped: of a failure between the two nothing is kept, and the next one hides it. Points
  // above `up_to` are pending from then on. Whether the engine has come to the reset yet makes no difference.
  // Nothing if the lane runs and its latest failure is known.
  Code remember_reset(std::uint32_t lane, std::uint64_t up_to);

  // The value up to which every start of the lane has its verdict or is running already: of `submitted`
  // starts, the others fill the lane. 0 if the engine is changing the lane just now, or the page cannot be
  // true.
  std::uint64_t settled(std::uint32_t lane, std::uint64_t submitted);

  // kOk while the session is open, else the status with which the engine closed it.
  Code closed() const {
    return Untrusted<std::uint32_t>(&page_->closed).load_acquire() == 0 ? Code::kOk : closed_how();
  }
  // Why, in the engine's words; empty: it gave none.
  std::string closed_text() const;

  // For how long the engine has not taken a turn; its turns are 100 ms apart at most while it has a core. 0
  // if the page says what cannot be, or none was taken yet.
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
    std::uint64_t forgotten_to = 0;  // at or below: not known any more
  };

  // One consistent and plausible look; kPending if the engine is changing the timeline just now.
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
  std::array<History, MUSTER_LANE_COUNT> histories_{};
  std::uint32_t unstable_ = 0;
};

// The engine's right to the counters: add and set, no read.
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

// The client's: read, by enum or by name. Works while the daemon is stuck.
//
// Owns    nothing.
// Thread  any.
// Bound   one load.
// Fails   kNotFound for a name that is none, with the names.
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
