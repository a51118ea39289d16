#include "kernels/math/part.hpp"

#include "kernels/math/copy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

Collective collective(muster_op op, muster_redop redop) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_I32;
  c.redop = redop;
  c.root = has_root(op) ? 2 : 0;
  return c;
}

TEST(Part, ComesFromAllWhereSomethingIsReduced) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE}) {
    const Givers givers = givers_of(collective(op, MUSTER_SUM), 1, 4);
    EXPECT_EQ(givers.first, 0u) << op_name(op);
    EXPECT_EQ(givers.count, 4u) << op_name(op);
  }
}

TEST(Part, ComesFromTheRootOrFromTheMemberOfTheBlockElsewhere) {
  const auto giver = [](muster_op op) {
    const Givers givers = givers_of(collective(op, 0), 1, 4);
    EXPECT_EQ(givers.count, 1u) << op_name(op);
    return givers.first;
  };
  for (const muster_op op : {MUSTER_BROADCAST, MUSTER_SCATTER}) EXPECT_EQ(giver(op), 2u) << op_name(op);
  for (const muster_op op : {MUSTER_ALL_GATHER, MUSTER_GATHER, MUSTER_ALL_TO_ALL})
    EXPECT_EQ(giver(op), 1u) << op_name(op);
}

TEST(Part, IsReducedOrCopiedIntoEachTarget) {
  const std::array<std::int32_t, 3> one{1, 2, 3};
  const std::array<std::int32_t, 3> two{10, 20, 30};
  std::array<std::int32_t, 3> here{}, there{};
  const std::array sources{reinterpret_cast<const std::byte*>(one.data()),
                           reinterpret_cast<const std::byte*>(two.data())};
  const std::array targets{reinterpret_cast<std::byte*>(here.data()),
                           reinterpret_cast<std::byte*>(there.data())};
  carry_out(collective(MUSTER_ALL_REDUCE, MUSTER_SUM), sources, targets, 3, kNeverStream);
  EXPECT_EQ(here, (std::array<std::int32_t, 3>{11, 22, 33}));
  EXPECT_EQ(there, here);
  carry_out(collective(MUSTER_BROADCAST, 0), std::span(sources).first(1), targets, 2, kNeverStream);
  EXPECT_EQ(here, (std::array<std::int32_t, 3>{1, 2, 33}));
  EXPECT_EQ(there, here);
}

}  // namespace
}  // namespace muster::math
