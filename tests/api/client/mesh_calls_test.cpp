// Meshes of the C API: flattened names, slices, the default deadline of a mesh's groups.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Dims = std::vector<const char*>;
constexpr std::size_t kCount = 29;
constexpr std::chrono::milliseconds kShort(300);
constexpr std::int64_t kShortNs = std::chrono::nanoseconds(kShort).count();
constexpr std::chrono::seconds kLong(30);  // the job's

class Meshes : public muster::test::RunningRanks {
 protected:
  static muster_status_t flatten(const Member& member, const Dims& dims, const char* name) {
    return muster_mesh_flatten(member.session, dims.data(), dims.size(), name);
  }
  static muster_mesh slice(const Member& member, const Dims& dims) {
    muster_mesh made = 0;
    EXPECT_EQ(muster_mesh_slice(member.session, dims.data(), dims.size(), &made), MUSTER_OK)
        << muster_last_error();
    return made;
  }
  static muster_status_t no_slice(const Member& member, const Dims& dims) {
    muster_mesh made = 0;
    return muster_mesh_slice(member.session, dims.data(), dims.size(), &made);
  }
  static muster_group group_of(const Member& member, const char* dim) {
    muster_group group = 0;
    EXPECT_EQ(muster_mesh_group(member.session, dim, &group), MUSTER_OK) << muster_last_error();
    return group;
  }
  static bool knows(const Member& member, const char* dim) {
    muster_group group = 0;
    const muster_status_t status = muster_mesh_group(member.session, dim, &group);
    if (status != MUSTER_OK) {
      EXPECT_EQ(status, MUSTER_ERR_NOT_FOUND) << muster_last_error();
    }
    return status == MUSTER_OK;
  }
  struct Place {
    std::int32_t coordinate = -1, size = -1;
    friend bool operator==(const Place&, const Place&) = default;
  };
  static Place place(const Member& member, const char* dim) {
    Place p;
    EXPECT_EQ(muster_mesh_coords(member.session, dim, &p.coordinate, &p.size), MUSTER_OK)
        << muster_last_error();
    return p;
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
  static void expect_sum_of(Member& member, muster_group group, const std::vector<std::int32_t>& ranks) {
    float sum = 0.0f;
    for (const std::int32_t rank : ranks) sum += static_cast<float>(1 << rank);
    const Vector source = vector_of(member, kCount);
    const Vector target = vector_of(member, kCount);
    std::fill_n(source.data, kCount, static_cast<float>(1 << member.rank));
    muster_collective c = all_reduce(member, source, target, kCount);
    c.group = group;
    ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    EXPECT_EQ(target.data[kCount - 1], sum) << "run by rank " << member.rank;
    target.data[kCount - 1] = -1.0f;
    ASSERT_EQ(start_and_wait(member, c), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(target.data[kCount - 1], sum) << "started by rank " << member.rank;
  }
  static muster_status_t start_and_wait(Member& member, const muster_collective& c) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_SMALL;
    muster_point point = 0;
    EXPECT_EQ(muster_collect(member.session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    const muster_status_t status = muster_point_wait(member.session, point, -1);
    if (status != MUSTER_OK) member.error = muster_last_error();
    return status;
  }
  static muster_collective barrier_of(const Member& member, muster_group group) {
    muster_collective c = member.barrier();
    c.group = group;
    return c;
  }
};

// ---- flatten

// Goal:   case M9: names that flatten and slice dims, and those that cannot.
TEST_F(Meshes, FlattenAndSliceAsTheCatalogueSays) {
  mesh = "dp_replicate=2,dp_shard=2,cp=2";
  with_ranks(8, [&](Member& member) {
    EXPECT_EQ(no_slice(member, {"tp", "dp_shard"}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("may not name \"dp_shard\" after \"tp\""));
    const muster_group dp = group_of(member, "dp");
    for (int twice = 0; twice < 2; ++twice) {
      EXPECT_EQ(flatten(member, {"dp_replicate", "dp_shard"}, "dp"), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(group_of(member, "dp"), dp);
    }
    EXPECT_EQ(flatten(member, {"dp_shard", "cp"}, "dp"), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("the name stands for dp_replicate, dp_shard already"));
    EXPECT_EQ(flatten(member, {"dp_shard", "cp"}, "tp"), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("that is the name of a basic dim"));
    const muster_mesh hsdp = slice(member, {"dp_replicate", "dp_shard_cp"});
    EXPECT_EQ(slice(member, {"dp_replicate", "fsdp"}), hsdp) << "the same dims";
    ASSERT_EQ(muster_mesh_use(member.session, hsdp), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(place(member, "dp_replicate"), (Place{member.rank / 4, 2}));
    EXPECT_EQ(place(member, "dp_shard_cp"), (Place{member.rank % 4, 4}));
  });
}

// Goal:   case M3: where tp and pp have all ranks, a loader is rank 0 of 1, and a loss has no peers.
TEST_F(Meshes, HaveNoDataParallelDimWhenTheWorldIsTpTimesPp) {
  mesh = "pp=2,tp=4";
  with_ranks(8, [&](Member& member) {
    for (const char* loader : {"dp", "batch"}) EXPECT_EQ(place(member, loader), (Place{0, 1}));
    EXPECT_EQ(group_of(member, "loss"), MUSTER_GROUP_SELF) << "a reduction of the loss needs no peer";
  });
}

// Goal:   case M7 (ours): over "loss" a loss is averaged, its largest is found, and tokens are counted to the
//         last one. tp peers, who have the same rows, do not count.
TEST_F(Meshes, ReduceLossesAndCountTokens) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    const muster_group loss = group_of(member, "loss");
    const Vector memory = vector_of(member, 8);
    for (const bool started : {false, true}) {
      const auto reduced = [&](muster_dtype dtype, muster_redop redop) {
        muster_collective c = all_reduce(member, memory, memory, 1);
        c.group = loss;
        c.dtype = dtype;
        c.redop = redop;
        EXPECT_EQ(started ? start_and_wait(member, c) : member.run(c), MUSTER_OK) << member.error;
      };
      const int row = member.rank / 2;
      memory.data[0] = 1.5F + static_cast<float>(row);
      reduced(MUSTER_F32, MUSTER_AVG);
      EXPECT_EQ(memory.data[0], 3);
      memory.data[0] = 1.5F + static_cast<float>(row);
      reduced(MUSTER_F32, MUSTER_MAX);
      EXPECT_EQ(memory.data[0], 4.5F);
      std::int64_t tokens = (std::int64_t{1} << 60) + row;
      std::memcpy(memory.data, &tokens, sizeof tokens);
      reduced(MUSTER_I64, MUSTER_SUM);
      std::memcpy(&tokens, memory.data, sizeof tokens);
      EXPECT_EQ(tokens, (std::int64_t{1} << 62) + 6);
      await_all(member);
    }
  });
}

TEST_F(Meshes, GiveAFlattenedNameItsGroupInAnyOrderOfTheMembers) {
  mesh = "pp=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    const std::int32_t odd = member.rank % 2;
    const std::vector<std::int32_t> stages{odd, odd + 2, odd + 4, odd + 6};
    Dims names{"stages", "others"};
    if (member.rank % 3 == 0) std::swap(names[0], names[1]);
    for (const char* name : names)
      ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, name), MUSTER_OK) << muster_last_error();
    const muster_group group = group_of(member, "stages");
    EXPECT_NE(group_of(member, "others"), group);
    expect_sum_of(member, group_of(member, "others"), stages);
    EXPECT_THAT(members(member, group), ::testing::ElementsAreArray(stages));
    EXPECT_EQ(place(member, "stages"), (Place{member.rank / 2, 4}));
    muster_group_info info = MUSTER_GROUP_INFO_INIT;
    EXPECT_EQ(muster_group_query(member.session, group, &info), MUSTER_OK);
    EXPECT_STREQ(info.name, "stages");
    muster_group made = 0;
    EXPECT_EQ(muster_group_make(member.session, stages.data(), stages.size(), "stages", &made), MUSTER_OK);
    EXPECT_EQ(made, group) << "found by its ranks and name";
    expect_sum_of(member, group, stages);
    EXPECT_EQ(flatten(member, {"pp", "dp_shard"}, "stages"), MUSTER_OK) << "the same again";
    EXPECT_EQ(group_of(member, "stages"), group);
    EXPECT_EQ(muster_group_free(member.session, group), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("belongs to a mesh"));
    // A product whose ranks the mesh has as a group is that group, also by a name of its own.
    EXPECT_EQ(flatten(member, {"dp_shard", "tp"}, "stage"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "stage"), group_of(member, "weight"));
    EXPECT_EQ(flatten(member, {"stages", "tp"}, "all"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "all"), member.group);
    EXPECT_EQ(flatten(member, {"cp"}, "context"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "context"), MUSTER_GROUP_SELF);
    EXPECT_EQ(place(member, "context"), (Place{0, 1}));
  });
}

