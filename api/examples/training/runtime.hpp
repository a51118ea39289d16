// Runtime: one rank's session, with failures as exceptions and a full ring as a short wait.
#pragma once

#include "api/examples/training/random.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <muster/kernels.h>
#include <muster/layouts.h>
#include <muster/muster.h>

namespace training {

// One mesh dim as a rank sees it.
struct Axis {
  std::int64_t size = 1;
  std::int64_t coordinate = 0;
  muster_group group = MUSTER_GROUP_SELF;
};

// A failure that the runtime reported; what() is muster_last_error().
//
// Owns    its text. Thread  a value; any.
// Bound   one sentence.  Fails   never.
class RuntimeError : public std::runtime_error {
 public:
  RuntimeError(muster_status_t status, const std::string& text) : std::runtime_error(text), status_(status) {}
  muster_status_t status() const { return status_; }

 private:
  muster_status_t status_;
};

void check(muster_status_t status);  // throws RuntimeError unless it is MUSTER_OK

// Memory of the rank's device that this process sees too.
struct Buffer {
  muster_buffer handle = 0;
  void* address = nullptr;
  std::uint64_t bytes = 0;

  template<class T>
  std::span<T> as() const {
    return {static_cast<T*>(address), bytes / sizeof(T)};
  }
};

// Owns    the session, and all plans and buffers of it.
// Thread  one.
// Bound   remembers the points of the last kRecentMax starts.
// Fails   every call with RuntimeError; open() also with LaunchError.
class Runtime {
 public:
  // Attaches as the rank of the launcher's environment. `delays`, if set, is the seed of random sleeps
  // between submissions.
  static Runtime open(std::optional<std::uint64_t> delays);

  // This rank among those that train, and how many they are: at first all of the job.
  std::int32_t rank() const { return rank_; }
  std::int32_t ranks() const { return ranks_; }
  std::string mesh_text() const { return mesh_text_; }
  Axis axis(const char* name);  // a dim of the mesh, or a flattened name
  muster_group group(const char* name);
  // The dims become one, by that name; nothing happens if it is there. All ranks of the mesh call.
  void flatten(std::span<const char* const> dims, const char* name);

  // After a failure in which ranks may have been lost. All that are left call. Aborts the groups, gives back
  // all plans and buffers, and waits for the others. False: nobody was lost.
  bool gather_survivors(std::span<const char* const> groups);
  // Then: the first `count` of them go on in that mesh. False: this rank is not needed.
  bool go_on(std::int64_t count, const std::string& mesh);

  muster_session* session() { return session_.get(); }
  Buffer allocate(std::uint64_t bytes);
  void* address(const muster_tensor& tensor);  // where this process sees its first element
  muster_plan plan(const muster_kernel& kernel);
  muster_kernel nothing();  // which has points to wait for, and no other work
  muster_plan plan(const muster_collective& collective);
  muster_plan redistribution(muster_group group, const muster_layout* from, const muster_tensor& source,
                             const muster_layout* to, const muster_tensor& target);

  // Asynchronous. `waits`: at most MUSTER_WAITS_MAX points.
  muster_point start(muster_plan plan, muster_lane lane, std::span<const muster_point> waits);
  // The point of the newest start on a lane; MUSTER_POINT_NONE before the first.
  muster_point newest(muster_lane lane) const { return newest_[lane]; }
  // Something else has started work on the lane, which ends with that point.
  void note(muster_lane lane, muster_point point) { newest_[lane] = point; }
  void wait(muster_point point);
  void meet_all();                                  // a barrier of all that train
  std::string from_first(const std::string& text);  // that of rank 0, at all that train

  std::uint64_t counter(const char* name);
  void trace_begin();
  void trace_end(const std::string& path);

 private:
  struct Close {
    void operator()(muster_session* session) const { muster_close(session); }
  };
  static constexpr std::size_t kRecentMax = 1024;

  explicit Runtime(std::optional<std::uint64_t> delays) : delays_(delays) {}
  void forget_work(std::span<const char* const> groups);
  void use(muster_group all);
  void make_room();
  void perhaps_sleep();

  std::unique_ptr<muster_session, Close> session_;
  std::int32_t rank_ = 0;
  std::int32_t ranks_ = 1;
  std::string mesh_text_;
  muster_group all_ = MUSTER_GROUP_SELF;  // the ranks that train
  muster_mesh mesh_ = MUSTER_MESH_JOB;
  std::vector<muster_plan> plans_;
  std::vector<muster_buffer> buffers_;
  Buffer scratch_;  // of nothing()
  std::array<muster_point, MUSTER_LANE_CLASSES> newest_{};
  std::deque<muster_point> recent_;
  std::optional<std::uint64_t> delays_;
  std::uint64_t starts_ = 0;
};

// Which rank this is, before and without a session.
std::string rank_name();
// Runs a program's `body` and says on standard error what ended it. Returns its exit status: 0, kExitUsage,
// kExitRuntime, or 1. `says_mistakes`: whether this rank says those of the user that all ranks find.
int run_main(const char* program, bool says_mistakes, const std::function<void()>& body);

}  // namespace training
