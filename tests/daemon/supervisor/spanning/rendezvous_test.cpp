#include "daemon/supervisor/spanning/rendezvous.hpp"

#include "daemon/control/job.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using control::Json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Instant kLate{100s};

// Nodes, and letters that are under way between them: in order from one to another, whatever others do.
class Several {
 public:
  explicit Several(std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) {
      rosters_.emplace_back().here = name(n);
      for (std::size_t m = 0; m < count; ++m) rosters_.back().members.push_back({name(m), {}});
    }
    for (std::size_t n = 0; n < count; ++n) nodes_.push_back(std::make_unique<Rendezvous>(rosters_[n]));
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t m = 0; m < n; ++m) join(n, m);
  }
  static std::string name(std::size_t n) { return std::string(1, static_cast<char>('a' + n)); }
  static std::size_t index_of(const std::string& name) { return static_cast<std::size_t>(name[0] - 'a'); }

  void join(std::size_t n, std::size_t m) {
    nodes_[n]->on_up(name(m));
    nodes_[m]->on_up(name(n));
  }
  // Messages that are under way are lost.
  void part(std::size_t n, std::size_t m) {
    collect();
    under_way_[{n, m}].clear();
    under_way_[{m, n}].clear();
    nodes_[n]->on_down(name(m));
    nodes_[m]->on_down(name(n));
  }
  Status come(std::size_t n, std::uint32_t rank, std::uint32_t world, const std::string& mesh = "",
              const std::string& of = "7") {
    Rendezvous::Rank wanted;
    wanted.ticket = ++tickets_;
    wanted.job = {of, "train"};
    wanted.rank = rank;
    wanted.world = world;
    wanted.mesh = mesh;
    wanted.pid = 1000 + static_cast<std::int32_t>(rank);
    wanted.until = kLate;
    const Status come = nodes_[n]->come(wanted);
    if (come.ok()) waiting_[wanted.ticket] = {n, rank};
    return come;
  }
  void leave(std::uint64_t ticket) {
    nodes_[waiting_.at(ticket).first]->leave(ticket);
    waiting_.erase(ticket);
  }
  // Notes what the nodes have decided, and sends their letters off.
  void collect() {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      Rendezvous::Orders orders = nodes_[n]->take();
      for (auto& message_to : orders.outgoing) {
        sent_.push_back(message_to);
        under_way_[{n, index_of(message_to.peer)}].push_back(std::move(message_to.message));
      }
      for (auto& placement : orders.jobs) made_.emplace_back(n, std::move(placement));
      for (auto& refusal : orders.refusals) {
        EXPECT_EQ(waiting_.erase(refusal.ticket), 1u) << "nobody waits with that ticket";
        refused_.push_back(std::move(refusal.why));
      }
    }
  }
  // False: none is under way.
  bool deliver_one(std::mt19937_64& random) {
    collect();
    std::vector<std::pair<std::size_t, std::size_t>> ways;
    for (const auto& [way, outgoing] : under_way_)
      if (!outgoing.empty()) ways.push_back(way);
    if (ways.empty()) return false;
    const auto [from, to] = ways[random() % ways.size()];
    const Json message = under_way_[{from, to}].front();
    under_way_[{from, to}].pop_front();
    EXPECT_TRUE(nodes_[to]->heard(name(from), message).ok()) << message.dump();
    return true;
  }
  void deliver_all(std::uint64_t seed = 1) {
    for (std::mt19937_64 random(seed); deliver_one(random);) {
    }
  }
  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    for (const Status& why : refused_) all.push_back(why.text());
    return all;
  }

  std::deque<Roster> rosters_;
  std::vector<std::unique_ptr<Rendezvous>> nodes_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Json>> under_way_;
  std::map<std::uint64_t, std::pair<std::size_t, std::uint32_t>> waiting_;
  std::vector<std::pair<std::size_t, Rendezvous::Placement>> made_;
  std::vector<Status> refused_;
  std::vector<Rendezvous::OutgoingMessage> sent_;
  std::uint64_t tickets_ = 0;
};

