#include "scheduler/run/executor.hpp"

#include "kernels/check.hpp"
#include "kernels/device/registry.hpp"
#include "kernels/table.hpp"
#include "scheduler/run/graph.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::scheduler {
namespace {

const Graph::Options kOptions = test::with_waits({1, 1024, 8});

// A graph of one rank whose launches go to an executor on streams that are as deep as the engine's.
class Streams final : public Graph::Actions {
 public:
  Streams() : graph(kOptions, {}, *this) {
    device::PoolOptions options;
    options.streams_max = kOptions.lanes;
    options.depth = Executor::kEntriesPerStep * kOptions.launch_depth;
    pool = device::Pool::open_manual(options);
    device = *device::open({}, *pool);
    executor.emplace(*Executor::open({{1, {device.get()}}, kOptions.lanes, kOptions.launch_depth}, {}));
  }
  void launch(std::uint32_t step_index, const Step& step) override {
    const Status status = executor->launch(step_index, step);
    if (!status.ok()) refused += status.text() + "\n";
  }
  void reached(Rank, std::uint32_t, std::uint64_t, const transport::MatchKey&) override {}
  void stopped(Rank, std::uint32_t, std::uint64_t, const Cause&) override {}
  void resumed(Rank, std::uint32_t, std::uint64_t) override {}
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool) override { ++retired_starts; }

  std::unique_ptr<device::Pool> pool;
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
  args.tensors = {{reinterpret_cast<std::byte*>(x.data()), MUSTER_F32, 1, {kElements}, {1}},
                  {reinterpret_cast<std::byte*>(&out), MUSTER_F32, 1, {1}, {1}}};
  args.ints = {0};
  args.reals = {1.0};
  ASSERT_TRUE(kernels::validate(*sum, args).ok());
  kernels::prepare(*sum, args);
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
    streams.executor->poll([&](const Executor::Finished& finished) {
      streams.graph.finished(finished.step_index, {}, finished.failure);
    });
  EXPECT_EQ(streams.refused, "");
  EXPECT_EQ(streams.retired_starts, kLives * kStarts);
  EXPECT_EQ(out, static_cast<float>(kElements));
  EXPECT_EQ(streams.graph.lanes()[rank].lane(MUSTER_LANE_COPY).reached(), kStarts);
}

// ---- steps that fail, and devices that break ---------------------------------------------------

// A device whose work ends when the test says, and that can break.
struct FakeDevice final : device::Device {
  struct FakeEvent final : device::Event {
    explicit FakeEvent(const FakeDevice& of) : device(of) {}
    bool query() const noexcept override { return recorded <= device.ended; }
    void synchronize() const override {}
    Instant began_at() const noexcept override { return {}; }
    Instant reached_at() const noexcept override { return {}; }
    const FakeDevice& device;
    std::uint32_t recorded = 0;
  };
  struct FakeStream final : device::Stream {
    explicit FakeStream(FakeDevice& of) : device(of) {}
    device::Kind kind() const noexcept override { return device::Kind::kCuda; }
    Status record(device::Event& event) override {
      static_cast<FakeEvent&>(event).recorded = ++device.recorded;
      return device.broken;
    }
    Status wait(const device::Event& event) override {
      waits.push_back(&event);
      return device.full;
    }
    Status synchronize() override { return {}; }
    Status health() const override { return device.broken; }
    FakeDevice& device;
    std::vector<const device::Event*> waits;
  };

  const device::Device::Info& info() const noexcept override { return kInfo; }
  Result<std::unique_ptr<device::Stream>> open_stream(device::Priority) override {
    return std::make_unique<FakeStream>(*this);
  }
  Result<std::unique_ptr<device::Event>> create_event() override {
    return std::make_unique<FakeEvent>(*this);
  }
  Result<std::unique_ptr<device::Memory>> allocate(std::size_t) override {
    return fail(Code::kUnsupported, "the fake device has streams and events, and no memory");
  }
  Result<std::unique_ptr<device::Memory>> import(int, std::uint64_t, std::uint64_t) override {
    return fail(Code::kUnsupported, "the fake device has streams and events, and no memory");
  }

  device::Device::Info kInfo;
  std::uint32_t recorded = 0;
  std::uint32_t ended = 0;
  Status broken;
  Status full;  // of its streams, at a wait
};

// Says what it is told to say at each launch, and remembers the latest.
struct FakeCommunicator final : transport::Communicator {
  std::int32_t ranks() const noexcept override { return 2; }
  Result<std::shared_ptr<transport::Communicator::Prepared>> prepare(
      const Collective&, std::span<const transport::LocalMember>) override {
    return std::make_shared<transport::Communicator::Prepared>();
  }
  Status launch(const std::shared_ptr<transport::Communicator::Prepared>&,
                std::span<const transport::LocalMember> members, const transport::MatchKey&, device::Priority,
                transport::StepOutcome& outcome) override {
    streams.clear();
    for (const auto& member : members) streams.push_back(member.stream);
    latest = &outcome;
    return says;
  }
  Status says;
  std::vector<device::Stream*> streams;
  transport::StepOutcome* latest = nullptr;
};

