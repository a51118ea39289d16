// The direct path held to the suite that every communicator passes: same cases, same oracle.
#include "api/client/direct/operation.hpp"

#include "tests/api/client/direct/direct_world.hpp"
#include "tests/transport/communicator_conformance.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace muster::transport::test {
namespace {

using client::Outcome;
using client::test::DirectWorld;

// Brings a case's memory into an arena that every rank sees, runs it with a thread for each rank, and brings
// it back.
class DirectBench final : public Bench {
 public:
  explicit DirectBench(std::uint32_t cores) : cores_(cores) {}

  Status launch(const Collective& collective, std::int32_t ranks,
                std::span<const Share* const> shares) override {
    const Span span = span_of(shares, dtype_bytes(collective.dtype));
    DirectWorld& world = world_of(static_cast<std::uint32_t>(ranks), span.bytes);
    if (span.bytes > 0) std::memcpy(world.arena(), span.base, span.bytes);
    std::vector<std::thread> threads;
    std::vector<Outcome> outcomes(shares.size(), Outcome::kDone);
    for (std::size_t k = 0; k < shares.size(); ++k) {
      threads.emplace_back([&, k] {
        const Share mine = moved(*shares[k], span.base, world.arena());
        const auto rank = static_cast<std::uint32_t>(mine.index);
        const client::DirectPlan plan = world.plan(rank, seen_by(collective, mine.index), mine);
        EXPECT_EQ(plan.choice.path, Path::kDirect) << "only agreed here, and moved by an engine";
        outcomes[k] = world.run(rank, plan);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (span.bytes > 0) std::memcpy(span.base, world.arena(), span.bytes);
    for (const Outcome outcome : outcomes)
      if (outcome != Outcome::kDone) return failure(Code::kInternal, "outcome {}", static_cast<int>(outcome));
    return {};
  }
  Status finish() override { return {}; }
  // A thread for each rank and case; instruments make each many times as long.
#if defined(MUSTER_SANITIZED)
  std::uint64_t usual_cases() const override {
    return 500;
  }
#else
  std::uint64_t usual_cases() const override {
    return 1'500;
  }
#endif

 private:
  struct Span {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
  };

  // A transfer is a send to the one and a receive to the other.
  static Collective seen_by(const Collective& collective, std::int32_t index) {
    Collective what = collective;
    if (is_transfer(what.op)) what.op = index == what.root ? MUSTER_SEND : MUSTER_RECV;
    return what;
  }
  // All memory that the shares name, and what lies between.
  static Span span_of(std::span<const Share* const> shares, std::size_t element) {
    std::uintptr_t low = UINTPTR_MAX;
    std::uintptr_t high = 0;
    const auto add = [&](const std::byte* data, std::uint64_t bytes) {
      if (data == nullptr) return;
      low = std::min(low, reinterpret_cast<std::uintptr_t>(data));
      high = std::max(high, reinterpret_cast<std::uintptr_t>(data) + bytes);
    };
    for (const Share* share : shares) {
      add(share->source, extent_of(share->source_blocks) * element);
      add(share->target, extent_of(share->target_blocks) * element);
      for (const auto* faces : {&share->sends, &share->receives})
        for (const Face& face : *faces) add(face.data, extent_of_face(face) * element);
    }
    if (high == 0) return {};
    return {reinterpret_cast<std::byte*>(low), high - low};
  }
  static std::uint64_t extent_of_face(const Face& face) {
    std::uint64_t last = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
      if (face.size[d] == 0) return 0;
      last += static_cast<std::uint64_t>((face.size[d] - 1) * face.stride[d]);
    }
    return last + 1;
  }
  static Share moved(const Share& share, const std::byte* from, std::byte* to) {
    Share mine = share;
    const auto place = [&](const std::byte* data) { return data == nullptr ? nullptr : to + (data - from); };
    mine.source = place(share.source);
    mine.target = place(share.target);
    for (Face& face : mine.sends) face.data = place(face.data);
    for (Face& face : mine.receives) face.data = place(face.data);
    return mine;
  }

  DirectWorld& world_of(std::uint32_t ranks, std::uint64_t bytes) {
    auto& world = worlds_[ranks];
    if (world == nullptr || world->arena_bytes() < bytes)
      world =
          std::make_unique<DirectWorld>(ranks, std::max<std::uint64_t>(1 << 20, (bytes + 4095) / 4096 * 4096),
                                        Machine{cores_, ranks, true});
    return *world;
  }

  std::uint32_t cores_;
  std::map<std::uint32_t, std::unique_ptr<DirectWorld>> worlds_;
};

// Where ranks outnumber cores other contributions are copied, and other algorithms chosen.
INSTANTIATE_TEST_SUITE_P(
    Direct, CommunicatorConformance,
    ::testing::Values(BenchFactory{"Roomy", [] { return std::make_unique<DirectBench>(64); }},
                      BenchFactory{"Crowded", [] { return std::make_unique<DirectBench>(1); }}),
    bench_name);

}  // namespace
}  // namespace muster::transport::test
