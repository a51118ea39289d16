#include "api/base/blame/stragglers.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace muster::blame {
namespace {

// The sorted lags of all members but one, as the difference of two sorted ranges. So nothing is copied to
// leave a member out.
//
// Owns    nothing.
// Thread  one.
// Bound   logarithmic in the number of lags.
// Fails   never; there is at least one lag.
class Others {
 public:
  Others(std::span<const Nanos> all, std::span<const Nanos> own) : all_(all), own_(own) {}

  // The upper median of an even number, so that a member needs a larger lag to be late.
  Nanos median() const {
    return *std::partition_point(all_.begin(), all_.end(),
                                 [this](Nanos lag) { return up_to(lag) < more_than_half(); });
  }
  // Whether more than half of the lags lie within `span` of `centre`: then so does their median deviation.
  bool near(Nanos centre, Nanos span) const {
    return up_to(centre + span) - below(centre - span) >= more_than_half();
  }

 private:
  std::ptrdiff_t more_than_half() const { return (std::ssize(all_) - std::ssize(own_)) / 2 + 1; }
  std::ptrdiff_t up_to(Nanos lag) const { return up_to(all_, lag) - up_to(own_, lag); }
  std::ptrdiff_t below(Nanos lag) const { return below(all_, lag) - below(own_, lag); }
  static std::ptrdiff_t up_to(std::span<const Nanos> lags, Nanos lag) {
    return std::upper_bound(lags.begin(), lags.end(), lag) - lags.begin();
  }
  static std::ptrdiff_t below(std::span<const Nanos> lags, Nanos lag) {
    return std::lower_bound(lags.begin(), lags.end(), lag) - lags.begin();
  }

  std::span<const Nanos> all_;
  std::span<const Nanos> own_;
};

}  // namespace

Stragglers::Stragglers(std::uint32_t members) : states_(members) {
  MUSTER_ASSERT(members >= 2);
  lags_.reserve(std::size_t{kWindow} * members);
}

std::size_t Stragglers::bucket_of(Nanos lag) {
  const auto micros = static_cast<std::uint64_t>(std::max<std::int64_t>(lag.count(), 0)) / 1000;
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(micros)), kBuckets - 1);
}

void Stragglers::met(std::span<const Instant> arrivals) {
  MUSTER_ASSERT(arrivals.size() == states_.size());
  const Instant first = *std::min_element(arrivals.begin(), arrivals.end());
  const std::size_t row = operations_ % kWindow * states_.size();
  if (row == lags_.size()) lags_.resize(row + states_.size());
  Nanos* lags = lags_.data() + row;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    lags[i] = arrivals[i] - first;
    ++states_[i].histogram[bucket_of(lags[i])];
  }
  ++operations_;
}

void Stragglers::restart() {
  std::fill(states_.begin(), states_.end(), State{});
  operations_ = judged_ = 0;
  judged_window_ = 0;
}

std::uint32_t Stragglers::window() const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(operations_, kWindow));
}

void Stragglers::judge(Workbench& bench, std::vector<std::uint32_t>& changed) {
  if (judged_ == operations_) return;
  judged_ = operations_;
  judged_window_ = window();
  const bool sorted = find_medians(bench) && judged_window_ >= kEnough;
  if (sorted) {
    bench.all = bench.each;
    std::sort(bench.all.begin(), bench.all.end());
  }
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    state.others = Nanos{0};
    const bool late = sorted && state.median > kFloor && is_late(i, bench);
    if (turn(state, late)) changed.push_back(i);
  }
}

// Leaves each member's lags in bench.each. Returns whether any median is above kFloor.
bool Stragglers::find_medians(Workbench& bench) {
  const std::size_t count = judged_window_;
  const std::size_t members = states_.size();
  bool above = false;
  bench.each.resize(members * count);
  for (std::size_t i = 0; i < members; ++i) {
    const auto own = bench.each.begin() + static_cast<std::ptrdiff_t>(i * count);
    for (std::size_t k = 0; k < count; ++k) own[static_cast<std::ptrdiff_t>(k)] = lags_[k * members + i];
    // The lower median of an even number.
    const auto middle = own + static_cast<std::ptrdiff_t>((count - 1) / 2);
    std::nth_element(own, middle, own + static_cast<std::ptrdiff_t>(count));
    states_[i].median = *middle;
    above = above || *middle > kFloor;
  }
  return above;
}

// median > others' median + kDeviations * MAD + kFloor, without computing the MAD: it is small enough exactly
// if more than half of the others' lags lie near enough to their median.
bool Stragglers::is_late(std::uint32_t member, const Workbench& bench) {
  State& state = states_[member];
  const auto count = static_cast<std::ptrdiff_t>(judged_window_);
  std::array<Nanos, kWindow> own;
  const auto from = bench.each.begin() + member * count;
  std::copy(from, from + count, own.begin());
  std::sort(own.begin(), own.begin() + count);
  const Others others(bench.all, std::span(own).first(judged_window_));
  state.others = others.median();
  const Nanos room = state.median - state.others - kFloor;
  return room > Nanos{0} && others.near(state.others, (room - Nanos{1}) / kDeviations);
}

// Returns true if the flag changes.
bool Stragglers::turn(State& state, bool late) const {
  if (late) {
    state.fine_since.reset();
    return !std::exchange(state.late, true);
  }
  if (!state.late) return false;
  if (!state.fine_since) state.fine_since = operations_;
  if (operations_ - *state.fine_since < kWindow) return false;
  state.fine_since.reset();
  state.late = false;
  return true;
}

std::string lag_text(Nanos lag) {
  const double millis = std::chrono::duration<double, std::milli>(lag).count();
  if (millis >= 1000) return fmt::format("{:.1f} s", millis / 1000);
  return fmt::format("{:.{}f} ms", millis, millis < 10 ? 2 : 1);
}

std::string sentence_of(const Straggler& s) {
  return fmt::format(
      "group {}: rank {} comes late: median {} behind the first over the last {} operations; the others {}",
      s.group_name, s.rank, lag_text(s.median), s.operations, lag_text(s.others));
}

std::string sentence_of(std::span<const Straggler> stragglers) {
  const auto worst = std::max_element(stragglers.begin(), stragglers.end(),
                                      [](const auto& a, const auto& b) { return a.median < b.median; });
  const std::size_t more = stragglers.size() - 1;
  return sentence_of(*worst) + (more == 0   ? ""
                                : more == 1 ? "; 1 more rank of this group comes late"
                                            : fmt::format("; {} more ranks of this group come late", more));
}

}  // namespace muster::blame