TEST_F(Meshes, RefuseAFlattenThatCannotBeAndThenNameNothing) {
  mesh = "pp=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    const auto refused = [&](const Dims& dims, const char* name, muster_status_t status, const char* words) {
      EXPECT_EQ(flatten(member, dims, name), status) << words;
      EXPECT_THAT(muster_last_error(), HasSubstr(words));
    };
    refused({"pp", "dpp"}, "mine", MUSTER_ERR_NOT_FOUND, "has no dim \"dpp\"");
    refused({"pp", "dpp"}, "mine", MUSTER_ERR_NOT_FOUND, "Valid names: pp, dp_replicate");
    refused({"tp", "pp"}, "mine", MUSTER_ERR_BAD_ARGUMENT, "\"pp\" may not follow \"tp\"");
    refused({"pp", "tp"}, "mine", MUSTER_ERR_BAD_ARGUMENT, "dp_shard (size 2) lies between them");
    refused({"pp", "dp_shard"}, "Mine", MUSTER_ERR_BAD_ARGUMENT, "is named \"Mine\"");
    refused({"pp", "dp_shard"}, "", MUSTER_ERR_BAD_ARGUMENT, "is named \"\"");
    refused({"pp", "ep"}, "mine", MUSTER_ERR_BAD_ARGUMENT, "expert view");
    refused({"pp", nullptr}, "mine", MUSTER_ERR_BAD_ARGUMENT, "the name of dim 1 of 2 is missing");
    refused({"pp", ""}, "mine", MUSTER_ERR_BAD_ARGUMENT, "the name of dim 1 of 2 is missing");
    refused({}, "mine", MUSTER_ERR_BAD_ARGUMENT, "at least one name");
    refused({"pp"}, nullptr, MUSTER_ERR_BAD_ARGUMENT, "name must not be NULL");
    EXPECT_FALSE(knows(member, "mine"));
    for (int i = 0; i < 32; ++i)
      ASSERT_EQ(flatten(member, {"dp_shard", "tp"}, ("flat" + std::to_string(i)).c_str()), MUSTER_OK);
    refused({"dp_shard", "tp"}, "one_more", MUSTER_ERR_NO_RESOURCE, "has 32 flattens already");
  });
}