// Goal:   once all ranks have come, and not before, exactly one node makes the job, with the right placement.
// Method: worlds of random size and placement; ranks come in random order, some leave and come again, links
//         end and stand again, and letters arrive at random moments.
TEST(Rendezvous, MakesAJobOfTheRanksThatHaveCome) {
  for (std::uint64_t seed = 0; seed < test::property_cases(500); ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t count = 1 + random() % 4;
    const auto world = static_cast<std::uint32_t>(2 + random() % 12);
    Several several(count);
    std::vector<std::size_t> node_of;
    for (std::uint32_t rank = 0; rank < world; ++rank) node_of.push_back(random() % count);
    std::vector<std::uint32_t> absent(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) absent[rank] = rank;
    std::shuffle(absent.begin(), absent.end(), random);
    for (int step = 0; step < 200 && !absent.empty(); ++step) {
      const std::uint64_t choice = random() % 8;
      if (choice < 3) {
        const std::uint32_t rank = absent.back();
        absent.pop_back();
        ASSERT_TRUE(several.come(node_of[rank], rank, world, random() % 2 == 0 ? "" : "tp=2").ok());
      } else if (choice == 3 && !several.waiting_.empty()) {
        const auto it = std::next(several.waiting_.begin(),
                                  static_cast<std::ptrdiff_t>(random() % several.waiting_.size()));
        absent.insert(absent.begin(), it->second.second);
        several.leave(it->first);
        several.deliver_all(seed);  // else it may count as present where it has not been heard of yet
      } else if (choice == 4 && count > 1) {
        const std::size_t n = random() % count, m = (n + 1 + random() % (count - 1)) % count;
        several.part(n, m);
        several.join(n, m);
      } else {
        several.deliver_one(random);
      }
      several.collect();
      ASSERT_TRUE(several.made_.empty() || absent.empty()) << "seed " << seed;
    }
    for (const std::uint32_t rank : absent) ASSERT_TRUE(several.come(node_of[rank], rank, world).ok());
    several.deliver_all(seed);
    ASSERT_THAT(several.refused_, IsEmpty()) << "seed " << seed;
    ASSERT_THAT(several.made_, SizeIs(1)) << "seed " << seed;
    const auto& [maker, placement] = several.made_[0];
    EXPECT_EQ(maker, *std::min_element(node_of.begin(), node_of.end()));
    EXPECT_TRUE(std::is_sorted(placement.nodes.begin(), placement.nodes.end()));
    for (std::uint32_t rank = 0; rank < world; ++rank)
      ASSERT_EQ(placement.nodes[placement.node_of[rank]], Several::name(node_of[rank])) << "seed " << seed;
  }
}

// Goal:   contradictions between nodes are refused to all waiting ranks on any node, in words that name both
//         sides. The order in which nodes learn of each other does not matter.
TEST(Rendezvous, RefusesWhatCannotBeOneJobOnAllNodes) {
  struct Wrong {
    std::uint32_t rank, world;
    const char* mesh;
    Code code;
    std::vector<const char*> words;
  };
  const Wrong cases[] = {{2, 8, "", Code::kBadArgument, {"8", "6", "node b", "MUSTER_JOB"}},
                         {2, 6, "tp=3", Code::kConfig, {"tp=2", "tp=3", "MUSTER_MESH"}},
                         {0, 6, "", Code::kDuplicate, {"rank 0", "node a", "node b"}}};
  for (std::uint64_t seed = 0; seed < test::property_cases(50); ++seed)
    for (const Wrong& wrong : cases) {
      Several several(4);
      ASSERT_TRUE(several.come(0, 0, 6, "tp=2").ok());
      ASSERT_TRUE(several.come(0, 1, 6).ok());
      ASSERT_TRUE(several.come(2, 3, 6, "tp=2").ok());
      if (seed % 2 == 0) several.deliver_all(seed);
      ASSERT_TRUE(several.come(1, wrong.rank, wrong.world, wrong.mesh).ok());
      several.deliver_all(seed);
      EXPECT_THAT(several.refused_, SizeIs(4)) << "seed " << seed;
      EXPECT_THAT(several.waiting_, IsEmpty());
      EXPECT_THAT(several.made_, IsEmpty());
      for (const Status& why : several.refused_) {
        EXPECT_EQ(why.code(), wrong.code) << why.text();
        for (const char* word : wrong.words) EXPECT_THAT(why.text(), HasSubstr(word));
      }
      // Nothing of it is left: the next ones are gathered as if it had not been.
      for (std::uint32_t rank = 0; rank < 6; ++rank) ASSERT_TRUE(several.come(rank % 3, rank, 6).ok());
      several.deliver_all(seed);
      EXPECT_THAT(several.made_, SizeIs(1)) << "seed " << seed;
    }
}

