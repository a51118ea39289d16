#include "api/shm/completion.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/futex.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <fmt/ranges.h>
#include <sched.h>

namespace muster::shm {
namespace {

// The shared form of a failure text: its length in the first word, then the bytes, eight to a word. So it can
// be copied with few atomic loads while the engine writes another.
static_assert(offsetof(FailureText, text) == 8 && kFailureTextBytes % 8 == 0 && sizeof(FailureText) % 8 == 0);
constexpr std::size_t kTextWords = kFailureTextBytes / 8;

std::uint64_t* words_of(FailureText* text) {
  return reinterpret_cast<std::uint64_t*>(text);
}
const std::uint64_t* words_of(const FailureText* text) {
  return reinterpret_cast<const std::uint64_t*>(text);
}

// False for a status with which no lane can fail: OK, PENDING, or a number that is no status.
bool is_failure(std::int32_t status) {
  return status < 0 && is_known(status);
}

bool plausible(std::uint64_t reached, std::uint64_t from, std::uint64_t to, std::int32_t status) {
  if (from == 0) return to == 0;
  if (!is_failure(status)) return false;
  return to == 0 ? reached < from : to >= from;
}

bool fails(std::uint64_t value, std::uint64_t from, std::uint64_t to) {
  return from != 0 && value >= from && (to == 0 || value <= to);
}

}  // namespace

// ---- the engine's side

CompletionWriter::CompletionWriter(CompletionSegment* page, const SubmissionHeader* submission)
    : page_(page), waker_({.wake = &page->wake, .client_asleep = &submission->client_asleep}) {}

void CompletionWriter::publish(std::uint32_t timeline, std::uint64_t value) {
  MUSTER_ASSERT(timeline < kTimelinesMax);
  Sent& sent = timelines_[timeline];
  MUSTER_ASSERT(value >= sent.reached);
  MUSTER_ASSERT(!fails(value, sent.failed_from, sent.failed_to));
  sent.reached = value;
  Published<std::uint64_t>(&page_->timelines[timeline].reached).store_release(value);
}

void CompletionWriter::set_group_epoch(std::uint32_t lane, const GroupEpoch& met) {
  MUSTER_ASSERT(lane < kLanesMax);
  Published<std::uint64_t>(&page_->timelines[lane].group).store(met.group);
  Published<std::uint64_t>(&page_->timelines[lane].epoch).store(met.epoch);
}

void CompletionWriter::fail(std::uint32_t lane, std::uint64_t from_value, Code status,
                            std::int32_t culprit_rank, std::string_view text) {
  MUSTER_ASSERT(lane < kLanesMax);
  MUSTER_ASSERT(is_failure(static_cast<std::int32_t>(status)));
  Sent& sent = timelines_[lane];
  if (fails(from_value, sent.failed_from, sent.failed_to)) return;
  MUSTER_ASSERT(from_value > sent.reached);
  sent.failed_from = from_value;
  sent.failed_to = 0;
  TimelineWord& word = page_->timelines[lane];
  sent.revision.begin(&word.revision);
  write_text(lane, text);
  Published<std::int32_t>(&word.status).store_release(static_cast<std::int32_t>(status));
  Published<std::int32_t>(&word.culprit_rank).store_release(culprit_rank);
  Published<std::uint64_t>(&word.failed_to).store_release(0);
  Published<std::uint64_t>(&word.failed_from).store_release(from_value);
  sent.revision.end(&word.revision);
}

void CompletionWriter::write_text(std::uint32_t lane, std::string_view text) {
  FailureText image;
  image.length = static_cast<std::uint32_t>(std::min(text.size(), kFailureTextBytes));
  std::memcpy(image.text, text.data(), image.length);
  std::uint64_t* target = words_of(&page_->failures[lane]);
  for (std::size_t i = 0; i <= kTextWords; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(&image) + i * sizeof value, sizeof value);
    Published<std::uint64_t>(target + i).store_release(value);
  }
}

