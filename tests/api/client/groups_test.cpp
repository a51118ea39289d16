// Groups and meshes that ranks make while the job runs: to go on without one, and with it again.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 37;

class Groups : public muster::test::RunningRanks {
 protected:
  static muster_group make(const Member& member, std::vector<std::int32_t> ranks,
                           const char* name = nullptr) {
    muster_group group = 0;
    EXPECT_EQ(muster_group_make(member.session, ranks.data(), ranks.size(), name, &group), MUSTER_OK)
        << muster_last_error();
    return group;
  }
  static muster_group shrink(const Member& member, muster_group group) {
    muster_group left = 0;
    EXPECT_EQ(muster_group_shrink(member.session, group, 0, &left), MUSTER_OK) << muster_last_error();
    return left;
  }
  static std::vector<std::int32_t> members(const Member& member, muster_group group) {
    std::vector<std::int32_t> ranks(64);
    std::size_t count = 0;
    EXPECT_EQ(muster_group_ranks(member.session, group, ranks.data(), ranks.size(), &count), MUSTER_OK)
        << muster_last_error();
    ranks.resize(count);
    return ranks;
  }
  // All-reduces of 2^rank over the group, run and started: the sum tells who was in it.
  static void expect_sum(Member& member, muster_group group, float sum) {
    const Vector source = vector_of(member, kCount);
    const Vector target = vector_of(member, kCount);
    std::fill_n(source.data, kCount, static_cast<float>(1 << member.rank));
    muster_collective c = all_reduce(member, source, target, kCount);
    c.group = group;
    ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    EXPECT_EQ(std::count(target.data, target.data + kCount, sum), static_cast<long>(kCount))
        << target.data[0] << " run by rank " << member.rank;
    std::fill_n(target.data, kCount, -1.0f);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    muster_point point = 0;
    ASSERT_EQ(muster_collect(member.session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(std::count(target.data, target.data + kCount, sum), static_cast<long>(kCount))
        << target.data[0] << " started by rank " << member.rank;
  }
  static muster_status_t meet(Member& member, muster_group group) {
    muster_collective c = member.barrier();
    c.group = group;
    return member.run(c);
  }
};

class FewGroups : public Groups {
 protected:
  void SetUp() override {
    node_.options.job_defaults.groups_made_max = 4;
    Groups::SetUp();
  }
};

class FewGroupsInShortTime : public FewGroups {
 protected:
  void SetUp() override {
    node_.options.job_defaults.deadline = std::chrono::milliseconds(500);
    FewGroups::SetUp();
  }
};

TEST_F(Groups, AreFoundByTheirRanksAndNameAndReduceOnBothPaths) {
  std::mutex mutex;
  std::set<muster_group> handles;
  with_ranks(4, [&](Member& member) {
    if (member.rank % 2 == 1) {
      const muster_group pair = make(member, {3, 1}, "odd");
      EXPECT_THAT(members(member, pair), ElementsAre(3, 1));
      muster_group_info info = MUSTER_GROUP_INFO_INIT;
      EXPECT_EQ(muster_group_query(member.session, pair, &info), MUSTER_OK);
      EXPECT_STREQ(info.name, "odd");
      EXPECT_EQ(info.rank, member.rank == 3 ? 0 : 1);
      expect_sum(member, pair, 2.0f + 8.0f);
      const std::lock_guard lock(mutex);
      handles.insert(pair);
    }
    // Every other name, and every other order, is another group.
    const muster_group here = make(member, {0, 1, 2, 3}, "a");
    const muster_group there = make(member, {0, 1, 2, 3}, "b");
    const muster_group turned = make(member, {3, 2, 1, 0}, "a");
    EXPECT_EQ((std::set{here, there, turned, member.group}).size(), 4u);
    EXPECT_EQ(make(member, {0, 1, 2, 3}, "a"), here);
    expect_sum(member, turned, 15.0f);
    expect_sum(member, here, 15.0f);
  });
  EXPECT_EQ(handles.size(), 1u);
}

// Goal:   reports call a group as its users do: each rank set has many names.
TEST_F(Groups, AreCalledAsTheyWereFirstAskedFor) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    const auto name_of = [&](const char* dim) -> std::string {
      muster_group group = 0;
      muster_group_info info = MUSTER_GROUP_INFO_INIT;
      EXPECT_EQ(muster_mesh_group(member.session, dim, &group), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_group_query(member.session, group, &info), MUSTER_OK) << muster_last_error();
      return info.name;
    };
    EXPECT_EQ(name_of("batch"), "batch");
    EXPECT_EQ(name_of("dp_shard"), "batch") << "the same ranks";
    EXPECT_EQ(name_of("tp"), "tp");
    meet_and_leave(member);
    if (member.rank == 0) {
      EXPECT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
    }
    EXPECT_EQ(meet(member, member.group), MUSTER_ERR_ABORTED);
    EXPECT_THAT(member.error, HasSubstr("rank 0 aborted group world")) << "of all names, the first asked for";
  });
}