// Goal:   a launcher that starts its ranks again, elsewhere and in another number, gets its job, though other
//         nodes have not heard yet that the former ranks have left.
TEST(Rendezvous, BelievesNothingThatIsOver) {
  for (std::uint64_t seed = 0; seed < test::property_cases(300); ++seed) {
    std::mt19937_64 random(seed);
    Several several(3);
    std::size_t jobs = 0;
    for (int start = 0; start < 4; ++start) {
      const auto world = static_cast<std::uint32_t>(2 + random() % 6);
      const std::string mesh = fmt::format("tp={}", world);
      const bool whole = random() % 2 == 0;
      std::vector<std::uint32_t> ranks(world);
      for (std::uint32_t rank = 0; rank < world; ++rank) ranks[rank] = rank;
      std::shuffle(ranks.begin(), ranks.end(), random);
      if (!whole) ranks.pop_back();
      for (const std::uint32_t rank : ranks) {
        const Status came = several.come(random() % 3, rank, world, random() % 2 == 0 ? mesh : "");
        ASSERT_TRUE(came.ok()) << came.text();
        if (random() % 2 == 0) several.deliver_one(random);
      }
      if (whole) {
        several.deliver_all(seed);
        ASSERT_THAT(several.made_, SizeIs(++jobs)) << "seed " << seed;
      }
      while (!several.waiting_.empty()) several.leave(several.waiting_.begin()->first);
    }
    several.deliver_all(seed);
    EXPECT_THAT(several.reasons(), IsEmpty()) << "seed " << seed;
    EXPECT_THAT(several.made_, SizeIs(jobs)) << "seed " << seed;
  }
}

// Goal:   a rank that contradicts those that wait on its own node is refused alone.
TEST(Rendezvous, RefusesARankThatDoesNotFitItsNode) {
  Several several(2);
  ASSERT_TRUE(several.come(0, 0, 4, "tp=2").ok());
  const auto refused = [&](const Status& why, Code code, const char* words) {
    EXPECT_EQ(why.code(), code);
    EXPECT_THAT(why.text(), HasSubstr(words));
  };
  refused(several.come(0, 1, 8), Code::kBadArgument, "has 8 ranks, and the ranks that wait on node a say 4");
  refused(several.come(0, 1, 4, "tp=4"), Code::kConfig, "the mesh tp=4");
  refused(several.come(0, 0, 4), Code::kDuplicate, "waits on node a already, as process 1000");
  refused(several.come(0, 4, 4), Code::kBadArgument, "rank 4 of 4");
  refused(several.come(0, 0, control::kWorldMax + 1), Code::kBadArgument, "65536");
  several.deliver_all();
  EXPECT_THAT(several.waiting_, SizeIs(1));
}

TEST(Rendezvous, KeepsUsersApart) {
  Several several(2);
  ASSERT_TRUE(several.come(0, 0, 2, "", "7").ok());
  ASSERT_TRUE(several.come(1, 0, 2, "", "8").ok());
  several.deliver_all();
  EXPECT_THAT(several.made_, IsEmpty());
  ASSERT_TRUE(several.come(1, 1, 2, "", "7").ok());
  several.deliver_all();
  ASSERT_THAT(several.made_, SizeIs(1));
  EXPECT_EQ(several.made_[0].second.job.of, "7");
  EXPECT_THAT(several.refused_, IsEmpty());
}

// Goal:   a job that has a key belongs, on each node, to the user of its lowest rank there, and to none
//         before.
TEST(Rendezvous, KnowsWhoseAJobIsHere) {
  const Roster roster;
  Rendezvous gathering(roster);
  const Rendezvous::Job job{"key." + std::string(control::kKeyDigestChars, 'a'), "train"};
  EXPECT_FALSE(gathering.owner_here(job));
  for (const std::uint32_t rank : {2u, 1u}) {
    Rendezvous::Rank wanted;
    wanted.ticket = rank;
    wanted.job = job;
    wanted.who = control::Identity(1000 + rank);
    wanted.gid = 100 + rank;
    wanted.rank = rank;
    wanted.world = 3;
    ASSERT_TRUE(gathering.come(wanted).ok());
    ASSERT_TRUE(gathering.owner_here(job));
    EXPECT_EQ(gathering.owner_here(job)->who, control::Identity(1000 + rank));
    EXPECT_EQ(gathering.owner_here(job)->gid, 100 + rank);
  }
  gathering.leave(1);
  EXPECT_EQ(gathering.owner_here(job)->who, control::Identity(1002));
  gathering.leave(2);
  EXPECT_FALSE(gathering.owner_here(job));
}