void CompletionWriter::reset(std::uint32_t lane, std::uint64_t up_to) {
  MUSTER_ASSERT(lane < kLanesMax);
  Sent& sent = timelines_[lane];
  if (sent.failed_from == 0 || sent.failed_to != 0) return;
  MUSTER_ASSERT(up_to >= sent.failed_from);
  sent.failed_to = up_to;
  TimelineWord& word = page_->timelines[lane];
  sent.revision.begin(&word.revision);
  Published<std::uint64_t>(&word.failed_to).store_release(up_to);
  sent.revision.end(&word.revision);
}

void CompletionWriter::quarantine(std::uint32_t lane, std::uint32_t starts) {
  MUSTER_ASSERT(lane < kLanesMax);
  Published<std::uint32_t>(&page_->timelines[lane].quarantined).store_release(starts);
}

void CompletionWriter::wake() {
  if (waker_.raise()) futex_wake(&page_->wake);
}

void CompletionWriter::beat(Instant now) {
  Published<std::uint64_t>(&page_->heartbeat_ns).store(static_cast<std::uint64_t>(now.count()));
}

void CompletionWriter::close(Code status, std::string_view why) {
  MUSTER_ASSERT(is_failure(static_cast<std::int32_t>(status)));
  if (page_->closed == 0) {
    std::array<std::uint64_t, kClosedTextBytes / 8> words{};
    why.copy(reinterpret_cast<char*>(words.data()), kClosedTextBytes - 1);
    auto* target = reinterpret_cast<std::uint64_t*>(page_->closed_text);
    for (std::size_t i = 0; i < words.size(); ++i) Published<std::uint64_t>(target + i).store(words[i]);
  }
  Published<std::uint32_t>(&page_->closed)
      .store_release(static_cast<std::uint32_t>(-static_cast<std::int32_t>(status)));
  wake();
}

// ---- the client's side

CompletionReader::CompletionReader(const CompletionSegment* page, SubmissionHeader* submission)
    : page_(page), sleeper_({.wake = &page->wake, .client_asleep = &submission->client_asleep}) {}

std::optional<CompletionReader::Snapshot> CompletionReader::attempt(std::uint32_t timeline, std::string* text,
                                                                    bool* text_fits) const {
  const TimelineWord& word = page_->timelines[timeline];
  const RevisionReader<> revision(&word.revision);
  if (!revision.stable()) return std::nullopt;
  const Snapshot snapshot{.reached = Untrusted<std::uint64_t>(&word.reached).load_acquire(),
                          .failed_from = Untrusted<std::uint64_t>(&word.failed_from).load_acquire(),
                          .failed_to = Untrusted<std::uint64_t>(&word.failed_to).load_acquire(),
                          .status = Untrusted<std::int32_t>(&word.status).load_acquire(),
                          .culprit_rank = Untrusted<std::int32_t>(&word.culprit_rank).load_acquire()};
  if (text != nullptr) {
    const std::uint64_t* source = words_of(&page_->failures[timeline]);
    std::uint64_t values[1 + kTextWords];
    for (std::size_t i = 0; i <= kTextWords; ++i)
      values[i] = Untrusted<std::uint64_t>(source + i).load_acquire();
    std::uint32_t length = 0;
    std::memcpy(&length, values, sizeof length);
    *text_fits = length <= kFailureTextBytes;
    if (*text_fits) text->assign(reinterpret_cast<const char*>(values + 1), length);
  }
  if (!revision.unchanged()) return std::nullopt;
  return snapshot;
}

Code CompletionReader::look(std::uint32_t timeline, Snapshot* out, std::string* text) {
  for (int i = 0; i < kTries; ++i) {
    bool text_fits = true;
    const std::optional<Snapshot> snapshot = attempt(timeline, text, &text_fits);
    if (!snapshot) continue;
    unstable_ = 0;
    if (!text_fits) return Code::kProtocol;
    if (!plausible(snapshot->reached, snapshot->failed_from, snapshot->failed_to, snapshot->status))
      return Code::kProtocol;
    *out = *snapshot;
    return Code::kOk;
  }
  return unstable();
}

// After one unstable test the point is pending: the engine may have lost its core in the middle of a change.
// After a million in a row, a good part of a second of one core, the page is corrupt: the change never ends.
Code CompletionReader::unstable() {
  return ++unstable_ < kUnstableMax ? Code::kPending : Code::kProtocol;
}

