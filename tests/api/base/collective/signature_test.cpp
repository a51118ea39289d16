#include "api/base/collective/signature.hpp"

#include <deque>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using Counts = std::vector<std::uint64_t>;

Collective collective(muster_op op, std::uint64_t count = 0) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_F32;
  c.count = count;
  if (has_reduction(op)) c.redop = MUSTER_SUM;
  if (is_transfer(op)) c.receiver = 1;
  return c;
}

Signature sign(const Collective& c, std::int32_t index = 0, const Share::Counts& counts = {}) {
  return signature_of(c, *make_share(c, index, 4, counts), 4);
}

// The members of a group of four, whose world ranks are 10, 13, 16, 19.
class Members {
 public:
  Members& add(const Collective& c, const Share::Counts& counts = {}, std::string_view site = "") {
    const auto index = static_cast<std::int32_t>(parties_.size());
    collectives_.push_back(c);
    shares_.push_back(*make_share(c, index, 4, counts));
    parties_.push_back({10 + 3 * index, &collectives_.back(), &shares_.back(), site});
    return *this;
  }
  Members& add_missing() {
    parties_.push_back({10 + 3 * static_cast<std::int32_t>(parties_.size()), nullptr, nullptr, ""});
    return *this;
  }
  Share& share(std::size_t index) { return shares_[index]; }
  std::string difference() const { return muster::difference(parties_); }
  bool agree() const {
    Hash128 balance;
    bool common = true;
    for (const Party& party : parties_) {
      if (party.share == nullptr) continue;
      const Signature signature = signature_of(*party.collective, *party.share, 4);
      common = common && signature.common == signature_of(collectives_[0], shares_[0], 4).common;
      balance += signature.balance;
    }
    return common && balance.zero();
  }

 private:
  std::deque<Collective> collectives_;
  std::deque<Share> shares_;
  std::vector<Party> parties_;
};

void expect_difference(const Members& members, const std::string& text) {
  EXPECT_FALSE(members.agree()) << text;
  EXPECT_EQ(members.difference(), text);
}

TEST(Signature, IsOneForBothSidesOfAMessage) {
  Collective send = collective(MUSTER_SEND, 7);
  Collective receive = collective(MUSTER_RECV, 7);
  EXPECT_EQ(sign(send, 0), sign(receive, 1));
  receive.count = 8;
  EXPECT_NE(sign(send, 0).common, sign(receive, 1).common);
}

TEST(Signature, DiffersWithEveryFieldThatAllShare) {
  const Collective sum = collective(MUSTER_ALL_REDUCE, 7);
  const Signature whole = sign(sum);
  Collective other = sum;
  other.dtype = MUSTER_I32;
  EXPECT_NE(sign(other).common, whole.common);
  other = sum;
  other.redop = MUSTER_MAX;
  EXPECT_NE(sign(other).common, whole.common);
  other = sum;
  other.count = 8;
  EXPECT_NE(sign(other).common, whole.common);
  other.redop = MUSTER_PREMUL_SUM;
  Collective scaled = other;
  scaled.scale = 2.0;
  EXPECT_NE(sign(other).common, sign(scaled).common);
  Collective root = collective(MUSTER_BROADCAST, 7);
  const Signature from_0 = sign(root);
  root.root = 1;
  EXPECT_NE(sign(root).common, from_0.common);
  Collective uneven = collective(MUSTER_ALL_GATHER);
  uneven.counts = {1, 2, 3, 4};
  const Signature uneven_signature = sign(uneven);
  uneven.counts = {1, 2, 4, 3};
  EXPECT_NE(sign(uneven).common, uneven_signature.common);
  EXPECT_NE(sign(collective(MUSTER_ALL_GATHER, 7)).common, sign(collective(MUSTER_BROADCAST, 7)).common);
}

TEST(Signature, HasNoBalanceWhereAllAgreeOnAll) {
  EXPECT_TRUE(sign(collective(MUSTER_ALL_REDUCE, 7)).balance.zero());
  EXPECT_TRUE(sign(collective(MUSTER_ALL_GATHER, 7)).balance.zero());
  EXPECT_TRUE(sign(collective(MUSTER_BARRIER)).balance.zero());
  EXPECT_FALSE(sign(collective(MUSTER_SCATTER), 0, {.count = 7}).balance.zero());
  EXPECT_TRUE(sign(collective(MUSTER_SCATTER), 0, {.count = 0}).balance.zero())
      << "an empty block is no edge";
}