class FewGroupsOfMeshes : public Meshes {
 protected:
  void SetUp() override {
    node_.options.job_defaults.groups_made_max = 1;
    Meshes::SetUp();
  }
};

TEST_F(FewGroupsOfMeshes, NameNothingWhereThereIsNoRoomForTheGroup) {
  mesh = "pp=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    EXPECT_EQ(flatten(member, {"pp", "dp_shard"}, "one"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(flatten(member, {"pp", "dp_shard"}, "two"), MUSTER_ERR_NO_RESOURCE);
    EXPECT_THAT(muster_last_error(), HasSubstr("limits.groups_made_max (1)"));
    EXPECT_TRUE(knows(member, "one"));
    EXPECT_FALSE(knows(member, "two"));
    meet_and_leave(member);
  });
}

// Goal:   flattened dims of a made mesh go with it.
TEST_F(FewGroupsOfMeshes, LoseTheirFlattenedNamesAndSlicesWithTheMesh) {
  with_ranks(4, [&](Member& member) {
    meet_and_leave(member);
    for (int round = 0; round < 3; ++round) {
      // A mesh over this rank alone takes no room for groups.
      muster_mesh made = 0;
      ASSERT_EQ(muster_mesh_make(member.session, MUSTER_GROUP_SELF, "tp=1", &made), MUSTER_OK)
          << muster_last_error();
      ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
      EXPECT_EQ(flatten(member, {"cp", "tp"}, "inner"), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(group_of(member, "inner"), MUSTER_GROUP_SELF);
      const muster_mesh part = slice(member, {"inner"});
      ASSERT_EQ(muster_mesh_use(member.session, part), MUSTER_OK);
      EXPECT_EQ(muster_mesh_free(member.session, part), MUSTER_ERR_BUSY);
      EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_ERR_BUSY) << "a slice of it is in use";
      ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
      EXPECT_FALSE(knows(member, "inner"));
      EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_mesh_use(member.session, part), MUSTER_ERR_STALE);
      EXPECT_EQ(muster_mesh_free(member.session, part), MUSTER_ERR_STALE);
    }
  });
}