Code CompletionReader::decide(std::uint32_t timeline, std::uint64_t value) {
  Snapshot now{};
  const Code code = look(timeline, &now, nullptr);
  if (code != Code::kOk) return code;
  if (timeline < kLanesMax) {
    const History& history = histories_[timeline];
    if (value <= history.forgotten_to) return Code::kStale;
    for (const Episode& episode : history.episodes) {
      if (fails(value, episode.from, episode.to)) return episode.status;
      // The engine has not read the reset yet, so the page still shows the lane stopped.
      if (episode.from == now.failed_from && now.failed_to == 0) now.failed_to = episode.to;
    }
  }
  if (fails(value, now.failed_from, now.failed_to)) return static_cast<Code>(now.status);
  return value <= now.reached ? Code::kOk : Code::kPending;
}

Code CompletionReader::test(std::uint64_t point) {
  if (point == MUSTER_POINT_NONE) return Code::kOk;
  const std::uint32_t timeline = point_timeline(point);
  if (timeline >= kTimelinesMax) return Code::kBadArgument;
  const Code code = decide(timeline, point_value(point));
  if (code != Code::kPending) return code;
  const Code end = closed();
  if (end == Code::kOk) return Code::kPending;
  // The engine may have written the outcome after the first look and before it closed the page.
  const Code last = decide(timeline, point_value(point));
  return last == Code::kPending ? end : last;
}

Code CompletionReader::test_any(std::span<const std::uint64_t> points, std::size_t* index) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] == MUSTER_POINT_NONE) continue;
    const Code code = test(points[i]);
    if (code == Code::kPending) continue;
    *index = i;
    return code;
  }
  return Code::kPending;
}

template<class Test>
Code CompletionReader::wait_until(Test test, std::uint32_t spins, Instant deadline, const Clock& clock) {
  Code code = test();
  for (std::uint32_t i = 0; code == Code::kPending && i < spins && clock.now() < deadline; ++i) {
    MUSTER_FAULT_POINT("point.testing");
    sched_yield();
    code = test();
  }
  while (code == Code::kPending) {
    const Nanos left = deadline - clock.now();
    if (left.count() <= 0) return Code::kWaitTimeout;
    const std::uint32_t seen = sleeper_.begin();
    MUSTER_FAULT_POINT("point.falling_asleep");
    code = test();
    if (code == Code::kPending && unstable_ > 0)
      sched_yield();  // the engine is in the middle of a change, which is short
    else if (code == Code::kPending)
      futex_wait(&page_->wake, seen, std::min(left, kSliceMax));
    sleeper_.end();
    MUSTER_FAULT_POINT("point.woken");
    if (code == Code::kPending) code = test();
  }
  return code;
}

Code CompletionReader::wait(std::uint64_t point, std::uint32_t spins, Instant deadline, const Clock& clock) {
  return wait_until([&] { return test(point); }, spins, deadline, clock);
}

Code CompletionReader::wait_any(std::span<const std::uint64_t> points, std::uint32_t spins, Instant deadline,
                                const Clock& clock, std::size_t* index) {
  return wait_until([&] { return test_any(points, index); }, spins, deadline, clock);
}

Result<CompletionReader::LaneFailure> CompletionReader::failure(std::uint32_t lane) {
  if (lane >= kLanesMax)
    return muster::fail(Code::kBadArgument, "lane {} is not in 0..{}", lane, kLanesMax - 1);
  LaneFailure out;
  Snapshot now{};
  const Code code = look(lane, &now, &out.text);
  if (code == Code::kPending) return muster::fail(code, "lane {} is being changed; ask again", lane);
  if (code != Code::kOk)
    return muster::fail(code, "the completion page holds an impossible state of lane {}", lane);
  if (now.failed_from == 0 || now.failed_to != 0) return muster::fail(Code::kNotFound, "lane {} runs", lane);
  for (const Episode& episode : histories_[lane].episodes)
    if (episode.from == now.failed_from) return muster::fail(Code::kNotFound, "lane {} was reset", lane);
  out.status = static_cast<Code>(now.status);
  out.culprit_rank = now.culprit_rank;
  out.failed_from = now.failed_from;
  return out;
}