TEST(Difference, NamesTheManyFirstAndThenWhoIsAlone) {
  const Collective c = collective(MUSTER_ALL_REDUCE, 4096);
  const Collective other = collective(MUSTER_ALL_REDUCE, 4097);
  Members members;
  members.add(c, {}, "model.py:10").add(c).add(other, {}, "model.py:311").add(c);
  expect_difference(members,
                    "count: 4096 at ranks 10, 13, 19 (model.py:10) and 4097 at rank 16 (model.py:311)");
  Members pair;
  pair.add(c).add(other, {}, "b.py:2").add_missing().add_missing();
  expect_difference(pair, "count: 4096 at rank 10 and 4097 at rank 13 (b.py:2)");
  Members none;
  none.add(c, {}, "a.py:1").add(c, {}, "b.py:2").add(c).add(c);
  EXPECT_TRUE(none.agree());
  EXPECT_EQ(none.difference(), "") << "where it was called from is no difference";
}

TEST(Difference, SaysWhatToLookForWhereOnlyTheTagOfOneSiteDiffers) {
  Collective turn = collective(MUSTER_ALL_REDUCE, 4096);
  Collective other = turn;
  turn.tag = 1;
  other.tag = 0x9e3779b9;
  Members members;
  members.add(turn, {}, "block0").add(other, {}, "block0").add_missing();
  expect_difference(members,
                    "tag: 1 at rank 10 and 2654435769 at rank 13 (block0); they are at one site: a rank "
                    "has left a call out or made it twice, or other parameters of a unit are unused there");
  Members apart;
  apart.add(turn, {}, "block0").add(other, {}, "block1");
  expect_difference(apart, "tag: 1 at rank 10 (block0) and 2654435769 at rank 13 (block1)");
  Members nowhere;
  nowhere.add(turn).add(other);
  expect_difference(nowhere, "tag: 1 at rank 10 and 2654435769 at rank 13");
}

TEST(Difference, ShortensWhatNobodyReads) {
  Collective c = collective(MUSTER_ALL_REDUCE, 5);
  std::vector<Party> parties;
  const Share share = *make_share(c, 0, 4, {});
  for (std::int32_t rank = 0; rank < 9; ++rank) parties.push_back({rank, &c, &share, ""});
  std::deque<Collective> others;
  for (std::int32_t rank = 9; rank < 14; ++rank) {
    others.push_back(collective(MUSTER_ALL_REDUCE, static_cast<std::uint64_t>(rank)));
    parties.push_back({rank, &others.back(), &share, ""});
  }
  EXPECT_EQ(difference(parties),
            "count: 5 at ranks 0, 1, 2, 3, 4, 5 and 3 more, 9 at rank 9, 10 at rank 10 and 3 more values");
}

TEST(Difference, NamesEveryField) {
  const Collective c = collective(MUSTER_ALL_REDUCE, 7);
  const auto expect = [&](const Collective& a, const Collective& b, const std::string& text) {
    Members members;
    members.add(a).add(a).add(a).add(b);
    expect_difference(members, text);
  };
  expect(c, collective(MUSTER_ALL_GATHER, 7), "op: all_reduce at ranks 10, 13, 16 and all_gather at rank 19");
  expect(c, collective(MUSTER_BARRIER), "op: all_reduce at ranks 10, 13, 16 and barrier at rank 19");
  Collective other = c;
  other.dtype = MUSTER_BF16;
  expect(c, other, "dtype: f32 at ranks 10, 13, 16 and bf16 at rank 19");
  other = c;
  other.redop = MUSTER_MAX;
  expect(c, other, "redop: sum at ranks 10, 13, 16 and max at rank 19");
  Collective scaled = c;
  scaled.redop = MUSTER_PREMUL_SUM;
  other = scaled;
  other.scale = 0.5;
  expect(scaled, other, "scale: 1 at ranks 10, 13, 16 and 0.5 at rank 19");
  other.scale = -0.0;
  scaled.scale = 0.0;
  expect(scaled, other, "scale: 0 at ranks 10, 13, 16 and -0 at rank 19");
  Collective rooted = collective(MUSTER_BROADCAST, 7);
  other = rooted;
  other.root = 2;
  expect(rooted, other, "peer: 0 at ranks 10, 13, 16 and 2 at rank 19");
}

TEST(Difference, NamesTheBlockThatDiffers) {
  Collective c = collective(MUSTER_ALL_GATHER);
  c.counts = {1, 2, 3, 4};
  Collective other = c;
  other.counts[2] = 9;
  Members members;
  members.add(c).add(other, {}, "x.py:1").add(c).add(c);
  expect_difference(members, "counts[2]: 3 at ranks 10, 16, 19 and 9 at rank 13 (x.py:1)");
  Members even;
  even.add(c).add(collective(MUSTER_ALL_GATHER, 1)).add(c).add(c);
  expect_difference(even, "counts[1]: 2 at ranks 10, 16, 19 and 1 at rank 13");
}

