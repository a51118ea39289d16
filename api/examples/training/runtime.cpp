#include "api/examples/training/runtime.hpp"

#include "api/examples/training/errors.hpp"
#include "api/examples/training/output.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace training {
namespace {

std::string why(muster_status_t status) {
  const std::string text = muster_last_error();
  return text.empty() ? muster_status_sentence(status) : text;
}

constexpr int kNapsMax = 10'000;

// A start that has failed has its outcome a moment before the daemon has given it up.
muster_status_t repeat_while_busy(const std::function<muster_status_t()>& call) {
  muster_status_t status = call();
  for (int naps = 0; status == MUSTER_ERR_BUSY && naps < kNapsMax; ++naps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = call();
  }
  return status;
}

}  // namespace

void check(muster_status_t status) {
  if (status == MUSTER_OK) return;
  throw RuntimeError(status, why(status));
}

Runtime Runtime::open(std::optional<std::uint64_t> delays) {
  Runtime runtime(delays);
  muster_session* session = nullptr;
  const muster_status_t opened = muster_open(nullptr, &session);
  // muster_open() had no options, so the environment is wrong.
  if (opened == MUSTER_ERR_BAD_ARGUMENT || opened == MUSTER_ERR_CONFIG) throw LaunchError(why(opened));
  check(opened);
  runtime.session_.reset(session);
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  check(muster_session_query(session, &info));
  runtime.mesh_text_ = info.mesh;
  runtime.use(runtime.group("world"));
  return runtime;
}

void Runtime::use(muster_group all) {
  all_ = all;
  muster_group_info info = MUSTER_GROUP_INFO_INIT;
  check(muster_group_query(session_.get(), all, &info));
  rank_ = info.rank;
  ranks_ = info.ranks;
}

// Others may wait for what this rank will not begin, so it aborts the groups first.
void Runtime::forget_work(std::span<const char* const> groups) {
  for (const char* name : groups)
    if (const muster_group others = group(name); others != MUSTER_GROUP_SELF)
      check(muster_group_abort(session_.get(), others));
  for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) {
    if (newest_[lane] == MUSTER_POINT_NONE) continue;
    static_cast<void>(muster_point_wait(session_.get(), newest_[lane], -1));
    check(muster_lane_reset(session_.get(), lane));
  }
  newest_ = {};
  recent_.clear();
  for (; !plans_.empty(); plans_.pop_back())
    check(repeat_while_busy([&] { return muster_plan_destroy(session_.get(), plans_.back()); }));
  for (; !buffers_.empty(); buffers_.pop_back())
    check(repeat_while_busy([&] { return muster_buffer_free(session_.get(), buffers_.back()); }));
  scratch_ = {};
}

bool Runtime::gather_survivors(std::span<const char* const> groups) {
  forget_work(groups);
  muster_group left = MUSTER_GROUP_SELF;
  check(muster_group_shrink(session_.get(), all_, 0, &left));
  if (left == all_) return false;
  check(muster_mesh_use(session_.get(), MUSTER_MESH_JOB));
  if (mesh_ != MUSTER_MESH_JOB) {
    check(muster_mesh_free(session_.get(), mesh_));
    check(muster_group_free(session_.get(), all_));
    mesh_ = MUSTER_MESH_JOB;
  }
  use(left);
  return true;
}

bool Runtime::go_on(std::int64_t count, const std::string& mesh) {
  if (rank_ >= count) return false;
  if (ranks_ > count) {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(ranks_));
    std::size_t members = 0;
    check(muster_group_ranks(session_.get(), all_, ranks.data(), ranks.size(), &members));
    muster_group needed = MUSTER_GROUP_SELF;
    check(muster_group_make(session_.get(), ranks.data(), static_cast<std::size_t>(count), "survivors",
                            &needed));
    check(muster_group_free(session_.get(), all_));
    use(needed);
  }
  mesh_text_ = mesh;
  check(muster_mesh_make(session_.get(), all_, mesh_text_.c_str(), &mesh_));
  check(muster_mesh_use(session_.get(), mesh_));
  return true;
}

Axis Runtime::axis(const char* name) {
  std::int32_t coordinate = 0;
  std::int32_t size = 1;
  check(muster_mesh_coords(session_.get(), name, &coordinate, &size));
  return {size, coordinate, group(name)};
}

muster_group Runtime::group(const char* name) {
  muster_group group = MUSTER_GROUP_SELF;
  check(muster_mesh_group(session_.get(), name, &group));
  return group;
}

void Runtime::flatten(std::span<const char* const> dims, const char* name) {
  check(muster_mesh_flatten(session_.get(), dims.data(), dims.size(), name));
}

void* Runtime::address(const muster_tensor& tensor) {
  muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
  check(muster_buffer_query(session_.get(), tensor.buffer, &info));
  return static_cast<char*>(info.address) + tensor.offset_bytes;
}