bool CompletionReader::is_stopped(std::uint32_t lane, const Snapshot& now) const {
  if (now.failed_from == 0 || now.failed_to != 0) return false;
  const auto& episodes = histories_[lane].episodes;
  return episodes.empty() || episodes[episodes.size() - 1].from != now.failed_from;
}

// A missed failure would be lost for ever, so this looks until it sees a stable page, kUnstableMax times.
Code CompletionReader::look_until_seen(std::uint32_t lane, Snapshot* now) {
  Code code = look(lane, now, nullptr);
  for (; code == Code::kPending; code = look(lane, now, nullptr)) sched_yield();
  return code;
}

Code CompletionReader::stopped(std::uint32_t lane, bool* stopped) {
  *stopped = false;
  if (lane >= kLanesMax) return Code::kBadArgument;
  Snapshot now{};
  const Code code = look_until_seen(lane, &now);
  if (code == Code::kOk) *stopped = is_stopped(lane, now);
  return code;
}

Code CompletionReader::remember_reset(std::uint32_t lane, std::uint64_t up_to) {
  if (lane >= kLanesMax) return Code::kBadArgument;
  Snapshot now{};
  if (const Code code = look_until_seen(lane, &now); code != Code::kOk) return code;
  if (now.failed_from == 0) return Code::kOk;
  auto& [episodes, forgotten_to] = histories_[lane];
  if (!episodes.empty() && episodes[episodes.size() - 1].from == now.failed_from) return Code::kOk;
  const std::uint64_t to = now.failed_to != 0 ? now.failed_to : up_to;
  if (to < now.failed_from) return Code::kBadArgument;
  if (episodes.size() == kEpisodesMax) {
    forgotten_to = episodes[0].to;
    std::rotate(episodes.begin(), episodes.begin() + 1, episodes.end());
    episodes.pop_back();
  }
  const bool kept =
      episodes.push_back({.from = now.failed_from, .to = to, .status = static_cast<Code>(now.status)});
  MUSTER_ASSERT(kept);
  return Code::kOk;
}

std::uint64_t CompletionReader::decided(std::uint32_t lane, std::uint64_t submitted) {
  Snapshot now{};
  if (look(lane, &now, nullptr) != Code::kOk) return 0;
  const auto& episodes = histories_[lane].episodes;
  const Episode last = episodes.empty() ? Episode{} : episodes[episodes.size() - 1];
  if (is_stopped(lane, now)) return submitted;  // starts behind the failure fail at once
  return std::min(submitted, std::max({now.reached, now.failed_to, last.to}));
}

Code CompletionReader::closed_how() const {
  const std::uint32_t word = Untrusted<std::uint32_t>(&page_->closed).load_acquire();
  const std::int64_t status = -static_cast<std::int64_t>(word);
  if (status < INT32_MIN || !is_failure(static_cast<std::int32_t>(status))) return Code::kProtocol;
  return static_cast<Code>(status);
}

std::string CompletionReader::closed_text() const {
  if (closed() == Code::kOk) return {};
  std::array<std::uint64_t, kClosedTextBytes / 8> words{};
  const auto* source = reinterpret_cast<const std::uint64_t*>(page_->closed_text);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = Untrusted<std::uint64_t>(source + i).load();
  const auto* text = reinterpret_cast<const char*>(words.data());
  return std::string(text, strnlen(text, kClosedTextBytes));
}

Nanos CompletionReader::silence(Instant now) const {
  const std::uint64_t beat = Untrusted<std::uint64_t>(&page_->heartbeat_ns).load();
  const auto present = static_cast<std::uint64_t>(now.count());
  return beat == 0 || beat > present ? Nanos(0) : Nanos(present - beat);
}

Result<std::uint64_t> CounterReader::value(std::string_view name) const {
  for (std::size_t i = 0; i < kCounterNames.size(); ++i)
    if (kCounterNames[i] == name) return value(static_cast<Counter>(i));
  return muster::fail(Code::kNotFound, "no counter \"{}\"; there are: {}", name,
                      fmt::join(kCounterNames, ", "));
}

}  // namespace muster::shm
