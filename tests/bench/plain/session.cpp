// The part of the C API that train_lm uses, without Muster: one rank in one process, no daemon and no shared
// memory. A start runs its kernel at once, on the cores of this process; points are reached when they are
// returned. The runtime's cost is the extra time that train_lm needs with Muster.
#include "tests/bench/plain/cores.hpp"

#include "api/base/dtype.hpp"
#include "api/base/status.hpp"
#include "api/client/error.hpp"
#include "api/client/groups.hpp"
#include "api/client/session/mesh_axes.hpp"
#include "api/client/session/shown_units.hpp"
#include "api/client/units/unit_watch.hpp"
#include "kernels/check.hpp"
#include "kernels/device/host/device.hpp"
#include "kernels/table.hpp"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <muster/checkpoint.h>
#include <muster/muster.h>

struct muster_session {
  struct Plan {
    const muster::kernels::Kernel* kernel = nullptr;
    muster::kernels::Args args;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  explicit muster_session(unsigned threads) : cores(threads) {}
  muster::bench::plain::Cores cores;
  std::vector<std::unique_ptr<std::byte, Free>> buffers;
  std::deque<Plan> plans;  // their args stay where they are
  std::uint64_t starts = 0;
};

namespace {

namespace kernels = muster::kernels;

constexpr std::size_t kAlignment = 4096;

muster_status_t refuse(muster::Code code, const std::string& text) {
  return muster::client::report(muster::Status(code, text));
}

// A stream whose tasks run at once.
class Stream final : public muster::device::host::TaskStream {
 public:
  explicit Stream(muster::bench::plain::Cores& cores) : cores_(cores) {}
  muster::Status submit(const muster::device::host::Task& task) override {
    cores_.run(task.parts, [&task](std::uint32_t part) { task.run(task.context, part); });
    return {};
  }
  muster::Status record(muster::device::Event&) override { return {}; }
  muster::Status wait(const muster::device::Event&) override { return {}; }
  muster::Status synchronize() override { return {}; }
  muster::Status health() const override { return {}; }