TEST_F(Meshes, FlattenMadeMeshesToo) {
  with_ranks(8, [&](Member& member) {
    const std::int32_t backwards[] = {7, 6, 5, 4, 3, 2, 1, 0};
    muster_group all = 0;
    ASSERT_EQ(muster_group_make(member.session, backwards, 8, nullptr, &all), MUSTER_OK);
    muster_mesh made = 0;
    ASSERT_EQ(muster_mesh_make(member.session, all, "pp=2,dp_shard=2,tp=2", &made), MUSTER_OK);
    ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
    ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, "stages"), MUSTER_OK) << muster_last_error();
    const muster_group group = group_of(member, "stages");
    const std::int32_t odd = member.rank % 2;
    EXPECT_THAT(members(member, group), ElementsAre(6 + odd, 4 + odd, 2 + odd, odd));
    expect_sum_of(member, group, {odd, 2 + odd, 4 + odd, 6 + odd});
    muster_collective c = barrier_of(member, group);
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK);
    ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_ERR_BUSY) << "a plan uses it";
    ASSERT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(member.run(c), MUSTER_ERR_STALE);
  });
}

// Goal:   a group that two meshes have named alike stays until the last of them is gone.
TEST_F(Meshes, ShareAFlattenedGroupWithAnotherMesh) {
  mesh = "pp=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& member) {
    ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, "stages"), MUSTER_OK) << muster_last_error();
    const muster_group group = group_of(member, "stages");
    muster_collective c = barrier_of(member, group);
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK);
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    muster_mesh made = 0;
    ASSERT_EQ(muster_mesh_make(member.session, member.group, mesh.c_str(), &made), MUSTER_OK);
    ASSERT_EQ(muster_mesh_use(member.session, made), MUSTER_OK);
    ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, "stages"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "stages"), group);
    ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
    EXPECT_EQ(muster_mesh_free(member.session, made), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "stages"), group);
    meet_and_leave(member);
  });
}

// ---- slices

