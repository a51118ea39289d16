// The members of a group notice any difference before a byte moves (decision D7). The tests change one field
// of one rank in random operations, and the verdict must name it.
#include "scheduler/run/match_queue.hpp"

#include "tests/kernels/math/values.hpp"
#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"

#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using math::test::Random;
using test::Stage;
using ::testing::HasSubstr;
using transport::test::Placement;
using transport::test::Shape;

constexpr std::uint32_t kWorld = 9;  // as many as random_shape() draws
constexpr std::uint32_t kRankStep = 4;
std::byte g_arena[1 << 20];  // where members have their data; nothing is read or written there

// One member's description of an operation. Its world rank is not its index in the group.
struct Saying {
  Collective collective;
  Share share;
};

// The descriptions of a shape by each of its members. The two ends of a transfer describe SEND and RECV.
std::vector<Saying> sayings_of(const Shape& shape) {
  std::vector<Saying> said;
  for (const Placement& placement : transport::test::placements_of(shape)) {
    Collective collective = shape.collective;
    if (is_transfer(collective.op))
      collective.op = placement.index == collective.root ? MUSTER_SEND : MUSTER_RECV;
    Share share = *make_share(collective, placement.index, shape.ranks, transport::test::said_by(placement));
    const auto face = [&](const auto& place) {
      return transport::test::face_of(place, collective.dtype, g_arena);
    };
    for (const auto& place : placement.sends) share.sends.push_back(face(place));
    for (const auto& place : placement.receives) share.receives.push_back(face(place));
    said.push_back({std::move(collective), std::move(share)});
  }
  return said;
}

// A change: the changed member, and the word that the verdict must contain.
struct Change {
  std::size_t member = 0;
  std::string field;
  bool alone = true;  // the member differs from all others, not just from the other end of an edge
};

// Changes one of the fields that all must share. False if the operation does not have it.
bool change_common(Random& random, std::uint64_t which, Saying& said, std::int32_t ranks,
                   std::string& field) {
  Collective& c = said.collective;
  switch (which) {
    case 0:
      if (is_transfer(c.op)) return false;  // it would wait for others, not for its partner
      field = "op:";
      c.op = c.op == MUSTER_BROADCAST ? MUSTER_REDUCE : MUSTER_BROADCAST;
      return true;
    case 1: {
      field = "dtype:";
      const muster_dtype before = c.dtype;
      while (c.dtype == before) c.dtype = math::test::kDtypes[random.below(std::size(math::test::kDtypes))];
      return c.op != MUSTER_BARRIER;
    }
    case 2:
      field = "redop:";
      c.redop = c.redop % MUSTER_PREMUL_SUM + 1;
      return has_reduction(c.op);
    case 3:
      field = "scale:";
      c.scale += 1.0;
      return c.redop == MUSTER_PREMUL_SUM;
    case 4:
      field = "peer:";
      c.root = (c.root + 1) % ranks;
      return has_root(c.op) && ranks > 1;
    case 5:
      field = "count:";
      c.count += 1 + random.below(3);
      return c.counts.empty() && !is_pairwise(c.op) && c.op != MUSTER_BARRIER;
    default: {
      if (c.counts.empty()) return false;
      const std::size_t block = random.below(c.counts.size());
      field = "counts[" + std::to_string(block) + "]:";
      c.counts[block] += 1 + random.below(3);
      return true;
    }
  }
}

