#include "daemon/engine/memory/rank_devices.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/manual_clock.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace muster::engine {
namespace {

using device::DeviceId;

constexpr std::array<DeviceId, 4> kTwoByTwo{{{.ordinal = 0}, {.ordinal = 1}, {.ordinal = 0}, {.ordinal = 1}}};

TEST(RankDevices, AreSharedByTheRanksThatNameOne) {
  const auto pool = device::Pool::open_manual({});
  const auto devices = RankDevices::open(World(4), kTwoByTwo, *pool, nullptr);
  ASSERT_TRUE(devices) << devices.error().text();
  for (std::uint32_t local = 0; local < 4; ++local) {
    EXPECT_EQ(devices->table()[LocalRank(local)], devices->table()[LocalRank(local % 2)]);
    EXPECT_EQ(devices->table()[LocalRank(local)]->info().ordinal, local % 2);
  }
  EXPECT_TRUE(devices->all(&device::Device::Info::node_memory));
  EXPECT_FALSE(devices->all(&device::Device::Info::stream_waits));
}

TEST(RankDevices, AreOneUnlessItIsSaidOtherwise) {
  const auto pool = device::Pool::open_manual({});
  const auto devices = RankDevices::open(World(3), {}, *pool, nullptr);
  ASSERT_TRUE(devices) << devices.error().text();
  for (const device::Device* device : devices->table()) EXPECT_EQ(device, &devices->first());
}

TEST(RankDevices, RefuseADeviceThatTheNodeDoesNotHave) {
  const auto pool = device::Pool::open_manual({});
  const std::array<DeviceId, 2> ids{{{}, {.ordinal = UINT32_MAX}}};
  EXPECT_EQ(RankDevices::open(World(2), ids, *pool, nullptr).error().code(), Code::kBadArgument);
}

// Goal:   a job whose ranks have two devices of one kind works as one of one device: buffers, kernels on
// each,
//         collectives over both, and one bound for all memory.
// Method: each rank fills a vector and sums it over all, twice, on other lanes.
TEST(RankDevices, CarryAJobOfTwoDevices) {
  constexpr std::uint32_t kWorld = 4;
  constexpr std::uint64_t kCount = 100'000;
  muster::test::ManualClock clock;
  auto engine = Engine::create(test::small_job(kWorld), clock, nullptr, Engine::Pooling::kByHand, nullptr, {},
                               kTwoByTwo);
  ASSERT_TRUE(engine) << engine.error().text();
  std::vector<std::unique_ptr<test::RingClient>> clients;
  std::vector<const std::byte*> targets(kWorld);
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    auto attached = (*engine)->attach(Rank(rank), 1);
    ASSERT_TRUE(attached) << attached.error().text();
    clients.push_back(std::make_unique<test::RingClient>(*attached->session));
    test::RingClient& client = *clients.back();
    const std::uint64_t source = client.buffer(**engine, kCount * sizeof(float));
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.dtype = MUSTER_F32;
    said.redop = MUSTER_SUM;
    said.group = Handle(0, 77).bits;
    said.count = kCount;
    said.source = {source, 0};
    said.target = {client.buffer(**engine, kCount * sizeof(float), &targets[rank]), 0};
    const auto sum = (*engine)->plans().collective(client.session(), said, {});
    const muster_kernel fill = muster_fill(muster_view1(source, 0, MUSTER_F32, kCount), rank + 1.0);
    const auto filled = (*engine)->plans().kernel(client.session(), fill);
    ASSERT_TRUE(sum && filled);
    client.start(filled->bits, MUSTER_LANE_COMPUTE);
    client.start(sum->bits, MUSTER_LANE_ALLREDUCE, client.latest_point(MUSTER_LANE_COMPUTE));
    client.start(sum->bits, MUSTER_LANE_SMALL, client.latest_point(MUSTER_LANE_ALLREDUCE));
  }
  while ((*engine)->run_once() > 0) {
  }
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(clients[rank]->latest(MUSTER_LANE_SMALL), Code::kOk);
    for (const std::uint64_t i : {std::uint64_t{0}, kCount - 1}) {
      float value = 0;
      std::memcpy(&value, targets[rank] + i * sizeof value, sizeof value);
      EXPECT_EQ(value, 10.0F) << "rank " << rank << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace muster::engine