TEST_F(Groups, RefuseWhatCannotBe) {
  with_ranks(3, [&](Member& member) {
    const auto refused = [&](std::vector<std::int32_t> ranks, const char* words) {
      muster_group group = 0;
      EXPECT_EQ(muster_group_make(member.session, ranks.data(), ranks.size(), nullptr, &group),
                MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_THAT(muster_last_error(), HasSubstr(words));
    };
    refused({}, "at least this rank");
    refused({member.rank, 3}, "rank 3 is not in 0..2");
    refused({member.rank, -1}, "rank -1 is not in 0..2");
    refused({member.rank, member.rank}, "stands twice");
    refused({(member.rank + 1) % 3, (member.rank + 2) % 3}, "no member");
    EXPECT_EQ(make(member, {member.rank}), MUSTER_GROUP_SELF);
    muster_group group = 0;
    const std::string long_name(64, 'x');
    const std::int32_t all[] = {0, 1, 2};
    EXPECT_EQ(muster_group_make(member.session, all, 3, long_name.c_str(), &group), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_group_make(member.session, all, 3, nullptr, nullptr), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_group_free(member.session, member.group), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("belongs to a mesh"));
    EXPECT_EQ(muster_group_free(member.session, 12345), MUSTER_ERR_STALE);
    EXPECT_EQ(muster_group_shrink(member.session, 12345, 0, &group), MUSTER_ERR_STALE);
  });
}

TEST_F(Groups, AreNotForThoseWhoHaveNotMadeThem) {
  std::barrier<> step(2);
  muster_group made = 0;
  with_ranks(2, [&](Member& member) {
    if (member.rank == 0) made = make(member, {1, 0}, "mine");
    step.arrive_and_wait();
    if (member.rank == 1) {
      muster_group_info info = MUSTER_GROUP_INFO_INIT;
      EXPECT_EQ(muster_group_query(member.session, made, &info), MUSTER_ERR_STALE);
      EXPECT_EQ(make(member, {1, 0}, "mine"), made);
      EXPECT_EQ(muster_group_query(member.session, made, &info), MUSTER_OK);
    }
    step.arrive_and_wait();
    expect_sum(member, made, 3.0f);
  });
}

TEST_F(Groups, StayBusyWhilePlansUseThemAndNeverComeBackUnderTheirHandle) {
  with_ranks(1, [](Member&) {});
  std::set<muster_group> seen;
  std::barrier<> step(2);
  with_ranks(2, [&](Member& member) {
    for (int round = 0; round < 200; ++round) {
      const muster_group group = make(member, {0, 1}, "round");
      // A one-shot keeps a plan of its own, which does not count.
      ASSERT_EQ(meet(member, group), MUSTER_OK) << member.error;
      muster_collective c = member.barrier();
      c.group = group;
      muster_plan plan = 0;
      ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK);
      EXPECT_EQ(muster_group_free(member.session, group), MUSTER_ERR_BUSY);
      EXPECT_THAT(muster_last_error(), HasSubstr("1 plans"));
      ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
      ASSERT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK);
      ASSERT_EQ(muster_group_free(member.session, group), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_group_free(member.session, group), MUSTER_ERR_STALE);
      step.arrive_and_wait();
      if (member.rank == 0) {
        EXPECT_TRUE(seen.insert(group).second) << "round " << round;
      }
      step.arrive_and_wait();
    }
  });
}

