// Random histories of failures with real processes, in one warm job: ranks are killed and started again,
// stopped until the deadline, and abort their groups while the others wait for them, on both paths and four
// lanes, two of which ranks make; now and then those who are left go on in a smaller group. As many as
// MUSTER_PROPERTY_CASES says; MUSTER_HISTORY_SEED=N runs that one alone.
//
// Held: who waits hears of what happened, by its own words; every other failure is one of the history that
// the member has not heard of at that place; afterwards all operations are well, with right sums.
#include "tests/support/node.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/support/script.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace muster {
namespace {

using test::Ended;
using test::Script;

constexpr std::size_t kWorld = 4;
constexpr const char* kMesh = "dp_replicate=2,dp_shard=2";
constexpr int kPatienceMs = 20'000;
constexpr std::array kVerbs = {"run", "start", "copy", "near", "far"};
constexpr std::array kDims = {"world", "dp_shard", "dp_replicate"};
enum class Trouble { kKill, kStop, kAbort, kShrink };
constexpr std::array kTroubles = {Trouble::kKill,  Trouble::kKill, Trouble::kAbort,
                                  Trouble::kAbort, Trouble::kStop, Trouble::kShrink};  // a stop takes long

// Whether a rank is with another one in a group of that dim.
bool are_together(const std::string& dim, std::size_t a, std::size_t b) {
  return dim == "world" || (dim == "dp_shard" ? a / 2 == b / 2 : a % 2 == b % 2);
}

class ProcessHistories : public ::testing::Test {
 protected:
  void SetUp() override {
    node_.start();
    for (std::size_t rank = 0; rank < kWorld; ++rank) start(rank);
  }
  void start(std::size_t rank) {
    ranks_[rank] =
        std::make_unique<Script>(node_.endpoint(), static_cast<int>(rank), static_cast<int>(kWorld), kMesh,
                                 std::vector<std::string>{"listen"});
    EXPECT_EQ(ranks_[rank]->line(), "attached");
    std::erase_if(heard_, [&](const auto& each) { return std::get<0>(each.first) == rank; });
  }

  void history(std::uint64_t seed) {
    random_.seed(seed);
    happened_.clear();
    heard_.clear();
    for (std::uint64_t more = 1 + random_() % 3; more > 0 && !HasFailure(); --more) trouble();
    for (const char* verb : kVerbs)
      for (const char* dim : kDims) settle(fmt::format("{}:{}", verb, dim));
  }

  std::array<std::uint64_t, 4> troubles_{};

 private:
  using Ranks = std::set<std::size_t>;

  // All do the step until it is well at each of them.
  void settle(const std::string& step) {
    Ranks all;
    for (std::size_t rank = 0; rank < kWorld; ++rank) all.insert(rank), ranks_[rank]->tell(step);
    await(step, all);
  }

  // Until the step, which these have been told, is well at each of them.
  void await(const std::string& step, Ranks waiting) {
    for (int looks = 0; !waiting.empty() && !HasFailure(); ++looks) {
      ASSERT_LT(looks, kPatienceMs * 5) << step << ": somebody waits for ever";
      for (const std::size_t rank : Ranks(waiting)) {
        if (ranks_[rank]->silent_for(0)) continue;
        const Ended end = test::ended(ranks_[rank]->line());
        if (end.status == "MUSTER_OK") {
          waiting.erase(rank);
          continue;
        }
        expect_allowed(rank, step, end);
        again(rank, step);
        ranks_[rank]->tell(step);
      }
      usleep(200);
    }
  }
  // A start that has failed has stopped its lane, which goes on alone: the other one stays as it is.
  void again(std::size_t rank, const std::string& step) {
    if (step.starts_with("run")) return;
    ranks_[rank]->tell(step.starts_with("start") ? "reset" : "reset_" + step.substr(0, step.find(':')));
    EXPECT_EQ(test::ended(ranks_[rank]->line()).status, "MUSTER_OK");
  }
  void expect_allowed(std::size_t rank, const std::string& step, const Ended& end) {
    std::string cause;
    int times = 0;
    for (const auto& [words, status] : happened_)
      if (end.text.find(words) != std::string::npos && end.status == status) cause = words, ++times;
    ASSERT_NE(cause, "") << "rank " << rank << " at " << step << ": " << end.status << end.text;
    EXPECT_LE(++heard_[std::make_tuple(rank, step, cause)], times)
        << "rank " << rank << " at " << step << " hears again: " << end.text;
  }

