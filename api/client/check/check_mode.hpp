// CheckMode: the additional state of a session in check mode.
#pragma once

#include "api/base/hash.hpp"
#include "api/client/check/guarded_buffers.hpp"
#include "api/client/check/memory_use.hpp"
#include "api/client/check/plan_uses.hpp"
#include "api/client/check/source_sums.hpp"
#include "api/client/check/starts_in_flight.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

// Owns    the session's mappings, what each plan uses, and the starts whose end the process has not seen.
// Thread  the session's.
// Bound   that of its objects.
// Fails   never; finds what is wrong: kState with rank, call, start and bytes. Each finding goes to standard
//         error too.
class CheckMode {
 public:
  // Prints once that the mode is on.
  explicit CheckMode(std::int32_t rank);

  std::int32_t rank() const { return rank_; }
  GuardedBuffers& buffers() { return buffers_; }
  PlanUses& plans() { return plans_; }
  // Writes the finding, if it is one, to standard error, and returns it.
  Status found(Status finding) const;
  Status found(std::string_view text) const;

  // The buffer is freed. kState, if something was written around it.
  Status buffer_gone(muster_buffer buffer);

  // ---- starts
  // kState naming both, if the start would race with one in flight.
  Status judge(std::string_view call, const StartsInFlight::Next& next) const;
  // The same for a collective that the session runs now.
  Status judge_run(std::string_view call, muster_plan plan) const;
  void started(const StartsInFlight::Next& next, muster_point point);
  StartsInFlight& starts() { return starts_; }
  // The process has seen the point reached. kState, if the source of a collective has changed since its
  // start.
  Status reach(muster_point point);
  // The process has seen that the point will never be reached.
  void fail(muster_point point);
  // `sum`: of the sources of a run, taken before it. kState, if they have changed.
  Status judge_sum(std::string_view whose, const SourceSums::Sum& sum) const;
  // kState naming both, if the signal lets a start begin that races with another.
  Status judge_signal(std::uint32_t timeline, std::uint64_t value) const;
  void signalled(std::uint32_t timeline, std::uint64_t value);

  // ---- closed memory
  void close(const std::byte* from, const std::byte* to, std::string why);
  void open(const std::byte* from, const std::byte* to);
  // kState naming the start, if a start that uses the memory may still run after the points. `whose`: the
  // object that gives the memory up.
  Status judge_end(const std::byte* from, const std::byte* to, std::span<const muster_point> points,
                   std::string_view whose) const;
  // kState naming the start, if a start in flight writes memory that this process is about to read.
  Status judge_read(std::string_view call, std::span<const muster_tensor> views) const;

  void name_lane(muster_lane lane, std::string_view name) { lanes_[lane] = name; }

 private:
  struct Closed {
    MemoryUses uses;  // one, which writes
    std::string why;
  };
  // kState, if the uses meet a closed place. `what`: the call that uses them.
  Status judge_closed(std::string_view what, const MemoryUses& uses) const;
  std::string name_of(const StartsInFlight::Started& start) const;
  std::string words(const StartsInFlight::Race& race) const;
  void protect(const StartsInFlight::Started& start);
  void release(const std::vector<StartsInFlight::Started>& ended);

  std::int32_t rank_;
  GuardedBuffers buffers_;
  PlanUses plans_;
  std::map<muster_lane, std::string> lanes_;  // that have a name
  StartsInFlight starts_;
  SourceSums sums_;
  std::vector<Closed> closed_;  // they do not overlap
};

}  // namespace muster::client