TEST_F(Meshes, HaveSlicesWithTheirNamesAndProductsAlone) {
  mesh = "pp=2,dp_replicate=2,dp_shard=2,cp=1,tp=2";
  with_ranks(16, [&](Member& member) {
    const muster_group dp = group_of(member, "dp");
    const muster_mesh data = slice(member, {"dp_replicate", "dp_shard"});
    ASSERT_EQ(muster_mesh_use(member.session, data), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "dp"), dp) << "a product of the two";
    EXPECT_EQ(group_of(member, "batch"), dp);
    EXPECT_EQ(place(member, "dp"), (Place{member.rank / 2 % 4, 4}));
    for (const char* other : {"pp", "tp", "dp_cp", "dp_shard_cp", "weight", "world", "nonsense"})
      EXPECT_FALSE(knows(member, other)) << other;
    EXPECT_THAT(muster_last_error(), HasSubstr("slice [dp_replicate, dp_shard] of mesh pp=2,"));
    EXPECT_THAT(muster_last_error(), HasSubstr("valid names: dp_replicate, dp_shard, dp, batch"));
    expect_sum_of(member, group_of(member, "dp"), members(member, dp));
    // A slice of a slice is one of the mesh.
    const muster_mesh shards = slice(member, {"dp_shard"});
    EXPECT_EQ(no_slice(member, {"dp_shard", "tp"}), MUSTER_ERR_NOT_FOUND);
    EXPECT_EQ(flatten(member, {"dp_shard", "tp"}, "inner"), MUSTER_ERR_NOT_FOUND);
    EXPECT_EQ(flatten(member, {"dp_replicate", "dp_shard"}, "data"), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(group_of(member, "data"), dp);
    ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
    EXPECT_EQ(group_of(member, "data"), dp) << "flattened in the mesh";
    EXPECT_EQ(slice(member, {"dp_shard"}), shards);
    EXPECT_EQ(slice(member, {"dp_replicate", "dp_shard"}), data);
    EXPECT_EQ(muster_mesh_free(member.session, data), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_mesh_use(member.session, data), MUSTER_ERR_STALE);
    expect_sum_of(member, dp, members(member, dp));
    const muster_mesh again = slice(member, {"dp_replicate", "dp_shard"});
    EXPECT_EQ(muster_mesh_use(member.session, again), MUSTER_OK);
    EXPECT_EQ(no_slice(member, {}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(no_slice(member, {"dp_shard", "dp_shard"}), MUSTER_ERR_BAD_ARGUMENT);
  });
}

// ---- groups without further creation

class NoGroupsBesideTheMesh : public Meshes {
 protected:
  void SetUp() override {
    node_.options.job_defaults.groups_made_max = 0;
    Meshes::SetUp();
  }
};

// Goal:   case M12: collectives on derived groups need no creation, and no rank outside of the group.
// Method: a job that has no room for a made group; only the members of one group of each name do anything.
TEST_F(NoGroupsBesideTheMesh, WorkAmongTheirMembersAlone) {
  mesh = "pp=2,dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(16, [&](Member& member) {
    struct Case {
      const char* name;
      std::vector<std::int32_t> ranks;  // of one of its groups
    };
    const Case cases[] = {
        {"dp", {1, 3, 5, 7}},     {"batch", {8, 10, 12, 14}}, {"dp_shard_cp", {4, 6}},
        {"fsdp", {9, 11}},        {"dp_cp", {0, 2, 4, 6}},    {"loss", {9, 11, 13, 15}},
        {"weight", {4, 5, 6, 7}}, {"efsdp", {8, 9, 10, 11}},  {"non_pp", {0, 1, 2, 3, 4, 5, 6, 7}}};
    for (const Case& c : cases) {
      if (std::find(c.ranks.begin(), c.ranks.end(), member.rank) != c.ranks.end()) {
        const muster_group group = group_of(member, c.name);
        EXPECT_EQ(members(member, group), c.ranks) << c.name;
        expect_sum_of(member, group, c.ranks);
      }
      await_all(member);
    }
  });
}

// ---- deadlines

class MeshDeadlines : public Meshes {
 protected:
  void SetUp() override {
    node_.options.job_defaults.deadline = kLong;
    Meshes::SetUp();
    mesh = "pp=2,dp_shard=2,tp=2";
  }
  static void set(const Member& member, muster_mesh of, std::int64_t deadline_ns) {
    ASSERT_EQ(muster_mesh_deadline(member.session, of, deadline_ns), MUSTER_OK) << muster_last_error();
  }
  // Both paths: the last member of the group stays away, and the others hear so after the short deadline.
  void expect_short(Member& member, muster_group group) {
    const std::int32_t missing = members(member, group).back();
    const muster_collective c = barrier_of(member, group);
    for (const bool started : {false, true}) {
      const auto meet = [&] { return started ? start_and_wait(member, c) : member.run(c); };
      const auto begun = std::chrono::steady_clock::now();
      if (member.rank != missing) {
        EXPECT_EQ(meet(), MUSTER_ERR_TIMEOUT) << member.error;
        EXPECT_THAT(member.error, HasSubstr("missing rank " + std::to_string(missing)));
        const auto took = std::chrono::steady_clock::now() - begun;
        EXPECT_LT(took, kLong / 3);
      }
      await_all(member);
      if (member.rank == missing) {
        EXPECT_EQ(meet(), MUSTER_ERR_TIMEOUT) << member.error;
      }
      EXPECT_EQ(muster_lane_reset(member.session, MUSTER_LANE_SMALL), MUSTER_OK);
      await_all(member);
    }
  }
  // Both paths: the last member comes after the short deadline, and that is early enough.
  void expect_long(Member& member, muster_group group) {
    const muster_collective c = barrier_of(member, group);
    for (const bool started : {false, true}) {
      if (member.rank == members(member, group).back()) std::this_thread::sleep_for(2 * kShort);
      EXPECT_EQ(started ? start_and_wait(member, c) : member.run(c), MUSTER_OK) << member.error;
      await_all(member);
    }
  }
};