// Changes what one end of an edge says. False if the member has none of the kind.
bool change_edge(Random& random, std::uint64_t which, Saying& said, std::string& field) {
  field = "count from rank";
  Share& share = said.share;
  if (said.collective.op != MUSTER_EXCHANGE) {
    auto& blocks = which % 2 == 0 ? share.source_blocks : share.target_blocks;
    if (blocks.empty()) return false;
    const std::size_t block = random.below(blocks.size());
    const bool rooted = has_root(said.collective.op);
    const auto root = static_cast<std::size_t>(said.collective.root);
    // The root's own block has one owner, who cannot differ from itself.
    if (rooted && share.index == said.collective.root && (blocks.size() == 1 || block == root)) return false;
    blocks[block].count += 1 + random.below(3);
    return true;
  }
  auto& faces = which % 2 == 0 ? share.sends : share.receives;
  if (which / 2 == 0) {  // one edge more
    faces.push_back(Face{MUSTER_F32, 0, 1000, 0, {}, {}, nullptr});
    return true;
  }
  if (faces.empty()) return false;
  const std::size_t i = random.below(faces.size());
  switch (which / 2) {
    case 1:
      faces.erase(faces.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    case 2:
      faces[i].tag += 1000;
      return true;
    default: {
      const std::uint64_t count = faces[i].count();
      faces[i].dims = 1;
      faces[i].size[0] = static_cast<std::int64_t>(count) + 1;
      return true;
    }
  }
}

// Some change to some member that the operation makes possible; none where a member is alone and has no
// edge to itself.
std::optional<Change> change_one(Random& random, std::vector<Saying>& said, std::int32_t ranks) {
  const muster_op op = said[0].collective.op;
  const bool self_edges = op == MUSTER_ALL_TO_ALL || op == MUSTER_EXCHANGE;
  if (ranks == 1 && !self_edges) return std::nullopt;
  for (;;) {
    Change change;
    change.member = random.below(said.size());
    Saying changed = said[change.member];
    const bool pairwise = ranks == 1 || (is_pairwise(op) && random.below(2) == 0);
    const bool done = pairwise ? change_edge(random, random.below(8), changed, change.field)
                               : change_common(random, random.below(7), changed, ranks, change.field);
    if (!done) continue;
    change.alone = !pairwise;
    said[change.member] = std::move(changed);
    return change;
  }
}

// One group of `ranks` members with every kRankStep-th world rank, and its members' plans on a stage.
class Scene {
 public:
  explicit Scene(std::int32_t ranks)
      : stage_({kWorld * kRankStep, 16, 2}, {group_of(ranks)}), ranks_(ranks) {}

  static Group group_of(std::int32_t ranks) {
    Group group{"pair", {}};
    for (std::int32_t i = 0; i < ranks; ++i) group.ranks.push_back(rank_of(i));
    return group;
  }
  static Rank rank_of(std::int32_t index) { return Rank(static_cast<std::uint32_t>(index) * kRankStep + 1); }

  void start(const std::vector<Saying>& said) {
    for (const Saying& saying : said) {
      CollectiveWork work;
      work.group = GroupId(0);
      work.collective = saying.collective;
      work.share = saying.share;
      work.signature = signature_of(saying.collective, saying.share, ranks_);
      work.neighbours = face_balances(saying.share);
      work.site = "x.py:" + std::to_string(saying.share.index);
      plans_.push_back(std::make_unique<Plan>(Plan{std::move(work), SessionId(), 0, 0, {}}));
      stage_.start(rank_of(saying.share.index).value, MUSTER_LANE_COPY, plans_.back().get());
    }
  }
  Stage& stage() { return stage_; }
  const Cause& verdict(const Saying& said) const {
    return stage_.stops.at({rank_of(said.share.index).value, MUSTER_LANE_COPY}).verdict;
  }

 private:
  std::vector<std::unique_ptr<Plan>> plans_;
  Stage stage_;
  std::int32_t ranks_;
};

// Goal:   members that mean the same thing are never refused.
TEST(Agreement, LetsEverybodyGoWhoMeansTheSame) {
  const std::uint64_t last = muster::test::property_cases(3000);
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    const Shape shape = transport::test::random_shape(seed);
    Scene scene(shape.ranks);
    scene.start(sayings_of(shape));
    ASSERT_TRUE(scene.stage().stops.empty()) << scene.stage().stops.begin()->second.verdict.text << "\n"
                                             << shape.text();
    if (shape.collective.op != MUSTER_EXCHANGE) ASSERT_EQ(scene.stage().launched.size(), 1u) << shape.text();
    scene.stage().finish_all();
    ASSERT_EQ(scene.stage().retired_well, is_transfer(shape.collective.op) ? 2 : shape.ranks) << shape.text();
  }
}

// An EXCHANGE waits for neighbours alone. So a difference between two is noticed when they meet, and others
// may have gone on. If it is one from all, those without faces with that member need not notice it.
void expect_noticed(Scene& scene, const Change& change, std::uint32_t members, std::uint32_t rank) {
  Stage& stage = scene.stage();
  stage.finish_all();
  if (stage.stops.empty()) {
    ASSERT_TRUE(change.alone);
    ASSERT_EQ(stage.retired_well, members);
    return;
  }
  ASSERT_EQ(stage.retired_well + stage.stops.size(), members);
  for (const auto& [lane, stop] : stage.stops) {
    ASSERT_EQ(stop.verdict.code, Code::kMismatch);
    ASSERT_THAT(stop.verdict.text,
                ::testing::AnyOf(HasSubstr(change.field), HasSubstr("ended this exchange without"),
                                 HasSubstr("met at an exchange")));
    ASSERT_THAT(stop.verdict.text, HasSubstr("no data was moved"));
    ASSERT_THAT(stop.verdict.text,
                ::testing::ContainsRegex("(rank|ranks|,) " + std::to_string(rank) + "[^0-9]"));
  }
}

// Goal:   one field changed at one member is noticed by all, named with its rank and its call site, and
//         nothing is launched.
TEST(Agreement, NamesTheFieldThatOneMemberHasOtherwise) {
  const std::uint64_t last = muster::test::property_cases(3000);
  std::uint64_t changed = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    const Shape shape = transport::test::random_shape(seed);
    Random random(seed * 7 + 1);
    std::vector<Saying> said = sayings_of(shape);
    const std::optional<Change> made = change_one(random, said, shape.ranks);
    if (!made) continue;
    const Change& change = *made;
    ++changed;
    const auto rank = Scene::rank_of(said[change.member].share.index).value;
    Scene scene(shape.ranks);
    scene.start(said);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", changed " + change.field + " at member " +
                 std::to_string(said[change.member].share.index) + ": " + shape.text());
    if (shape.collective.op == MUSTER_EXCHANGE) {
      expect_noticed(scene, change, static_cast<std::uint32_t>(said.size()), rank);
      continue;
    }
    ASSERT_TRUE(scene.stage().launched.empty());
    ASSERT_EQ(scene.stage().stops.size(), said.size());
    const std::string& text = scene.verdict(said[0]).text;
    for (const Saying& saying : said) {
      ASSERT_EQ(scene.verdict(saying).code, Code::kMismatch);
      ASSERT_EQ(scene.verdict(saying).text, text);
      ASSERT_EQ(scene.verdict(saying).culprit, -1) << "whose word is right is not known";
    }
    ASSERT_THAT(text, HasSubstr(change.field));
    ASSERT_THAT(text, HasSubstr("no data was moved"));
    ASSERT_THAT(text, ::testing::ContainsRegex("(rank|ranks|,) " + std::to_string(rank) + "[^0-9]"));
    if (!change.alone || said.size() < 3) continue;
    ASSERT_THAT(text, HasSubstr("at rank " + std::to_string(rank) +
                                " (x.py:" + std::to_string(said[change.member].share.index) + ")"));
  }
  EXPECT_GT(changed, last / 2);
}

}  // namespace
}  // namespace muster::scheduler