// Goal:   a rank that waits in vain is told which ranks came where, which are missing, and what to do.
TEST(Rendezvous, SaysWhoIsMissing) {
  Several several(3);
  for (const std::uint32_t rank : {0u, 1u}) ASSERT_TRUE(several.come(0, rank, 6).ok());
  ASSERT_TRUE(several.come(1, 4, 6).ok());
  several.deliver_all();
  EXPECT_EQ(several.nodes_[0]->next_deadline(), kLate);
  several.nodes_[0]->expire(kLate - 1ns, "");
  several.collect();
  EXPECT_THAT(several.refused_, IsEmpty());
  several.nodes_[0]->expire(kLate, "node c is away: no route");
  several.deliver_all();
  EXPECT_THAT(several.reasons(),
              AllOf(SizeIs(3), Each(AllOf(HasSubstr("TIMEOUT"),
                                          HasSubstr("job train of 6 ranks waits for "
                                                    "ranks 2 3 5"),
                                          HasSubstr("ranks 0 1 on node a, 4 on node b"),
                                          HasSubstr("node c is away: no route"), HasSubstr("timeout_ns")))));
  EXPECT_EQ(several.nodes_[0]->next_deadline(), std::nullopt);
  EXPECT_THAT(several.reasons().back(), HasSubstr("node a: job train"));
}

// Goal:   a job that cannot be made is refused on all nodes that wait for it; a later gathering is not hurt
//         by news of an earlier one.
TEST(Rendezvous, TellsThatAJobCannotBeMade) {
  Several several(2);
  ASSERT_TRUE(several.come(0, 0, 2).ok());
  ASSERT_TRUE(several.come(1, 1, 2).ok());
  several.deliver_all();
  ASSERT_THAT(several.made_, SizeIs(1));
  const auto& [maker, placement] = several.made_[0];
  EXPECT_EQ(maker, 0u);
  several.nodes_[0]->failed(placement.job, placement.round + 1, failure(Code::kBusy, "of another round"));
  several.deliver_all();
  EXPECT_THAT(several.refused_, IsEmpty());
  several.nodes_[0]->failed(placement.job, placement.round, failure(Code::kNoResource, "no place"));
  several.collect();
  // Before the news arrives, the rank of the other node has ended, and another has come.
  several.leave(several.waiting_.begin()->first);
  ASSERT_TRUE(several.come(1, 1, 2).ok());
  several.deliver_all();
  EXPECT_THAT(several.reasons(), ElementsAre(HasSubstr("no place")));
  EXPECT_THAT(several.waiting_, SizeIs(1));
  ASSERT_TRUE(several.come(0, 0, 2).ok());
  several.deliver_all();
  ASSERT_THAT(several.made_, SizeIs(2));
  several.nodes_[0]->failed(several.made_[1].second.job, several.made_[1].second.round,
                            failure(Code::kNoResource, "no place"));
  several.deliver_all();
  EXPECT_THAT(several.waiting_, IsEmpty());
  EXPECT_THAT(several.reasons().back(), HasSubstr("node a: no place"));
}

// Goal:   a peer that speaks of another world while the job is made changes nothing, and harms nothing.
TEST(Rendezvous, HearsOfAnotherWorldWhileItMakesAJob) {
  Several several(2);
  ASSERT_TRUE(several.come(0, 0, 2).ok());
  ASSERT_TRUE(several.come(1, 1, 2).ok());
  several.deliver_all();
  ASSERT_THAT(several.made_, SizeIs(1));
  const Json other{{"job", "train"}, {"of", "7"},  {"world", 60000},
                   {"mesh", ""},     {"round", 9}, {"ranks", {50000, 1}}};
  EXPECT_TRUE(several.nodes_[0]->heard("b", Json::from_cbor(Json::to_cbor(Json{{"gathering", other}}))).ok());
  EXPECT_THAT(several.nodes_[0]->text_of({"7", "train"}),
              HasSubstr("waits for ranks 1: only ranks 0 on node a, 50000 on node b"));
}