 private:
  muster::bench::plain::Cores& cores_;
};

muster_status_t not_here(std::string_view what) {
  return refuse(muster::Code::kUnsupported, fmt::format("{} is not in the program without Muster", what));
}

kernels::Tensor tensor_of(const muster_session& session, const muster_tensor& t) {
  kernels::Tensor tensor;
  if (t.buffer == 0) return tensor;
  tensor.data = session.buffers[t.buffer - 1].get() + t.offset_bytes;
  tensor.dtype = t.dtype;
  tensor.dims = t.dims;
  std::copy(std::begin(t.size), std::end(t.size), tensor.size.begin());
  std::copy(std::begin(t.stride), std::end(t.stride), tensor.stride.begin());
  return tensor;
}

}  // namespace

void muster::client::show_units(muster_session*, const void*, const shm::UnitFigures*) {}
muster_status_t muster::client::mark_step(muster_session*, std::uint64_t) {
  return MUSTER_OK;
}
muster::Result<std::unique_ptr<muster::client::UnitWatch>> muster::client::watch_units(
    const UnitWatch::Set&) {
  return std::unique_ptr<UnitWatch>();
}
void muster::client::abort_group(muster_session*, muster_group, std::string_view) {}
muster::Result<bool> muster::client::spans_nodes(muster_session*, muster_group) {
  return false;
}

extern "C" {

// PLAIN_THREADS: how many cores it uses; else all.
muster_status_t muster_open(const muster_open_options*, muster_session** session) {
  const char* said = std::getenv("PLAIN_THREADS");
  const unsigned threads = said != nullptr ? static_cast<unsigned>(std::strtoul(said, nullptr, 10))
                                           : muster::bench::plain::usable_cores();
  if (threads == 0) return refuse(muster::Code::kBadArgument, "PLAIN_THREADS must be a number from 1 on");
  *session = new muster_session(threads);
  return MUSTER_OK;
}

muster_status_t muster_close(muster_session* session) {
  delete session;
  return MUSTER_OK;
}

muster_status_t muster_session_query(muster_session*, muster_session_info* info) {
  info->rank = info->local_rank = 0;
  info->world_size = info->local_size = 1;
  return MUSTER_OK;
}

muster_status_t muster_mesh_coords(muster_session*, const char*, std::int32_t* coordinate,
                                   std::int32_t* size) {
  if (coordinate != nullptr) *coordinate = 0;
  if (size != nullptr) *size = 1;
  return MUSTER_OK;
}

muster_status_t muster_mesh_group(muster_session*, const char*, muster_group* group) {
  *group = MUSTER_GROUP_SELF;
  return MUSTER_OK;
}

muster_status_t muster_buffer_alloc(muster_session* session, std::uint64_t bytes, muster_buffer* buffer,
                                    void** address) {
  const std::uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) return refuse(muster::Code::kNoResource, fmt::format("no {} bytes", rounded));
  std::memset(memory, 0, rounded);
  session->buffers.emplace_back(memory);
  *buffer = session->buffers.size();
  if (address != nullptr) *address = memory;
  return MUSTER_OK;
}

muster_status_t muster_buffer_query(muster_session* session, muster_buffer buffer, muster_buffer_info* info) {
  info->address = session->buffers[buffer - 1].get();
  return MUSTER_OK;
}

muster_status_t muster_buffer_create(muster_session*, const muster_buffer_options*, muster_buffer*, void**) {
  return not_here("a shared buffer");
}

muster_status_t muster_buffer_free(muster_session*, muster_buffer) {
  return MUSTER_OK;
}

muster_status_t muster_group_ranks(muster_session*, muster_group, std::int32_t* ranks, std::size_t size,
                                   std::size_t* count) {
  if (size > 0) *ranks = 0;
  *count = 1;
  return MUSTER_OK;
}

muster_status_t muster_group_query(muster_session*, muster_group, muster_group_info* info) {
  info->rank = 0;
  info->ranks = 1;
  return MUSTER_OK;
}

muster_status_t muster_group_shrink(muster_session*, muster_group, std::int64_t, muster_group*) {
  return not_here("a group of survivors");
}

muster_status_t muster_mesh_make(muster_session*, muster_group, const char*, muster_mesh*) {
  return not_here("another mesh");
}

muster_status_t muster_plan_redistribution(muster_session*, muster_group, const muster_layout*,
                                           const muster_tensor*, const muster_layout*, const muster_tensor*,
                                           muster_plan*) {
  return not_here("a redistribution");
}

muster_status_t muster_mesh_flatten(muster_session*, const char* const*, std::size_t, const char*) {
  return not_here("a flattened name");
}

muster_status_t muster_mesh_use(muster_session*, muster_mesh) {
  return MUSTER_OK;
}

muster_status_t muster_mesh_free(muster_session*, muster_mesh) {
  return MUSTER_OK;
}

muster_status_t muster_group_make(muster_session*, const std::int32_t*, std::size_t, const char*,
                                  muster_group* group) {
  *group = MUSTER_GROUP_SELF;
  return MUSTER_OK;
}

muster_status_t muster_group_free(muster_session*, muster_group) {
  return MUSTER_OK;
}

muster_status_t muster_group_abort(muster_session*, muster_group) {
  return MUSTER_OK;
}

muster_status_t muster_object_gather(muster_session*, muster_group, std::int32_t, const void*, std::uint64_t,
                                     const void**, std::uint64_t*) {
  return not_here("a gather of objects");
}

muster_status_t muster_object_broadcast(muster_session*, muster_group, std::int32_t, const void*,
                                        std::uint64_t, const void**, std::uint64_t*) {
  return not_here("a broadcast of objects");
}

muster_status_t muster_compare(muster_session*, muster_group, const muster_tensor*, std::size_t,
                               std::int64_t) {
  return MUSTER_OK;  // one rank is like itself
}

muster_status_t muster_plan_kernel(muster_session* session, const muster_kernel* kernel, muster_plan* plan) {
  muster_session::Plan made;
  made.kernel = kernels::find(kernel->op);
  if (made.kernel == nullptr) return not_here(fmt::format("kernel {}", kernel->op));
  for (std::uint32_t i = 0; i < kernel->tensor_count; ++i)
    made.args.tensors.push_back(tensor_of(*session, kernel->tensors[i]));
  made.args.ints.assign(kernel->ints, kernel->ints + kernel->int_count);
  made.args.reals.assign(kernel->reals, kernel->reals + kernel->real_count);
  if (const muster::Status status = kernels::validate(*made.kernel, made.args); !status.ok())
    return refuse(status.code(), status.message());
  kernels::prepare(*made.kernel, made.args);
  session->plans.push_back(std::move(made));
  *plan = session->plans.size();
  return MUSTER_OK;
}

// A barrier of the one rank.
muster_status_t muster_plan_collective(muster_session* session, const muster_collective* collective,
                                       muster_plan* plan) {
  if (collective->op != MUSTER_BARRIER) return not_here("a collective");
  session->plans.emplace_back();
  *plan = session->plans.size();
  return MUSTER_OK;
}

muster_status_t muster_plan_start(muster_session* session, muster_plan plan, const muster_submit*,
                                  muster_point* point) {
  const muster_session::Plan& p = session->plans[plan - 1];
  *point = ++session->starts;
  if (p.kernel == nullptr) return MUSTER_OK;
  Stream stream(session->cores);
  const muster::Status status = muster::kernels::launch(stream, *p.kernel, p.args);
  return status.ok() ? MUSTER_OK : refuse(status.code(), status.message());
}

muster_status_t muster_plan_destroy(muster_session*, muster_plan) {
  return MUSTER_OK;
}

muster_status_t muster_lane_create(muster_session*, muster_lane lane_class, const char*, muster_lane* lane) {
  *lane = lane_class;
  return MUSTER_OK;
}

muster_status_t muster_lane_destroy(muster_session*, muster_lane) {
  return MUSTER_OK;
}

muster_status_t muster_lane_reset(muster_session*, muster_lane) {
  return MUSTER_OK;
}

muster_status_t muster_lane_failure(muster_session*, muster_lane, muster_failure*) {
  return MUSTER_ERR_NOT_FOUND;
}

muster_status_t muster_point_test(muster_session*, muster_point) {
  return MUSTER_OK;
}

muster_status_t muster_point_wait(muster_session*, muster_point, std::int64_t) {
  return MUSTER_OK;
}

muster_status_t muster_barrier(muster_session*, muster_group) {
  return MUSTER_OK;
}

// One process alone saves nothing.
muster_status_t muster_checkpoints_open(muster_session*, const muster_checkpoints_options*,
                                        muster_checkpoints**) {
  return not_here("a checkpoint");
}

muster_status_t muster_checkpoints_close(muster_checkpoints*) {
  return MUSTER_OK;
}

muster_status_t muster_checkpoint_query(muster_checkpoints*, const char*, muster_checkpoint_info*) {
  return not_here("a checkpoint");
}

muster_status_t muster_checkpoint_list(muster_checkpoints*, muster_checkpoint_info*, std::size_t,
                                       std::size_t*) {
  return not_here("a checkpoint");
}

muster_status_t muster_checkpoint_load(muster_checkpoints*, const muster_checkpoint_load_options*,
                                       muster_checkpoint_info*) {
  return not_here("a checkpoint");
}

muster_status_t muster_checkpoint_save_async(muster_checkpoints*, const muster_checkpoint_save_options*) {
  return not_here("a checkpoint");
}

muster_status_t muster_checkpoint_wait(muster_checkpoints*) {
  return not_here("a checkpoint");
}

muster_status_t muster_counter(muster_session*, const char*, std::uint64_t* value) {
  *value = 0;
  return MUSTER_OK;
}

muster_status_t muster_trace_begin(muster_session*) {
  return not_here("a trace");
}

muster_status_t muster_trace_end(muster_session*, const char*) {
  return not_here("a trace");
}
}

// A mesh of one rank has no dims that overlap.
muster::Status muster::client::check_apart(muster_session*, std::span<const NamedAxis>) {
  return {};
}
