#include "daemon/control/texts/node_snapshot.hpp"

#include "api/base/blame/blame.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::uint32_t kWorld = 4;

// A snapshot of ranks 2 and 3, with something in every field.
blame::Snapshot full() {
  blame::Snapshot s;
  s.job = "train";
  s.now = 100s;
  s.patience = 1s;
  s.ranks.resize(kWorld);
  blame::RankState& third = s.ranks[2];
  third.local = third.attached = third.was_attached = true;
  third.pid = 77;
  third.process = blame::RankState::Process::kFrozen;
  third.where = "/sys/fs/cgroup/x";
  third.heard = 98s;
  third.finished = blame::RankState::LastOperation{"tp", "barrier", Path::kDirect, 12, 97s};
  s.ranks[3].local = s.ranks[3].was_attached = true;  // it has left
  blame::Wait wait;
  wait.group = 5;
  wait.group_name = "world";
  wait.members = 4;
  wait.lane = "small";
  wait.number = 9;
  wait.operation = {"all_reduce", 4096, "bf16", "model.py:3"};
  wait.since = 95s;
  wait.arrived = {{2, 95s}};
  wait.missing = {{3, 0, "client timeline 1", "position 2 of lane halo"}};
  wait.operation.tag = 9;
  wait.difference = "count";
  wait.span = blame::SpanKey{~std::uint64_t{0}, 7, -1, -1, 0, 2, 3};
  wait.takes_part = {0, 1, 2, 3};
  s.waits = {wait};
  blame::Wait direct;
  direct.path = Path::kDirect;
  direct.members = 2;
  direct.since = 99s;
  direct.inside = {2};
  direct.awaiting = {3};
  s.waits.push_back(direct);
  s.queued = {{{8, 7, -1, -1, 0, 0, 0}, {3, {}, "x", "position 4 of lane small"}}};
  s.reached = {{8, 7, 0, 1, 4, 2, 2}};
  s.stragglers = {{3, 5, "world", 20ms, 1ms, 100}};
  return s;
}

Json sent(const Json& json) {
  return Json::from_cbor(Json::to_cbor(json));
}

// Goal:   the other side has the same facts, by ages.
TEST(NodeSnapshot, IsTheSameWhenItArrives) {
  const blame::Snapshot before = full();
  const Json json = sent(snapshot_json(before));
  auto after = snapshot_in(json, kWorld);
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->now, Instant(0));
  EXPECT_EQ(sent(snapshot_json(*after)), json);
  EXPECT_EQ(after->ranks[2].heard, Instant(-2s));
  EXPECT_EQ(after->waits[0].since, Instant(-5s));
  EXPECT_EQ(after->waits[0].span, before.waits[0].span);
  EXPECT_EQ(after->waits[0].operation.tag, 9U);
  EXPECT_FALSE(after->waits[1].operation.tag.has_value());
  EXPECT_EQ(after->waits[0].missing[0].stands, "position 2 of lane halo");
  EXPECT_EQ(after->queued[0].part.stands, "position 4 of lane small");
  EXPECT_EQ(after->waits[0].missing[0].behind, std::optional<std::size_t>(0));
  EXPECT_EQ(after->reached, before.reached);
  EXPECT_EQ(after->queued[0].place, before.queued[0].place);
  EXPECT_FALSE(after->ranks[0].local);
  // The verdict is the same too.
  after->job = before.job;
  EXPECT_EQ(blame::text_of(*after, blame::assess(*after)), blame::text_of(before, blame::assess(before)));
}

// Goal:   whatever a node sends in place of a field, it is refused by name, or harmless.
// Method: each field in turn is left out, and replaced by values of every type and range.
TEST(NodeSnapshot, RefusesWhatIsNotWellFormed) {
  const Json good = sent(snapshot_json(full()));
  const Json bad[] = {nullptr,       true, -2, 1.5, std::uint64_t{1} << 63, "text", Json::array({Json()}),
                      Json::object()};
  const Json flat = good.flatten();
  std::size_t refused = 0;
  for (const auto& [path, value] : flat.items()) {
    const Json::json_pointer at(path);
    for (const Json& other : bad) {
      Json changed = good;
      changed[at] = other;
      const auto read = snapshot_in(changed, kWorld);
      if (read) continue;
      ++refused;
      EXPECT_EQ(read.error().code(), Code::kProtocol);
      EXPECT_THAT(read.error().message(), HasSubstr("'")) << path;
    }
    if (at.back().find_first_not_of("0123456789") == std::string::npos) continue;  // of a list
    Json changed = good;
    changed[at.parent_pointer()].erase(at.back());
    const auto read = snapshot_in(changed, kWorld);
    const bool may_lack =
        at.back() == "behind" || at.back() == "heard_ns" || at == Json::json_pointer("/waits/0/tag");
    EXPECT_EQ(read.has_value(), may_lack) << path;
  }
  EXPECT_GT(refused, flat.size() * 5);
  for (const Json& other : bad) EXPECT_FALSE(snapshot_in(other, kWorld));
}

// Goal:   no rank beyond the job's is believed.
TEST(NodeSnapshot, RefusesRanksThatTheJobDoesNotHave) {
  const Json good = sent(snapshot_json(full()));
  for (const std::uint32_t world : {1u, 2u, 3u}) {
    const auto read = snapshot_in(good, world);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message(), HasSubstr("'rank'"));
  }
  Json changed = good;
  changed["waits"][0]["takes_part"][0] = kWorld;
  EXPECT_FALSE(snapshot_in(changed, kWorld));
}

}  // namespace
}  // namespace muster::control