// Goal:   a rank that makes a group again which a peer still holds keeps its position there. So no member
//         meets an operation of an earlier round.
// Method: rounds of making, reducing and freeing with no meeting between them but the reduction; each
//         round's numbers are its own, a rank now and then sleeps, and every other round something goes on
//         in the world group between.
TEST_F(Groups, MeetNothingOldWhenTheyAreMadeAgainAtOnce) {
  with_ranks(3, [&](Member& member) {
    const Vector source = vector_of(member, kCount);
    const Vector target = vector_of(member, kCount);
    for (int round = 0; round < 300; ++round) {
      const muster_group group = make(member, {0, 1, 2}, "round");
      const int times = 1 + round % 4;
      for (int k = 0; k < times; ++k) {
        std::fill_n(source.data, kCount, static_cast<float>(100 * round + 10 * k + member.rank));
        muster_collective c = all_reduce(member, source, target, kCount);
        c.group = group;
        ASSERT_EQ(member.run(c), MUSTER_OK) << "round " << round << ": " << member.error;
        ASSERT_EQ(target.data[kCount - 1], static_cast<float>(300 * round + 30 * k + 3)) << "round " << round;
      }
      if (round % 7 == member.rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_EQ(muster_group_free(member.session, group), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   data staged for a freed group does not hold up the next operation.
// Method: reductions in slices, in one group and then, when it is freed, in another.
TEST_F(Groups, LeaveNothingBehindThatTheNextOneWaitsFor) {
  constexpr std::size_t kSliced = 200'000;
  with_ranks(4, [&](Member& member) {
    const Vector source = vector_of(member, kSliced);
    const Vector target = vector_of(member, kSliced);
    std::fill_n(source.data, kSliced, 1.0f);
    for (int round = 0; round < 20; ++round) {
      const std::string name = "round " + std::to_string(round);
      const muster_group group = make(member, {0, 1, 2, 3}, name.c_str());
      for (int k = 0; k < 2; ++k) {
        muster_collective c = all_reduce(member, source, target, kSliced);
        if (k == 0) c.group = group;
        ASSERT_EQ(member.run(c), MUSTER_OK) << "round " << round << ": " << member.error;
        ASSERT_EQ(target.data[kSliced - 1], 4.0f);
        if (k == 0) {
          ASSERT_EQ(muster_group_free(member.session, group), MUSTER_OK) << muster_last_error();
        }
      }
    }
  });
}

// Goal:   a rank may leave after it got a loss in a group that it has freed since.
// Method: rank 2 leaves; the others hear of it in a made group, free it, and leave one after the other; the
//         engine lives.
TEST_F(Groups, AreForgottenWithWhatWasHeardInThem) {
  std::barrier<> step(3);
  with_ranks(3, [&](Member& member) {
    const muster_group group = make(member, {0, 1, 2}, "all");
    ASSERT_EQ(meet(member, group), MUSTER_OK) << member.error;
    if (member.rank == 2) {
      step.arrive_and_drop();
      return;
    }
    step.arrive_and_wait();
    EXPECT_EQ(meet(member, group), MUSTER_ERR_PEER_LOST) << member.error;
    EXPECT_EQ(muster_group_free(member.session, group), MUSTER_OK) << muster_last_error();
    if (member.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  with_ranks(3, [&](Member& member) { expect_sum(member, make(member, {0, 1, 2}, "all"), 7.0f); });
}

TEST_F(FewGroups, AreBoundedAndTheBoundIsNamed) {
  with_ranks(2, [&](Member& member) {
    std::vector<muster_group> made;
    for (const char* name : {"a", "b", "c", "d"}) made.push_back(make(member, {0, 1}, name));
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
    const std::int32_t both[] = {0, 1};
    muster_group group = 0;
    EXPECT_EQ(muster_group_make(member.session, both, 2, "e", &group), MUSTER_ERR_NO_RESOURCE);
    EXPECT_THAT(muster_last_error(), HasSubstr("holds 4 made groups"));
    EXPECT_THAT(muster_last_error(), HasSubstr("limits.groups_made_max (4)"));
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
    for (const muster_group one : made) EXPECT_EQ(muster_group_free(member.session, one), MUSTER_OK);
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
    expect_sum(member, make(member, {0, 1}, "e"), 3.0f);
  });
  // Closing a session frees its groups.
  with_ranks(2, [&](Member& member) {
    for (const char* name : {"f", "g", "h", "i"}) expect_sum(member, make(member, {0, 1}, name), 3.0f);
  });
}

// Goal:   a group goes on without a member that left, and with it again once it is back.
// Method: rank 2 leaves in mid-run; the others hear of it; two shrink while one waits until rank 2 is back,
//         which does not call and is not waited for. Then all use the whole group.
TEST_F(Groups, ShrinkWithoutTheLostAndGrowWhenItIsBack) {
  std::barrier<> step(4);
  std::barrier<> back(2);
  with_ranks(4, [&](Member& member) {
    expect_sum(member, member.group, 15.0f);
    step.arrive_and_wait();
    if (member.rank == 2) {
      ASSERT_EQ(muster_close(member.session), MUSTER_OK);
      member.session = nullptr;
    } else {
      EXPECT_EQ(meet(member, member.group), MUSTER_ERR_PEER_LOST) << member.error;
      EXPECT_THAT(member.error, HasSubstr("rank 2"));
    }
    step.arrive_and_wait();
    if (member.rank == 2) {
      member = open(2, 4);
      back.arrive_and_wait();
    } else {
      if (member.rank == 3) back.arrive_and_wait();
      const muster_group left = shrink(member, member.group);
      EXPECT_THAT(members(member, left), ElementsAre(0, 1, 3));
      expect_sum(member, left, 1.0f + 2.0f + 8.0f);
      EXPECT_EQ(shrink(member, left), left) << "nobody is missing";
      EXPECT_EQ(muster_group_free(member.session, left), MUSTER_OK) << muster_last_error();
    }
    EXPECT_EQ(meet(member, member.group), MUSTER_OK) << member.error;
    expect_sum(member, member.group, 15.0f);
  });
}

TEST_F(Groups, NameWhoDoesNotShrink) {
  std::barrier<> step(3);
  with_ranks(3, [&](Member& member) {
    step.arrive_and_wait();
    if (member.rank == 2) {
      ASSERT_EQ(muster_close(member.session), MUSTER_OK);
      member.session = nullptr;
    }
    step.arrive_and_wait();
    if (member.rank == 0) {
      muster_group left = 0;
      EXPECT_EQ(muster_group_shrink(member.session, member.group, 50'000'000, &left), MUSTER_ERR_TIMEOUT);
      EXPECT_THAT(muster_last_error(), HasSubstr("rank 1 is attached and did not call muster_group_shrink"));
      EXPECT_EQ(muster_group_shrink(member.session, member.group, -1, &left), MUSTER_ERR_BAD_ARGUMENT);
    }
    step.arrive_and_wait();
    if (member.rank < 2) {
      EXPECT_THAT(members(member, shrink(member, member.group)), ElementsAre(0, 1));
    }
  });
}

TEST_F(Groups, ShrinkAgainWhenAnotherIsLost) {
  std::barrier<> step(4);
  with_ranks(4, [&](Member& member) {
    muster_group now = member.group;
    float sum = 15.0f;
    for (const int lost : {3, 1}) {
      ASSERT_EQ(meet(member, now), MUSTER_OK) << member.error;
      step.arrive_and_wait();
      if (member.rank == lost) {
        step.arrive_and_drop();
        return;
      }
      EXPECT_EQ(meet(member, now), MUSTER_ERR_PEER_LOST);
      step.arrive_and_wait();
      now = shrink(member, now);
      sum -= static_cast<float>(1 << lost);
      expect_sum(member, now, sum);
    }
    EXPECT_THAT(members(member, now), ElementsAre(0, 2));
  });
}

TEST_F(Groups, AloneShrinkToThemselves) {
  std::barrier<> step(2);
  with_ranks(2, [&](Member& member) {
    step.arrive_and_wait();
    if (member.rank == 1) return;
    EXPECT_EQ(meet(member, member.group), MUSTER_ERR_PEER_LOST);
    const muster_group left = shrink(member, member.group);
    EXPECT_EQ(left, MUSTER_GROUP_SELF);
    expect_sum(member, left, 1.0f);
  });
}

TEST_F(Groups, CarryAMeshOfTheirOwn) {
  mesh = "dp_shard=2,tp=2";
  with_ranks(4, [&](Member& member) {
    if (member.rank == 3) return;
    const muster_group three = make(member, {2, 0, 1});
    muster_mesh made = 0;
    EXPECT_EQ(muster_mesh_make(member.session, three, "tp=2", &made), MUSTER_ERR_CONFIG);
    EXPECT_EQ(muster_mesh_make(member.session, three, "nonsense", &made), MUSTER_ERR_CONFIG);
    ASSERT_EQ(muster_mesh_make(member.session, three, "dp_shard=3", &made), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
    std::int32_t coordinate = -1;
    std::int32_t size = -1;
    ASSERT_EQ(muster_mesh_coords(member.session, "dp_shard", &coordinate, &size), MUSTER_OK);
    EXPECT_EQ(size, 3);
    EXPECT_EQ(coordinate, (member.rank + 1) % 3);
    muster_group shards = 0;
    ASSERT_EQ(muster_mesh_group(member.session, "dp_shard", &shards), MUSTER_OK);
    EXPECT_THAT(members(member, shards), ElementsAre(2, 0, 1));
    expect_sum(member, shards, 7.0f);
    muster_group tp = 0;
    ASSERT_EQ(muster_mesh_group(member.session, "tp", &tp), MUSTER_OK);
    EXPECT_EQ(tp, MUSTER_GROUP_SELF);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
    ASSERT_EQ(muster_mesh_coords(member.session, "tp", &coordinate, &size), MUSTER_OK);
    EXPECT_EQ(size, 2);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_mesh_use(member.session, made), MUSTER_ERR_STALE);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_ERR_STALE);
    EXPECT_EQ(meet(member, shards), MUSTER_ERR_STALE);
  });
}

// Goal:   a loop that makes, uses and frees groups never fails, however far its members are apart in it.
// Method: as many groups as a rank may hold, each with another name, freed at once; one rank is slow to free.
TEST_F(FewGroups, MayBeMadeAndFreedForEver) {
  with_ranks(3, [&](Member& member) {
    for (int i = 0; i < 100; ++i) {
      std::vector<muster_group> made;
      for (const char* name : {"a", "b", "c", "d"})
        made.push_back(make(member, {0, 1, 2}, (name + std::to_string(i)).c_str()));
      for (const muster_group group : made) ASSERT_EQ(meet(member, group), MUSTER_OK) << member.error;
      if (member.rank == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (const muster_group group : made)
        ASSERT_EQ(muster_group_free(member.session, group), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   a call that waits in vain for room gets an error at its deadline, which names the missing resource.
// Method: two ranks make as many groups with rank 0 as they may hold, which rank 0 never makes: its segment
//         is full. Once one of them is freed, the next fits.
TEST_F(FewGroupsInShortTime, SayWhatHasRunOutWhereOthersFreeNone) {
  std::barrier<> step(3);
  with_ranks(3, [&](Member& member) {
    std::vector<muster_group> made;
    for (const char* name : {"a", "b", "c", "d"})
      if (member.rank > 0) made.push_back(make(member, {0, member.rank}, name));
    step.arrive_and_wait();
    if (member.rank == 0) {
      const std::int32_t all[] = {0, 1, 2};
      muster_group group = 0;
      EXPECT_EQ(muster_group_make(member.session, all, 3, nullptr, &group), MUSTER_ERR_NO_RESOURCE);
      EXPECT_THAT(muster_last_error(), HasSubstr("rank 0 is a member of 8 made groups"));
      EXPECT_THAT(muster_last_error(), HasSubstr("limits.groups_made_max (4)"));
    }
    step.arrive_and_wait();
    if (member.rank == 1) {
      EXPECT_EQ(muster_group_free(member.session, made[0]), MUSTER_OK);
    }
    if (member.rank == 0) make(member, {0, 1, 2});
    step.arrive_and_wait();
  });
}

// Goal:   a second mesh of the job's own size fits, however many ranks and groups it has.
TEST_F(Groups, HaveRoomForASecondMeshOfTheJobsOwnSize) {
  mesh = "pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2";
  with_ranks(64, [&](Member& member) {
    muster_mesh made = 0;
    ASSERT_EQ(muster_mesh_make(member.session, member.group, mesh.c_str(), &made), MUSTER_OK)
        << muster_last_error();
    ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
    muster_group shards = 0;
    ASSERT_EQ(muster_mesh_group(member.session, "dp_cp", &shards), MUSTER_OK);
    EXPECT_EQ(meet(member, shards), MUSTER_OK) << member.error;
  });
}

// Goal:   a mesh that does not fit leaves nothing behind.
// Method: with two groups made there is room for two; of the mesh each rank is in one of each dim, and the
//         whole.
TEST_F(FewGroups, MakeAMeshWholeOrNotAtAll) {
  with_ranks(4, [&](Member& member) {
    muster_mesh made = 0;
    const muster_group all = make(member, {3, 2, 1, 0});
    make(member, {0, 1, 2, 3}, "another");
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
    EXPECT_EQ(muster_mesh_make(member.session, all, "dp_shard=2,tp=2", &made), MUSTER_ERR_NO_RESOURCE);
    EXPECT_THAT(muster_last_error(), HasSubstr("limits.groups_made_max"));
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
    for (int i = 0; i < 2; ++i) make(member, {0, 1, 2, 3}, std::to_string(i).c_str());
    EXPECT_EQ(muster_barrier(member.session, member.group), MUSTER_OK);
  });
}

// Goal:   memory in a group of a mesh goes with it: nobody could find either again.
// Method: more lives than there are groups, each with a mesh and shared memory in it, and no word of
//         farewell.
TEST_F(FewGroups, TakeSharedMemoryWithThemWhereNobodyCouldFindItAgain) {
  for (int life = 0; life < 8; ++life) {
    with_ranks(2, [&](Member& member) {
      muster_mesh made = 0;
      ASSERT_EQ(muster_mesh_make(member.session, member.group, "tp=2", &made), MUSTER_OK)
          << "life " << life << ": " << muster_last_error();
      ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
      muster_group pair = 0;
      ASSERT_EQ(muster_mesh_group(member.session, "tp", &pair), MUSTER_OK);
      muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
      options.bytes = 256;
      options.name = "weights";
      options.shared_by = pair;
      muster_buffer buffer = 0;
      ASSERT_EQ(muster_buffer_create(member.session, &options, &buffer, nullptr), MUSTER_OK)
          << "life " << life << ": " << muster_last_error();
      EXPECT_EQ(meet(member, pair), MUSTER_OK) << member.error;
    });
  }
}

// Goal:   memory that members share under a name keeps their group, so that a restarted trainer finds it.
TEST_F(Groups, KeepSharedMemoryForTheNextSessions) {
  for (int life = 0; life < 2; ++life) {
    with_ranks(3, [&](Member& member) {
      if (member.rank == 2) return;
      const muster_group pair = make(member, {1, 0}, "pair");
      muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
      options.bytes = 256;
      options.name = "weights";
      options.shared_by = pair;
      muster_buffer buffer = 0;
      void* address = nullptr;
      ASSERT_EQ(muster_buffer_create(member.session, &options, &buffer, &address), MUSTER_OK)
          << muster_last_error();
      auto* values = static_cast<float*>(address);
      if (life == 0) values[member.rank] = 5.0f + static_cast<float>(member.rank);
      EXPECT_EQ(muster_group_free(member.session, pair), MUSTER_ERR_BUSY);
      EXPECT_EQ(meet(member, pair), MUSTER_OK);
      EXPECT_EQ(values[1 - member.rank], 6.0f - static_cast<float>(member.rank)) << "life " << life;
      EXPECT_EQ(meet(member, pair), MUSTER_OK);
    });
  }
}

}  // namespace
