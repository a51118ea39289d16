#include "kernels/device/pool.hpp"

#include "api/base/assert.hpp"
#include "kernels/device/host/crew.hpp"

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

namespace muster::device {
namespace {

constexpr std::uint32_t kWorkersMax = 4096;
constexpr std::uint32_t kDepthMax = 65536;

// Number of CPUs in this process's affinity mask, at least 1. The set grows until the kernel's mask fits.
std::uint32_t cores_granted() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<std::uint32_t>(count);
  }
  return 1;
}

Status check(const PoolOptions& options) {
  if (options.workers > kWorkersMax)
    return failure(Code::kBadArgument, "workers is {}; a pool has 1..{} (0: one per core granted)",
                   options.workers, kWorkersMax);
  if (options.streams_max == 0 || options.streams_max > host::Queues::kStreamsMax)
    return failure(Code::kBadArgument, "streams_max is {}; a pool has 1..{}", options.streams_max,
                   host::Queues::kStreamsMax);
  if (options.depth == 0 || options.depth > kDepthMax)
    return failure(Code::kBadArgument, "depth is {}; a stream has 1..{}", options.depth, kDepthMax);
  if (options.spin.count() < 0)
    return failure(Code::kBadArgument, "spin is {} ns; it must not be negative", options.spin.count());
  return {};
}

}  // namespace

Pool::Pool(const PoolOptions& options, std::uint32_t workers)
    : crew_(std::make_shared<host::Crew>(options, workers)) {}

Pool::~Pool() {
  halt();
}

void Pool::halt() {
  crew_->stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// No worker begins before all threads exist. A worker that has begun may wait for a lock of the caller, and
// then could not be joined if the next thread cannot be started.
Result<std::unique_ptr<Pool>> Pool::start(const PoolOptions& options) {
  MUSTER_RETURN_IF_ERROR(check(options));
  const std::uint32_t workers = options.workers != 0 ? options.workers : cores_granted();
  std::unique_ptr<Pool> pool(new Pool(options, workers));
  std::vector<std::thread>& threads = pool->threads_;
  threads.reserve(workers);
  enum Gate : int { kShut, kOpen, kNever };
  const auto gate = std::make_shared<std::atomic<int>>(kShut);
  const auto open = [&gate](Gate how) {
    gate->store(how);
    gate->notify_all();
  };
  for (std::uint32_t i = 0; i < workers; ++i) {
    try {
      threads.emplace_back([crew = pool->crew_.get(), i, gate] {
        (void)::pthread_setname_np(::pthread_self(), fmt::format("muster-w{}", i).c_str());
        gate->wait(kShut);
        if (gate->load() == kOpen) crew->serve(i);
      });
    } catch (const std::system_error& error) {
      open(kNever);
      return fail(Code::kNoResource,
                  "{} worker threads are needed, {} could be started ({}); raise the process limit (ulimit "
                  "-u, the cgroup's "
                  "pids.max) or ask for fewer workers",
                  workers, i, error.code().message());
    }
  }
  open(kOpen);
  return pool;
}

std::unique_ptr<Pool> Pool::open_manual(const PoolOptions& options) {
  MUSTER_ASSERT(check(options).ok());
  return std::unique_ptr<Pool>(new Pool(options, 0));
}

std::uint32_t Pool::workers() const noexcept {
  return crew_->workers();
}

void Pool::work_with(std::uint32_t workers) {
  crew_->work_with(workers);
}

std::size_t Pool::run_once() {
  return crew_->run_once();
}

}  // namespace muster::device
