// A rank of the programs that measure units and checkpoints: its session, and what they all do with it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <muster/kernels.h>
#include <muster/muster.h>

namespace muster::bench::sharding {

// Ends the program with the session's error unless the status is MUSTER_OK.
void must(muster_status_t status, const char* what);

struct Memory {
  muster_buffer buffer = 0;
  void* address = nullptr;
};

// Owns    the session; buffers and plans die with it.
// Thread  one.
// Bound   none of its own.
// Fails   ends the program, with a sentence.
class Rank {
 public:
  Rank();  // attaches as the launcher's environment says

  std::int32_t rank() const { return info_.rank; }
  std::int32_t ranks() const { return info_.world_size; }
  muster_session* session() const { return session_.get(); }
  muster_group world() const { return world_; }

  Memory allocate(std::uint64_t bytes);
  muster_plan plan(const muster_kernel& kernel);
  muster_plan plan(const muster_collective& collective);
  // Asynchronous. While the ring is full it waits for the start before.
  muster_point start(muster_plan plan, muster_lane lane, std::span<const muster_point> waits = {});
  void wait(muster_point point);
  void meet();                  // a barrier of all ranks
  double largest(double mine);  // of all ranks' numbers, at all of them

 private:
  struct Close {
    void operator()(muster_session* session) const { muster_close(session); }
  };
  std::unique_ptr<muster_session, Close> session_;
  muster_session_info info_ = MUSTER_SESSION_INFO_INIT;
  muster_group world_ = MUSTER_GROUP_SELF;
  Memory number_;
  muster_point newest_ = MUSTER_POINT_NONE;
};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Not of an empty list.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace muster::bench::sharding
