#include "scheduler/run/executor.hpp"

#include "kernels/check.hpp"
#include "kernels/device/host/pool.hpp"
#include "kernels/table.hpp"
#include "scheduler/run/graph.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::scheduler {
namespace {

constexpr std::uint32_t kLaunchDepth = 8;

// A graph of one rank whose launches go to an executor on streams that are as deep as the engine's.
class Streams final : public Actions {
 public:
  Streams() : graph({1, 1024, kLaunchDepth}, {}, *this) {
    device::host::PoolOptions options;
    options.streams_max = MUSTER_LANE_COUNT;
    options.depth = Executor::kEntriesPerStep * kLaunchDepth;
    pool = device::host::Pool::open_manual(options);
    device = *device::host::open_device(*pool);
    executor.emplace(*Executor::open(*device, 1, MUSTER_LANE_COUNT * kLaunchDepth, {}));
  }
  void launch(std::uint32_t step_index, const Step& step) override {
    const Status status = executor->launch(step_index, step);
    if (!status.ok()) refused += status.text() + "\n";
  }
  void reached(Rank, std::uint32_t, std::uint64_t) override {}
  void stopped(Rank, std::uint32_t, std::uint64_t, const Cause&) override {}
  void resumed(Rank, std::uint32_t, std::uint64_t) override {}
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool) override { ++retired_starts; }

  std::unique_ptr<device::host::Pool> pool;
  std::unique_ptr<device::Device> device;
  std::optional<Executor> executor;
  std::string refused;
  std::uint32_t retired_starts = 0;
  Graph graph;
};

// Goal:   a client that comes and goes faster than its work runs never finds its stream full, which would
//         end the job.
// Method: twenty lives of a rank with more kernels than fit on a lane, of the kind that takes most of a
//         stream (a sum with several parts), of which none runs meanwhile; then all do.
TEST(Executor, HasRoomForWhatTheGraphLaunchesOverManyLivesOfARank) {
  Streams streams;
  constexpr std::int64_t kElements = 300'000;
  std::vector<float> x(kElements, 1.0F);
  float out = 0;
  const kernels::Kernel* sum = kernels::find(MUSTER_KERNEL_SUM);
  ASSERT_NE(sum, nullptr);
  kernels::Args args;
  args.tensors[0] = kernels::Tensor{reinterpret_cast<std::byte*>(x.data()), MUSTER_F32, 1, {kElements}, {1}};
  args.tensors[1] = kernels::Tensor{reinterpret_cast<std::byte*>(&out), MUSTER_F32, 1, {1}, {1}};
  args.tensor_count = 2;
  args.reals[0] = 1;
  ASSERT_TRUE(kernels::validate(*sum, args).ok());
  kernels::make_room(*sum, args);
  ASSERT_GT(args.partials.size(), 1u);
  Plan plan{KernelWork{sum, args}, SessionId(), 0, 0, {}};
  const Rank rank(0);
  constexpr std::uint32_t kLives = 20;
  constexpr std::uint32_t kStarts = 12;
  for (std::uint32_t life = 0; life < kLives; ++life) {
    streams.graph.attached(rank);
    for (std::uint64_t value = 1; value <= kStarts; ++value)
      streams.graph.submit({rank, MUSTER_LANE_COPY, value, &plan, {}, Instant(1)}, Instant(0));
    if (life + 1 < kLives) streams.graph.detached(rank, "gone", Instant(0));
  }
  while (streams.pool->run_once() > 0 || !streams.executor->idle())
    streams.executor->poll(
        [&](const Finished& finished) { streams.graph.finished(finished.step_index, {}); });
  EXPECT_EQ(streams.refused, "");
  EXPECT_EQ(streams.retired_starts, kLives * kStarts);
  EXPECT_EQ(out, static_cast<float>(kElements));
  EXPECT_EQ(streams.graph.lanes_of(rank).lane(MUSTER_LANE_COPY).reached(), kStarts);
}

}  // namespace
}  // namespace muster::scheduler
