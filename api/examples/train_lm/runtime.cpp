#include "api/examples/train_lm/runtime.hpp"

#include "api/examples/train_lm/options.hpp"

#include <chrono>
#include <thread>

namespace train_lm {
namespace {

std::string why(muster_status_t status) {
  const std::string text = muster_last_error();
  return text.empty() ? muster_status_sentence(status) : text;
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
  check(muster_session_query(session, &runtime.info_));
  return runtime;
}

std::int64_t Runtime::dim(const char* name, Axis* axis) {
  std::int32_t coordinate = 0;
  std::int32_t size = 1;
  check(muster_mesh_coords(session_.get(), name, &coordinate, &size));
  if (axis != nullptr) *axis = {size, coordinate, group(name)};
  return size;
}

muster_group Runtime::group(const char* name) {
  muster_group group = MUSTER_GROUP_SELF;
  check(muster_mesh_group(session_.get(), name, &group));
  return group;
}

Mesh Runtime::mesh() {
  for (const char* name : {"pp", "domain"}) {
    if (const std::int64_t size = dim(name, nullptr); size != 1)
      throw UsageError("mesh " + mesh_text() + " has " + name + "=" + std::to_string(size) +
                       "; train_lm shards over dp_replicate, dp_shard, cp and tp only, so set " + name +
                       " to 1");
  }
  Mesh mesh;
  dim("dp_replicate", &mesh.dp_replicate);
  dim("dp_shard", &mesh.dp_shard);
  dim("cp", &mesh.cp);
  dim("tp", &mesh.tp);
  mesh.loss = group("dp_cp");
  return mesh;
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
        "this job's devices are not of kind host; train_lm fills its buffers from the process and needs "
        "memory that it can see");
  return buffer;
}

muster_plan Runtime::plan(const muster_kernel& kernel) {
  muster_plan plan = 0;
  check(muster_plan_kernel(session_.get(), &kernel, &plan));
  return plan;
}

muster_plan Runtime::plan(const muster_collective& collective) {
  muster_plan plan = 0;
  check(muster_plan_collective(session_.get(), &collective, &plan));
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
  if (world() > 1) check(muster_barrier(session_.get(), group("world")));
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

}  // namespace train_lm