// Goal:   a peer that is lost counts no longer, and neither does a rank that has left.
TEST(Rendezvous, ForgetsWhoIsGone) {
  Several several(2);
  ASSERT_TRUE(several.come(1, 1, 2).ok());
  several.deliver_all();
  several.part(0, 1);
  ASSERT_TRUE(several.come(0, 0, 2).ok());
  several.deliver_all();
  EXPECT_THAT(several.made_, IsEmpty());
  several.leave(1);
  several.join(0, 1);
  several.deliver_all();
  EXPECT_THAT(several.made_, IsEmpty());
  EXPECT_THAT(several.nodes_[0]->text_of({"7", "train"}),
              HasSubstr("waits for ranks 1: only ranks 0 on node a"));
  ASSERT_TRUE(several.come(1, 1, 2).ok());
  several.deliver_all();
  EXPECT_THAT(several.made_, SizeIs(1));
}

// Goal:   a peer's messages are bounded and checked.
TEST(Rendezvous, BelievesNothingThatCannotBe) {
  Several several(2);
  ASSERT_TRUE(several.come(0, 0, 8).ok());
  const auto heard = [&](const Json& body) {
    return several.nodes_[0]->heard("b", Json::from_cbor(Json::to_cbor(Json{{"gathering", body}})));
  };
  const auto text = [&] { return several.nodes_[0]->text_of({"7", "train"}); };
  const Json good{{"job", "train"}, {"of", "7"},  {"world", 8},
                  {"mesh", ""},     {"round", 1}, {"ranks", {1, 2, 4, 1}}};
  const auto with = [&good](const char* field, const Json& value) {
    Json body = good;
    body[field] = value;
    return body;
  };
  std::vector<Json> bad{Json(7),
                        Json::array(),
                        Json::object(),
                        with("job", ""),
                        with("job", "a b"),
                        with("job", 7),
                        with("of", 7),
                        with("of", ""),
                        with("of", "-7"),
                        with("of", "07"),
                        with("of", "4294967296"),
                        with("of", "key.0123"),
                        with("of", "key." + std::string(32, 'g')),
                        with("world", 1u << 17),
                        with("ranks", 7),
                        with("ranks", {1}),
                        with("ranks", {1, 0}),
                        with("ranks", {7, 2}),
                        with("ranks", {8, 1}),
                        with("ranks", {2, 2, 3, 1}),
                        with("ranks", {-1, 1}),
                        with("ranks", {1, "x"}),
                        with("ranks", {0, ~0ull}),
                        with("mesh", std::string(256, 'x')),
                        with("failed", 7),
                        with("failed", {{"ok", true}})};
  Json long_list = Json::array();
  for (std::uint32_t rank = 0; rank < 1025; ++rank) long_list.insert(long_list.end(), {2 * rank, 1});
  bad.push_back(with("ranks", long_list));
  bad.back()["world"] = 4096;
  for (const Json& body : bad) {
    EXPECT_EQ(heard(body).code(), Code::kProtocol) << body.dump().substr(0, 200);
    EXPECT_THAT(text(), HasSubstr("only ranks 0 on node a have"));
  }
  several.collect();
  several.sent_.clear();
  for (const Json& odd : {with("asks", 7), with("change", "x"), with("heard", -1), with("asks", true)})
    EXPECT_TRUE(heard(odd).ok());
  EXPECT_THAT(text(), HasSubstr("ranks 0 on node a, 1 2 4 on node b"));
  several.collect();
  EXPECT_THAT(several.sent_, SizeIs(1)) << "only the last one asks";
  Status last;
  for (std::size_t n = 0; n < Rendezvous::kOfAPeerMax; ++n)
    last = heard(with("job", fmt::format("job{}", n)));
  EXPECT_EQ(last.code(), Code::kNoResource);
  EXPECT_TRUE(heard(good).ok()) << "of a job that it has told of before";
}

}  // namespace
}  // namespace muster::supervisor
