#include "api/base/collective/operations.hpp"

#include <functional>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Ops = std::set<muster_op>;

Ops those(const std::function<bool(muster_op)>& are) {
  Ops ops;
  for (muster_op op = 1; op <= kOperations; ++op)
    if (are(op)) ops.insert(op);
  return ops;
}

TEST(Operations, HaveEachARowAndAName) {
  std::set<std::string> names;
  for (muster_op op = 1; op <= kOperations; ++op) EXPECT_TRUE(names.insert(op_name(op)).second) << op;
  EXPECT_EQ(kOperations, MUSTER_EXCHANGE) << "the last of collectives.h";
  for (const muster_op none : {-1, 0, kOperations + 1}) {
    EXPECT_FALSE(is_operation(none));
    EXPECT_STREQ(op_name(none), "unknown_op");
    EXPECT_FALSE(has_root(none) || has_reduction(none) || is_transfer(none));
    EXPECT_TRUE(has_data(none)) << "or it would pass for a barrier";
  }
}

// Goal:   the properties derived from the columns agree with the operations in muster.h.
TEST(Operations, AreWhatTheHeaderSays) {
  EXPECT_EQ(those(is_transfer), (Ops{MUSTER_SEND, MUSTER_RECV}));
  EXPECT_EQ(those(has_root), (Ops{MUSTER_BROADCAST, MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER}));
  EXPECT_EQ(those(has_reduction), (Ops{MUSTER_ALL_REDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE}));
  EXPECT_EQ(those(reduces_vectors), (Ops{MUSTER_ALL_REDUCE, MUSTER_REDUCE}));
  EXPECT_EQ(those(has_agreed_blocks), (Ops{MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER}));
  EXPECT_EQ(those(is_pairwise), (Ops{MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE}));
  EXPECT_EQ(those(may_share_target), (Ops{MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_BROADCAST}));
  EXPECT_EQ(those(has_faces), Ops{MUSTER_EXCHANGE});
  EXPECT_EQ(those([](muster_op op) { return !has_vectors(op); }), (Ops{MUSTER_BARRIER, MUSTER_EXCHANGE}));
  EXPECT_EQ(those(gives_at_root), (Ops{MUSTER_BROADCAST, MUSTER_SCATTER, MUSTER_SEND, MUSTER_RECV}));
  EXPECT_EQ(those(gets_at_root), (Ops{MUSTER_REDUCE, MUSTER_GATHER}));
}

TEST(Operations, CutSourcesAndTargetsWhereTheHeaderSays) {
  for (const bool is_root : {false, true}) {
    const Ops sources = those([&](muster_op op) { return has_source_blocks(op, is_root); });
    const Ops targets = those([&](muster_op op) { return has_target_blocks(op, is_root); });
    Ops cut_sources{MUSTER_REDUCE_SCATTER, MUSTER_ALL_TO_ALL};
    Ops cut_targets{MUSTER_ALL_GATHER, MUSTER_ALL_TO_ALL};
    if (is_root) cut_sources.insert(MUSTER_SCATTER);
    if (is_root) cut_targets.insert(MUSTER_GATHER);
    EXPECT_EQ(sources, cut_sources);
    EXPECT_EQ(targets, cut_targets);
  }
}

}  // namespace
}  // namespace muster