Buffer Runtime::allocate(std::uint64_t bytes) {
  Buffer buffer;
  buffer.bytes = bytes;
  check(muster_buffer_alloc(session_.get(), bytes, &buffer.handle, &buffer.address));
  if (buffer.address == nullptr)
    throw RuntimeError(
        MUSTER_ERR_UNSUPPORTED,
        "this job's devices are not of kind host; the program fills its buffers from the process and needs "
        "memory that it can see");
  buffers_.push_back(buffer.handle);
  return buffer;
}

muster_kernel Runtime::nothing() {
  if (scratch_.handle == 0) scratch_ = allocate(sizeof(float));
  return muster_fill(muster_view1(scratch_.handle, 0, MUSTER_F32, 1), 0.0);
}

muster_plan Runtime::plan(const muster_kernel& kernel) {
  muster_plan plan = 0;
  check(muster_plan_kernel(session_.get(), &kernel, &plan));
  plans_.push_back(plan);
  return plan;
}

muster_plan Runtime::plan(const muster_collective& collective) {
  muster_plan plan = 0;
  check(muster_plan_collective(session_.get(), &collective, &plan));
  plans_.push_back(plan);
  return plan;
}

muster_plan Runtime::redistribution(muster_group group, const muster_layout* from,
                                    const muster_tensor& source, const muster_layout* to,
                                    const muster_tensor& target) {
  muster_plan plan = 0;
  check(muster_plan_redistribution(session_.get(), group, from, &source, to, &target, &plan));
  plans_.push_back(plan);
  return plan;
}

muster_point Runtime::start(muster_plan plan, muster_lane lane, std::span<const muster_point> waits) {
  perhaps_sleep();
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  for (const muster_point point : waits) submit.waits[submit.wait_count++] = point;
  muster_point point = MUSTER_POINT_NONE;
  muster_status_t status = muster_plan_start(session_.get(), plan, &submit, &point);
  while (status == MUSTER_ERR_BUSY && !recent_.empty()) {
    make_room();
    status = muster_plan_start(session_.get(), plan, &submit, &point);
  }
  check(status);
  newest_[lane] = point;
  if (recent_.size() == kRecentMax) recent_.pop_front();
  recent_.push_back(point);
  return point;
}

// Waits for a point half-way back in a full ring, so that the runtime has work while we refill the ring. Each
// turn forgets at least one point, so the turns are bounded.
void Runtime::make_room() {
  const std::size_t half = recent_.size() / 2;
  wait(recent_[half]);
  recent_.erase(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(half) + 1);
}

// Makes this rank late at random, to test that results do not depend on it.
void Runtime::perhaps_sleep() {
  if (!delays_) return;
  const CounterRandom random(*delays_, "rank " + std::to_string(rank()));
  const std::uint64_t draw = random.bits(starts_++);
  if (draw % 128 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw / 128 % 4000));
}

void Runtime::wait(muster_point point) {
  check(muster_point_wait(session_.get(), point, -1));
}

void Runtime::meet_all() {
  if (ranks_ > 1) check(muster_barrier(session_.get(), all_));
}

std::string Runtime::from_first(const std::string& text) {
  if (ranks_ == 1) return text;
  const void* said = nullptr;
  std::uint64_t bytes = 0;
  check(muster_object_broadcast(session_.get(), all_, 0, text.data(), text.size(), &said, &bytes));
  return {static_cast<const char*>(said), static_cast<std::size_t>(bytes)};
}

std::uint64_t Runtime::counter(const char* name) {
  std::uint64_t value = 0;
  check(muster_counter(session_.get(), name, &value));
  return value;
}

void Runtime::trace_begin() {
  check(muster_trace_begin(session_.get()));
}

void Runtime::trace_end(const std::string& path) {
  check(muster_trace_end(session_.get(), path.c_str()));
}

std::string rank_name() {
  const char* rank = std::getenv("MUSTER_RANK");
  return rank == nullptr ? "0" : rank;
}

int run_main(const char* program, bool says_mistakes, const std::function<void()>& body) {
  // One write for each line, because other ranks write to the same terminal.
  const auto say = [](const std::string& line) { std::cerr << line + "\n"; };
  const std::string name = std::string(program) + ": ";
  try {
    body();
    finish_output();  // of --help
    return EXIT_SUCCESS;
  } catch (const LaunchError& error) {
    say(name + error.what());
    return kExitUsage;
  } catch (const UsageError& error) {
    if (says_mistakes) say(name + error.what());
    return kExitUsage;
  } catch (const OutputError& error) {
    if (says_mistakes) say(name + error.what());
    return EXIT_FAILURE;
  } catch (const RuntimeError& error) {
    say("rank " + rank_name() + ": " + error.what());
    return kExitRuntime;
  } catch (const std::exception& error) {
    say("rank " + rank_name() + ": " + error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace training