// Two ranks, each with a device of its own and nine lanes.
class FailingSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<transport::Communicator>> communicators;
    communicators.push_back(std::make_unique<FakeCommunicator>());
    backend = static_cast<FakeCommunicator*>(communicators.front().get());
    executor.emplace(*Executor::open({{2, {&devices[0], &devices[1]}}, 9, 2}, std::move(communicators)));
    for (std::uint32_t i = 0; i < 2; ++i) {
      CollectiveWork work;
      work.collective.op = MUSTER_BARRIER;
      work.share.index = static_cast<std::int32_t>(i);
      plans.push_back(std::make_unique<Plan>(Plan{work, SessionId(), 0, 0, {}}));
      step.parts.push_back({Rank(i), 8, 1, plans.back().get(), {}});
    }
  }
  // The texts of the steps that have finished; "" of one that went well.
  std::vector<std::string> poll() {
    std::vector<std::string> texts;
    executor->poll([&](const Executor::Finished& finished) {
      texts.push_back(finished.failure != nullptr ? finished.failure->message() : "");
    });
    return texts;
  }

  std::array<FakeDevice, 2> devices;
  FakeCommunicator* backend = nullptr;
  std::optional<Executor> executor;
  std::vector<std::unique_ptr<Plan>> plans;
  Step step;
};

TEST_F(FailingSteps, GiveEachMemberTheStreamOfItsOwnDevice) {
  ASSERT_TRUE(executor->launch(0, step).ok());
  ASSERT_EQ(backend->streams.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(&static_cast<FakeDevice::FakeStream*>(backend->streams[i])->device, &devices[i]);
  EXPECT_TRUE(poll().empty());
  devices[0].ended = 1;
  EXPECT_EQ(poll(), std::vector<std::string>{""}) << "the first member's stream ends the step";
}

// Goal:   a launch that fails ends its step alone, and only once what of it may run is over.
TEST_F(FailingSteps, EndLikeOthersWhenTheirLaunchFails) {
  backend->says = Status(Code::kNoResource, "no memory");
  ASSERT_TRUE(executor->launch(0, step).ok());
  backend->says = Status();
  ASSERT_TRUE(executor->launch(1, step).ok());
  EXPECT_TRUE(poll().empty());
  devices[0].ended = 2;
  EXPECT_EQ(poll(), (std::vector<std::string>{"no memory", ""}));
}

TEST_F(FailingSteps, TellWhatFailedAfterTheLaunch) {
  ASSERT_TRUE(executor->launch(0, step).ok());
  backend->latest->fail(Status(Code::kPeerLost, "the link broke"));
  devices[0].ended = 1;
  EXPECT_EQ(poll(), std::vector<std::string>{"the link broke"});
  ASSERT_TRUE(executor->launch(0, step).ok()) << "the same place in the table";
  devices[0].ended = 2;
  EXPECT_EQ(poll(), std::vector<std::string>{""});
}

// ---- steps that are launched behind others -----------------------------------------------------

// Goal:   the stream of the member that waits, and the first one, where a backend may run all of it.
TEST_F(FailingSteps, MakeStreamsWaitForTheStepsBeforeThem) {
  step.number = 1;
  ASSERT_TRUE(executor->launch(0, step).ok());
  Step behind = step;
  for (Step::Part& part : behind.parts) part.lane = 7;
  behind.number = 2;
  behind.after = {{1, 0, 1}};
  ASSERT_TRUE(executor->launch(1, behind).ok());
  ASSERT_EQ(backend->streams.size(), 2u);
  for (device::Stream* stream : backend->streams)
    EXPECT_EQ(static_cast<FakeDevice::FakeStream*>(stream)->waits.size(), 1u);
}

// Goal:   no step is told before those that it was launched behind, of which one may go on outside.
TEST_F(FailingSteps, AreToldAfterTheStepsBeforeThem) {
  step.number = 1;
  ASSERT_TRUE(executor->launch(0, step).ok());
  backend->latest->hold();
  transport::StepOutcome* const first = backend->latest;
  Step behind = step;
  for (Step::Part& part : behind.parts) part.lane = 7;
  behind.number = 2;
  behind.after = {{0, 0, 1}};
  ASSERT_TRUE(executor->launch(1, behind).ok());
  devices[0].ended = 2;
  EXPECT_TRUE(poll().empty());
  first->fail(Status(Code::kPeerLost, "the link broke"));
  first->release(Instant(1));
  EXPECT_EQ(poll(), (std::vector<std::string>{"the link broke", ""}));
  step.number = 3;
  ASSERT_TRUE(executor->launch(0, step).ok()) << "the same place in the table";
  behind.number = 4;
  ASSERT_TRUE(executor->launch(1, behind).ok()) << "behind the step that was there before";
  devices[0].ended = 4;
  EXPECT_EQ(poll().size(), 2u);
}

TEST_F(FailingSteps, RunNothingWhereAStreamCannotWait) {
  step.number = 1;
  ASSERT_TRUE(executor->launch(0, step).ok());
  devices[0].full = Status(Code::kBusy, "the stream is full");
  Step behind = step;
  behind.number = 2;
  behind.after = {{0, 0, 1}};
  backend->streams.clear();
  ASSERT_TRUE(executor->launch(1, behind).ok());
  EXPECT_TRUE(backend->streams.empty());
  devices[0].ended = 2;
  EXPECT_EQ(poll(), (std::vector<std::string>{"", "the stream is full"}));
}

// Goal:   the executor reports a device that breaks as a whole, because no step does.
TEST_F(FailingSteps, AreNotBlamedForADeviceThatBreaks) {
  EXPECT_TRUE(executor->health().ok());
  ASSERT_TRUE(executor->launch(0, step).ok());
  devices[1].broken = Status(Code::kDevice, "fell off the bus");
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(executor->health().message(), "fell off the bus");
  backend->says = Status(Code::kDevice, "launch failed");
  EXPECT_EQ(executor->launch(1, step).message(), "fell off the bus");
}

}  // namespace
}  // namespace muster::scheduler