// Goal:   blocks of one memory lie at one place for all; empty ones lie nowhere, and a list that says what no
//         list would is the same.
TEST(Difference, NamesTheSharedBlockThatLiesElsewhere) {
  Collective c = collective(MUSTER_ALL_GATHER);
  c.counts = {2, 0, 3, 4};
  c.shared_memory = 5;
  const Counts end_to_end{0, 77, 2, 5};
  const Counts moved{0, 0, 9, 5};
  Share::Counts said;
  said.target_offsets = end_to_end;
  Members alike;
  alike.add(c).add(c, said).add(c).add(c);
  EXPECT_TRUE(alike.agree());
  EXPECT_EQ(alike.difference(), "");
  said.target_offsets = moved;
  Members apart;
  apart.add(c).add(c).add(c, said, "x.py:1").add(c);
  expect_difference(apart, "target_blocks.offsets[2]: 2 at ranks 10, 13, 19 and 9 at rank 16 (x.py:1)");
  c.shared_memory = 0;
  Members own;
  own.add(c).add(c).add(c, said).add(c);
  EXPECT_TRUE(own.agree()) << "each in its own memory";
}

TEST(Difference, NamesThePairOfAGatherAndAScatter) {
  const Counts list{1, 2, 3, 4};
  Collective c = collective(MUSTER_GATHER);
  c.root = 1;
  Members gather;
  gather.add(c, {.count = 1})
      .add(c, {.count = 99, .target_counts = list}, "root.py:1")
      .add(c, {.count = 4}, "leaf.py:2")
      .add(c, {.count = 4});
  expect_difference(gather, "count from rank 16 to rank 13: 4 sent (leaf.py:2) and 3 expected (root.py:1)");
  c = collective(MUSTER_SCATTER);
  Members scatter;
  scatter.add(c, {.source_counts = list}).add(c, {.count = 2}).add(c, {.count = 3}).add(c, {.count = 0});
  expect_difference(scatter, "count from rank 10 to rank 19: 4 sent and none expected");
  Members absent;
  absent.add(c, {.source_counts = list}).add(c, {.count = 2}).add(c, {.count = 3}).add_missing();
  EXPECT_EQ(absent.difference(), "") << "who is not there does not differ";
}

TEST(Difference, NamesThePairOfAnAllToAll) {
  const Collective c = collective(MUSTER_ALL_TO_ALL);
  const Counts threes{3, 3, 3, 3};
  const Counts odd{3, 3, 5, 3};
  Members members;
  members.add(c, {.count = 3}).add(c, {.source_counts = odd, .target_counts = threes});
  members.add(c, {.count = 3}).add(c, {.count = 3});
  expect_difference(members, "count from rank 13 to rank 16: 5 sent and 3 expected");
  Members agreed;
  agreed.add(c, {.count = 3}).add(c, {.source_counts = odd, .target_counts = threes});
  agreed.add(c, {.source_counts = threes, .target_counts = {threes}}).add(c, {.count = 3});
  agreed.share(2).target_blocks[1].count = 5;
  EXPECT_TRUE(agreed.agree());
  EXPECT_EQ(agreed.difference(), "");
}

TEST(Difference, NamesTheEdgeOfAnExchange) {
  const Collective c = collective(MUSTER_EXCHANGE);
  Face face;
  face.dtype = MUSTER_F32;
  face.dims = 1;
  face.size[0] = 6;
  face.stride[0] = 1;
  Members members;
  members.add(c, {}, "a.py:1").add(c, {}, "b.py:2").add(c).add(c);
  face.peer = 1;
  face.tag = 7;
  members.share(0).sends = {face};
  expect_difference(members,
                    "count from rank 10 to rank 13 with tag 7: 6 sent (a.py:1) and none expected (b.py:2)");
  Face other = face;
  other.peer = 0;
  other.dtype = MUSTER_I32;
  members.share(1).receives = {other};
  expect_difference(members,
                    "dtype from rank 10 to rank 13 with tag 7: f32 sent (a.py:1) and i32 expected (b.py:2)");
  members.share(1).receives.clear();
  face.peer = 0;
  members.share(1).receives = {face};
  EXPECT_TRUE(members.agree());
  EXPECT_EQ(members.difference(), "");
  face.dims = 2;
  face.size = {2, 3};
  members.share(1).receives = {face};
  EXPECT_TRUE(members.agree()) << "shapes may differ";
  face.size = {2, 4};
  members.share(1).receives = {face};
  expect_difference(members,
                    "count from rank 10 to rank 13 with tag 7: 6 sent (a.py:1) and 8 expected (b.py:2)");
  face.size = {2, 0};
  members.share(1).receives = {face};
  members.share(0).sends.clear();
  expect_difference(members,
                    "count from rank 10 to rank 13 with tag 7: none sent (a.py:1) and 0 expected (b.py:2)");
}

}  // namespace
}  // namespace muster