  // ---- troubles ----------------------------------------------------------------------------------
  void trouble() {
    const Trouble what = kTroubles[random_() % kTroubles.size()];
    ++troubles_[static_cast<std::size_t>(what)];
    const std::string dim = what == Trouble::kShrink ? "world" : kDims[random_() % kDims.size()];
    const std::string step = fmt::format("{}:{}", kVerbs[random_() % kVerbs.size()], dim);
    const std::size_t victim = random_() % kWorld;
    settle(step);
    Ranks others;
    for (std::size_t rank = 0; rank < kWorld; ++rank)
      if (rank != victim) others.insert(rank), ranks_[rank]->tell(step);
    usleep(static_cast<useconds_t>(random_() % 3000));
    strike(what, dim, victim);
    Ranks failed;
    for (const std::size_t rank : others) {
      const Ended end = test::ended(ranks_[rank]->line());
      if (!are_together(dim, rank, victim)) {
        EXPECT_EQ(end.status, "MUSTER_OK") << end.text;
        continue;
      }
      EXPECT_NE(end.status, "MUSTER_OK") << "without rank " << victim;
      expect_allowed(rank, step, end);
      again(rank, step);
      failed.insert(rank);
    }
    if (HasFailure()) return;
    if (what == Trouble::kShrink) all_well({"shrink", "run:@", "start:@"}, victim);
    if (what == Trouble::kKill || what == Trouble::kShrink) start(victim);
    if (what == Trouble::kStop) ranks_[victim]->kill(SIGCONT);
    failed.insert(victim);
    for (const std::size_t rank : failed) ranks_[rank]->tell(step);
    await(step, failed);
    if (what != Trouble::kShrink) return;
    settle("run:world");
    all_well({"whole"}, kWorld);
  }
  void strike(Trouble what, const std::string& dim, std::size_t victim) {
    Script& rank = *ranks_[victim];
    switch (what) {
      case Trouble::kStop:
        happened_.emplace_back(fmt::format("rank {} is stopped", victim), "MUSTER_ERR_TIMEOUT");
        return rank.kill(SIGSTOP);
      case Trouble::kAbort:
        happened_.emplace_back(fmt::format("rank {} aborted group {}", victim, dim), "MUSTER_ERR_ABORTED");
        rank.tell("abort:" + dim);
        EXPECT_EQ(test::ended(rank.line()).status, "MUSTER_OK");
        return;
      default:
        happened_.emplace_back(fmt::format("rank {} (pid {}) died", victim, rank.pid()),
                               "MUSTER_ERR_PEER_LOST");
        rank.kill(SIGKILL);
    }
  }
  // Steps of all but one, none of which may fail.
  void all_well(std::initializer_list<const char*> steps, std::size_t without) {
    for (const char* step : steps) {
      for (std::size_t rank = 0; rank < kWorld; ++rank)
        if (rank != without) ranks_[rank]->tell(step);
      for (std::size_t rank = 0; rank < kWorld; ++rank) {
        if (rank == without) continue;
        const Ended end = test::ended(ranks_[rank]->line());
        EXPECT_EQ(end.status, "MUSTER_OK") << step << ": " << end.text;
      }
    }
  }

  test::Node node_;
  std::array<std::unique_ptr<Script>, kWorld> ranks_;
  std::mt19937_64 random_;
  std::vector<std::pair<std::string, std::string>> happened_;  // words of a cause, and its status
  std::map<std::tuple<std::size_t, std::string, std::string>, int> heard_;
};

TEST_F(ProcessHistories, EndWell) {
  const char* const only = std::getenv("MUSTER_HISTORY_SEED");
  const std::uint64_t last = only != nullptr ? std::stoull(only) : test::property_cases(40);
  for (std::uint64_t seed = only != nullptr ? last : 1; seed <= last && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("MUSTER_HISTORY_SEED={}", seed));
    history(seed);
  }
  fmt::print("{} killed, {} stopped, {} aborts, {} shrunk\n", troubles_[0], troubles_[1], troubles_[2],
             troubles_[3]);
}

}  // namespace
}  // namespace muster