// Goal:   case M13: a change reaches every group of the mesh, derived and flattened ones too, and no other
//         group.
TEST_F(MeshDeadlines, AreThoseOfAllGroupsOfTheMesh) {
  with_ranks(8, [&](Member& member) {
    muster_mesh other = 0;
    ASSERT_EQ(muster_mesh_make(member.session, member.group, "pp=2,dp_shard=2,tp=2", &other), MUSTER_OK);
    ASSERT_EQ(muster_mesh_use(member.session, other), MUSTER_OK);
    const muster_group others = group_of(member, "weight");
    ASSERT_EQ(muster_mesh_use(member.session, MUSTER_MESH_JOB), MUSTER_OK);
    ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, "before"), MUSTER_OK) << muster_last_error();
    // Ranks know some of the groups before the change, and plans too.
    EXPECT_EQ(member.run(barrier_of(member, group_of(member, "weight"))), MUSTER_OK) << member.error;
    await_all(member);
    set(member, MUSTER_MESH_JOB, kShortNs);
    ASSERT_EQ(flatten(member, {"pp", "dp_shard"}, "after"), MUSTER_OK) << muster_last_error();
    await_all(member);
    for (const char* name : {"weight", "dp", "before", "after"}) expect_short(member, group_of(member, name));
    expect_long(member, others);
    set(member, other, kShortNs);
    set(member, MUSTER_MESH_JOB, 0);
    expect_long(member, group_of(member, "weight"));
    expect_long(member, group_of(member, "before"));
    expect_short(member, others);
  });
}

// Goal:   a session that attaches after the change has the new deadline too.
TEST_F(MeshDeadlines, AreFoundByLaterSessions) {
  with_ranks(8, [&](Member& member) {
    set(member, MUSTER_MESH_JOB, kShortNs);
    await_all(member);
    if (member.rank == 7) {
      ASSERT_EQ(muster_close(member.session), MUSTER_OK);
      member = open(7, 8);
      const auto begun = std::chrono::steady_clock::now();
      const muster_collective c = barrier_of(member, group_of(member, "tp"));
      EXPECT_EQ(member.run(c), MUSTER_ERR_TIMEOUT) << member.error;
      EXPECT_EQ(start_and_wait(member, c), MUSTER_ERR_TIMEOUT) << member.error;
      EXPECT_LT(std::chrono::steady_clock::now() - begun, kLong / 3);
    }
    await_all(member);
  });
}

TEST_F(MeshDeadlines, AreRefusedWhereTheyCannotBeAndWhereRanksDisagree) {
  with_ranks(8, [&](Member& member) {
    EXPECT_EQ(muster_mesh_deadline(member.session, MUSTER_MESH_JOB, -1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_mesh_deadline(member.session, 12345, 1), MUSTER_ERR_STALE);
    const muster_mesh part = slice(member, {"pp", "tp"});
    EXPECT_EQ(muster_mesh_deadline(member.session, part, 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("a slice has the groups of its mesh"));
    EXPECT_EQ(muster_mesh_deadline(member.session, MUSTER_MESH_JOB, member.rank == 3 ? 5 : 4),
              MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 0 4 ns, rank 3 5 ns"));
    expect_long(member, group_of(member, "weight"));
  });
}

}  // namespace
