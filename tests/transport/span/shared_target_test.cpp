// Targets that are node-shared, of a group whose members are on several nodes: each node gets one result.
#include "api/base/collective/signature.hpp"

#include "tests/support/property_cases.hpp"
#include "tests/transport/conformance_rows.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/oracle.hpp"
#include "tests/transport/same_bytes.hpp"
#include "tests/transport/span/span_cluster.hpp"
#include "tests/transport/span/span_flight.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint32_t kSharingNodes = 3;
constexpr std::int32_t kSharers = 7;  // three on the first node, and two on each of the others
constexpr std::uint64_t kSharingGroup = 7;

std::uint32_t sharer_turns(std::uint32_t member, std::uint32_t) {
  return member % kSharingNodes;
}

struct SharingSetting {
  const char* name;
  bool reproducible;
  std::size_t direct_from_bytes;
};

class SharedTargets : public ::testing::TestWithParam<SharingSetting> {
 protected:
  SharedTargets() {
    const NetworkOpener networks = [this](std::uint32_t count) {
      std::vector<std::unique_ptr<Network>> all;
      for (std::uint32_t n = 0; n < count; ++n) all.push_back(hub_.open(NodeIndex(n)));
      return all;
    };
    cluster_ = std::make_unique<SpanCluster>(kSharingNodes, networks, GetParam().reproducible,
                                             GetParam().direct_from_bytes);
    communicators_ = cluster_->open(cluster_->span_of(kSharingGroup, kSharers, sharer_turns));
  }

  // An operation whose target may be shared: any length, uneven blocks, blocks in pieces, in place or not.
  Shape drawn(std::uint64_t seed) const {
    Random random(seed);
    const muster_op ops[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_BROADCAST};
    const muster_op op = ops[seed % std::size(ops)];
    const auto redops = redops_of(op);
    const Place place = op == MUSTER_ALL_REDUCE || random.below(2) == 0 ? Place::kApart : Place::kInPlace;
    const std::uint64_t count = random.below(6) == 0 ? random.below(60'000) : random.below(400);
    const auto dtype = math::test::kDtypes[random.below(std::size(math::test::kDtypes))];
    const auto shape_at = has_agreed_blocks(op) && random.below(2) == 0 ? long_shape : shape_of;
    Shape shape =
        varied(shape_at(op, dtype, redops[random.below(redops.size())], kSharers, count, place), seed);
    shape.scattered = false;
    shape.collective.shared_memory = 9;
    shape.collective.shared_offset = 64 * random.below(4);
    return GetParam().reproducible ? shape : added_exactly(std::move(shape));
  }

  // The members of a node name the target of its first one.
  static Case in_one_memory(const Shape& shape) {
    Case made = make_case(shape);
    const auto lengths = block_lengths(shape.collective, kSharers);
    for (Placement& member : made.members) {
      const Placement& lead = made.members[static_cast<std::size_t>(member.index) % kSharingNodes];
      const std::size_t target = std::exchange(member.target, lead.target);
      const bool is_gather = shape.collective.op == MUSTER_ALL_GATHER;
      const bool gives = is_gather ? lengths[static_cast<std::size_t>(member.index)] > 0
                                   : member.index == shape.collective.root;
      if (shape.in_place(member.index) && gives) member.source = member.source - target + lead.target;
    }
    made.after =
        oracle(shape.collective, kSharers, made.members, made.before, dtype_bytes(shape.collective.dtype));
    return made;
  }

  // Each member names another target than the one that is written: that of the node's first member.
  static Case written_once(const Shape& shape) {
    Case made = make_case(shape);
    const std::size_t bytes = made.before.size();
    std::vector<Placement> members = made.members;
    for (Placement& member : members)
      if (member.index >= static_cast<std::int32_t>(kSharingNodes)) member.target += bytes;
    std::vector<std::byte> before = made.before;
    before.resize(2 * bytes);
    made.after = oracle(shape.collective, kSharers, members, before, dtype_bytes(shape.collective.dtype));
    made.after.resize(bytes);
    return made;
  }

  void run(const Shape& shape, Case made) {
    SpanFlight flight;
    launch_on_all(flight, shape, std::move(made), sharer_turns, communicators_, next(),
                  [&](std::uint32_t) { return shape.collective; });
    ASSERT_TRUE(cluster_->until([&] { return flight.over(); })) << shape.text();
    ASSERT_TRUE(flight.launched.first_failure().ok()) << flight.launched.first_failure().text();
    ASSERT_TRUE(same_bytes(flight.arena, flight.made.after)) << shape.text();
  }
  MatchKey next() { return {{kSharingGroup, 3, -1, -1}, 1, ++number_}; }

  MemoryHub hub_{MemoryFaults{
      .seed = 5, .delay_percent = 30, .reorder_percent = 30, .late_percent = 20, .refuse_percent = 5}};
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::uint64_t number_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Spanning, SharedTargets,
                         ::testing::Values(SharingSetting{"Reproducible", true, SIZE_MAX},
                                           SharingSetting{"CombinedOnNodes", false, SIZE_MAX},
                                           SharingSetting{"FromAndToMembers", false, 1}),
                         [](const auto& of) { return std::string(of.param.name); });

// Goal:   all members of a node find the oracle's result in the one memory that they name.
TEST_P(SharedTargets, HaveTheResultOfTheOracle) {
  const std::uint64_t cases = muster::test::property_cases(150);
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    const Shape shape = drawn(seed);
    run(shape, in_one_memory(shape));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Goal:   a node writes its result once, not once for each of its members.
// Method: the members say that they share a target, and yet each has its own. One of a node is written.
TEST_P(SharedTargets, AreWrittenOnceOnEachNode) {
  const std::uint64_t cases = muster::test::property_cases(75);
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    Shape shape = drawn(seed);
    shape.place = Place::kApart;
    run(shape, written_once(shape));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Goal:   nodes that do not mean the same target all hear so by its place, and none is written.
TEST_P(SharedTargets, AreLeftAloneWhereNodesMeanOthers) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Shape shape = drawn(seed);
    Collective other = shape.collective;
    if (seed % 2 == 0)
      other.shared_memory = 0;
    else
      other.shared_offset += 64;
    SpanFlight flight;
    const auto odd = static_cast<std::uint32_t>(seed % kSharingNodes);
    launch_on_all(flight, shape, in_one_memory(shape), sharer_turns, communicators_, next(),
                  [&](std::uint32_t node) { return node == odd ? other : shape.collective; });
    ASSERT_TRUE(cluster_->until([&] { return flight.over(); })) << shape.text();
    for (const auto& outcome : flight.launched.outcomes) {
      ASSERT_NE(outcome->failure(), nullptr) << shape.text();
      EXPECT_EQ(outcome->failure()->code(), Code::kMismatch);
      EXPECT_THAT(
          outcome->failure()->message(),
          ::testing::AllOf(::testing::HasSubstr("target: "),
                           ::testing::HasSubstr(target_text(9, shape.collective.shared_offset)),
                           ::testing::HasSubstr(target_text(other.shared_memory, other.shared_offset)),
                           ::testing::HasSubstr("on node n" + std::to_string(odd))));
    }
    ASSERT_TRUE(same_bytes(flight.arena, flight.made.before)) << "seed " << seed << " has written";
  }
}

}  // namespace
}  // namespace muster::transport::test
