// Buffers that are more than memory of one session: named, node-shared, imported.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <csignal>
#include <cstring>
#include <numeric>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

struct Special {
  muster_buffer buffer = 0;
  float* data = nullptr;
  bool found = false;
  muster_status_t status = MUSTER_OK;
};

class Buffers : public muster::test::RunningRanks {
 protected:
  static Special create(const Member& member, const muster_buffer_options& options) {
    Special made;
    void* address = nullptr;
    made.status = muster_buffer_create(member.session, &options, &made.buffer, &address);
    made.data = static_cast<float*>(address);
    if (made.status != MUSTER_OK) return made;
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    EXPECT_EQ(muster_buffer_query(member.session, made.buffer, &info), MUSTER_OK);
    EXPECT_EQ(info.bytes, options.bytes);
    EXPECT_EQ(info.address, address);
    made.found = info.found != 0;
    return made;
  }
  static muster_buffer_options named(const char* name, std::uint64_t bytes, muster_group shared_by = 0) {
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = bytes;
    options.name = name;
    options.shared_by = shared_by;
    return options;
  }
  static muster_collective over(const Member& member, muster_op op, std::uint64_t count) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = op;
    c.group = member.group;
    c.dtype = MUSTER_F32;
    c.redop = op == MUSTER_ALL_REDUCE ? MUSTER_SUM : 0;
    c.count = count;
    return c;
  }
  // The same, on the engine's workers.
  static muster_status_t start_and_wait(Member& member, const muster_collective& c) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_GATHER;
    muster_point point = 0;
    muster_status_t status = muster_collect(member.session, &c, &submit, &point);
    if (status == MUSTER_OK) status = muster_point_wait(member.session, point, -1);
    member.error = muster_last_error();
    return status;
  }
};

int memfd(std::size_t bytes, unsigned seals) {
  const int fd = ::memfd_create("imported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  }
  return fd;
}

TEST_F(Buffers, KeepTheirContentsUnderTheirNameUntilTheyAreFreed) {
  for (int life = 0; life < 3; ++life) {
    with_ranks(2, [&](Member& member) {
      const Special weights = create(member, named("weights", 4000));
      ASSERT_EQ(weights.status, MUSTER_OK) << muster_last_error();
      EXPECT_EQ(weights.found, life == 1) << "life " << life;
      EXPECT_EQ(weights.data[7], life == 1 ? 100.0f + static_cast<float>(member.rank) : 0.0f);
      weights.data[7] = 100.0f + static_cast<float>(member.rank);
      EXPECT_EQ(create(member, named("weights", 4000)).status, MUSTER_ERR_DUPLICATE);
      EXPECT_EQ(create(member, named("weights", 8000)).status, MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_THAT(muster_last_error(), HasSubstr("'weights' has 4000 bytes, 8000 are asked for"));
      if (life == 1) {
        EXPECT_EQ(muster_buffer_free(member.session, weights.buffer), MUSTER_OK);
      }
    });
  }
}

// Goal:   the same after a kill.
// Method: the first life is a process of its own, which says that it has written and then waits for its
//         death.
TEST_F(Buffers, KeepTheirContentsWhenTheirProcessIsKilled) {
  int written[2];
  ASSERT_EQ(::pipe(written), 0);
  const pid_t child = node_.fork();
  if (child == 0) {
    const Member member = open(0, 1);
    const Special weights = create(member, named("weights", 4000));
    if (weights.status != MUSTER_OK) ::_exit(1);
    weights.data[7] = 123.0f;
    if (::write(written[1], "w", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(written[0], &said, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  with_ranks(1, [&](Member& member) {
    const Special weights = create(member, named("weights", 4000));
    ASSERT_EQ(weights.status, MUSTER_OK) << muster_last_error();
    EXPECT_TRUE(weights.found);
    EXPECT_EQ(weights.data[7], 123.0f);
  });
  ::close(written[0]);
  ::close(written[1]);
}

// Goal:   data in named memory is used like any other.
TEST_F(Buffers, ReduceFromANamedBufferOnBothPaths) {
  constexpr std::size_t kCount = 40000;
  with_ranks(3, [&](Member& member) {
    const Special source = create(member, named("gradients", kCount * sizeof(float)));
    const Vector target = vector_of(member, kCount);
    std::fill_n(source.data, kCount, static_cast<float>(member.rank + 1));
    muster_collective c = over(member, MUSTER_ALL_REDUCE, kCount);
    c.source = {source.buffer, 0};
    c.target = {target.buffer, 0};
    ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    EXPECT_EQ(target.data[kCount - 1], 6.0f);
    target.data[kCount - 1] = 0;
    ASSERT_EQ(start_and_wait(member, c), MUSTER_OK) << member.error;
    EXPECT_EQ(target.data[kCount - 1], 6.0f);
  });
}

// Goal:   all-gather of shards that lie in the shared buffer, and of shards that do not; uneven blocks.
TEST_F(Buffers, GatherIntoOneSharedResult) {
  for (const int world : {1, 2, 4}) {
    with_ranks(world, [&](Member& member) {
      std::vector<std::uint64_t> counts(static_cast<std::size_t>(world));
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i == 1 ? 0 : 1000 * (i + 1);
      const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
      const std::uint64_t first =
          std::accumulate(counts.begin(), counts.begin() + member.rank, std::uint64_t{0});
      const Special all = create(member, named("parameters", total * sizeof(float), member.group));
      ASSERT_EQ(all.status, MUSTER_OK) << muster_last_error();
      const Vector own = vector_of(member, 5000);
      for (const bool in_place : {true, false}) {
        for (const bool engine : {false, true}) {
          const float value =
              static_cast<float>(member.rank) + (in_place ? 10.0f : 20.0f) + (engine ? 100.0f : 0.0f);
          std::fill_n(in_place ? all.data + first : own.data, counts[static_cast<std::size_t>(member.rank)],
                      value);
          muster_collective c = over(member, MUSTER_ALL_GATHER, 0);
          c.source = in_place ? muster_range{all.buffer, first * sizeof(float)} : muster_range{own.buffer, 0};
          c.target = {all.buffer, 0};
          c.target_blocks.counts = counts.data();
          ASSERT_EQ(engine ? start_and_wait(member, c) : member.run(c), MUSTER_OK) << member.error;
          for (std::size_t i = 0, at = 0; i < counts.size(); at += counts[i], ++i)
            for (std::uint64_t k = 0; k < counts[i]; ++k)
              ASSERT_EQ(all.data[at + k], value - static_cast<float>(member.rank) + static_cast<float>(i))
                  << "world " << world << ", block " << i << ", element " << k;
          // Nobody writes the next round's block while another still looks at this one's.
          ASSERT_EQ(member.run(member.barrier()), MUSTER_OK);
        }
      }
    });
  }
}

TEST_F(Buffers, MoveNothingWhereShardsLieInTheSharedResult) {
  with_ranks(2, [&](Member& member) {
    constexpr std::uint64_t kBytes = 1 << 20;
    const Special all = create(member, named("parameters", 2 * kBytes, member.group));
    muster_collective c = over(member, MUSTER_ALL_GATHER, kBytes / sizeof(float));
    c.source = {all.buffer, static_cast<std::uint64_t>(member.rank) * kBytes};
    c.target = {all.buffer, 0};
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    ASSERT_EQ(muster_counter(member.session, "run_bytes_moved", &before), MUSTER_OK);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    ASSERT_EQ(muster_counter(member.session, "run_bytes_moved", &after), MUSTER_OK);
    EXPECT_EQ(after, before);
  });
}

TEST_F(Buffers, ReduceAndBroadcastIntoOneSharedResult) {
  constexpr std::size_t kCount = 70001;
  with_ranks(3, [&](Member& member) {
    const Special all = create(member, named("result", kCount * sizeof(float), member.group));
    const Vector own = vector_of(member, kCount);
    for (const bool engine : {false, true}) {
      for (std::size_t i = 0; i < kCount; ++i)
        own.data[i] = static_cast<float>(i % 1000) * static_cast<float>(member.rank + 1);
      muster_collective sum = over(member, MUSTER_ALL_REDUCE, kCount);
      sum.source = {own.buffer, 0};
      sum.target = {all.buffer, 0};
      ASSERT_EQ(engine ? start_and_wait(member, sum) : member.run(sum), MUSTER_OK) << member.error;
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(all.data[i], static_cast<float>(i % 1000) * 6);
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK);
      muster_collective spread = over(member, MUSTER_BROADCAST, kCount);
      spread.peer = 2;
      spread.source = {own.buffer, 0};
      spread.target = {all.buffer, 0};
      ASSERT_EQ(engine ? start_and_wait(member, spread) : member.run(spread), MUSTER_OK) << member.error;
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(all.data[i], static_cast<float>(i % 1000) * 3);
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK);
    }
    muster_collective in_place = over(member, MUSTER_ALL_REDUCE, kCount);
    in_place.source = in_place.target = {all.buffer, 0};
    EXPECT_EQ(member.run(in_place), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(member.error, HasSubstr("the source of an all_reduce must lie elsewhere"));
  });
}

// Goal:   ranks see each other's writes where they are on one node. On two, each node has a memory of its
//         own.
// Method: each of four ranks writes its slot.
TEST_F(Buffers, AreOneMemoryForTheMembersOnANode) {
  with_ranks(4, [&](Member& member) {
    const Special all = create(member, named("slots", 4 * sizeof(float), member.group));
    ASSERT_EQ(all.status, MUSTER_OK) << muster_last_error();
    all.data[member.rank] = static_cast<float>(member.rank + 1);
    meet_and_leave(member);
    for (int rank = 0; rank < 4; ++rank) {
      const bool here = !node_.several() || rank / 2 == member.rank / 2;
      EXPECT_EQ(all.data[rank], here ? static_cast<float>(rank + 1) : 0.0f) << "rank " << rank;
    }
    meet_and_leave(member);
  });
}

// Goal:   a group whose members do not all share the memory has a result for each of them, as ever.
// Method: the first two of four ranks share a buffer, in which each has a place of its own.
TEST_F(Buffers, AreOrdinaryTargetsOfAGroupThatDoesNotShareThem) {
  with_ranks(4, [&](Member& member) {
    Special place{vector_of(member, 20).buffer};
    if (member.rank < 2) {
      const std::int32_t two[] = {0, 1};
      muster_group pair = 0;
      ASSERT_EQ(muster_group_make(member.session, two, 2, "pair", &pair), MUSTER_OK) << muster_last_error();
      place = create(member, named("result", 20 * sizeof(float), pair));
    } else {
      muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
      ASSERT_EQ(muster_buffer_query(member.session, place.buffer, &info), MUSTER_OK);
      place.data = static_cast<float*>(info.address);
    }
    const Vector own = vector_of(member, 10);
    const std::size_t at = member.rank == 1 ? 10 : 0;
    muster_collective sum = over(member, MUSTER_ALL_REDUCE, 10);
    sum.source = {own.buffer, 0};
    sum.target = {place.buffer, at * sizeof(float)};
    for (const bool engine : {false, true}) {
      std::fill_n(own.data, 10, static_cast<float>(member.rank + 1));
      std::fill_n(place.data + at, 10, -1.0f);
      ASSERT_EQ(engine ? start_and_wait(member, sum) : member.run(sum), MUSTER_OK) << member.error;
      for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(place.data[at + i], 10.0f);
      meet_and_leave(member);
    }
  });
}

TEST_F(Buffers, SayWhoMeansAnotherSharedResult) {
  with_ranks(2, [&](Member& member) {
    const Special all = create(member, named("result", 400, member.group));
    const Vector own = vector_of(member, 100);
    for (const bool engine : {false, true}) {
      muster_collective c = over(member, MUSTER_ALL_GATHER, 50);
      c.source = {own.buffer, 0};
      c.target = {member.rank == 0 ? all.buffer : own.buffer, 0};
      if (member.rank == 1) c.source.offset_bytes = 200;
      ASSERT_EQ(engine ? start_and_wait(member, c) : member.run(c), MUSTER_ERR_MISMATCH) << member.error;
      EXPECT_THAT(member.error, HasSubstr("byte 0 of node-shared memory"));
      EXPECT_THAT(member.error, HasSubstr("its own memory"));
      if (engine) {
        EXPECT_EQ(muster_lane_reset(member.session, MUSTER_LANE_GATHER), MUSTER_OK);
      }
    }
  });
}

// Goal:   blocks of one result lie where all say that they do, or no byte moves.
TEST_F(Buffers, SayWhoPutsABlockOfTheSharedResultElsewhere) {
  with_ranks(2, [&](Member& member) {
    const Special all = create(member, named("result", 400, member.group));
    const Vector own = vector_of(member, 50);
    const std::uint64_t swapped[] = {50, 0};
    for (const bool engine : {false, true}) {
      muster_collective c = over(member, MUSTER_ALL_GATHER, 50);
      c.source = {own.buffer, 0};
      c.target = {all.buffer, 0};
      if (member.rank == 1) c.target_blocks.offsets = swapped;
      ASSERT_EQ(engine ? start_and_wait(member, c) : member.run(c), MUSTER_ERR_MISMATCH) << member.error;
      EXPECT_THAT(member.error, HasSubstr("target_blocks.offsets[0]: 0 at rank 0 and 50 at rank 1"));
      if (engine) {
        EXPECT_EQ(muster_lane_reset(member.session, MUSTER_LANE_GATHER), MUSTER_OK);
      }
    }
  });
}

// Goal:   peers read what was imported, after it was freed and other memory came in its place as well.
TEST_F(Buffers, AreImportedAndReadByPeers) {
  constexpr std::size_t kCount = 100000;
  with_ranks(2, [&](Member& member) {
    const Vector target = vector_of(member, kCount);
    for (int round = 0; round < 3; ++round) {
      const int fd = memfd(kCount * sizeof(float) + 4096, F_SEAL_SHRINK);
      muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
      options.bytes = kCount * sizeof(float);
      options.memory = fd;
      options.memory_offset_bytes = 4096;
      const Special source = create(member, options);
      ASSERT_EQ(source.status, MUSTER_OK) << muster_last_error();
      // The caller's own view of it.
      void* view = ::mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
      ::close(fd);
      std::fill_n(static_cast<float*>(view), kCount, static_cast<float>(member.rank + round));
      muster_collective c = over(member, MUSTER_ALL_REDUCE, kCount);
      c.source = {source.buffer, 0};
      c.target = {target.buffer, 0};
      muster_plan plan = 0;
      ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(target.data[kCount - 1], static_cast<float>(2 * round + 1));
      EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_ERR_BUSY);
      ASSERT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK);
      ASSERT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_OK) << muster_last_error();
      ::munmap(view, options.bytes);
    }
  });
}

TEST_F(Buffers, RefuseWhatIsNoMemoryToImport) {
  with_ranks(1, [&](Member& member) {
    const auto refusal = [&](int fd, std::uint64_t bytes, std::uint64_t offset) {
      muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
      options.bytes = bytes;
      options.memory = fd;
      options.memory_offset_bytes = offset;
      const Special made = create(member, options);
      EXPECT_EQ(made.status, MUSTER_ERR_BAD_ARGUMENT);
      if (fd > 2) ::close(fd);
      return std::string(muster_last_error());
    };
    EXPECT_THAT(refusal(memfd(4096, 0), 4096, 0), HasSubstr("needs F_SEAL_SHRINK"));
    EXPECT_THAT(refusal(memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), 4096, 0),
                HasSubstr("sealed against writing"));
    EXPECT_THAT(refusal(memfd(4096, F_SEAL_SHRINK), 4097, 0), HasSubstr("not inside the memfd's 4096"));
    EXPECT_THAT(refusal(memfd(4096, F_SEAL_SHRINK), 64, 32), HasSubstr("not a multiple of 64"));
    EXPECT_THAT(refusal(::open("/dev/null", O_RDWR | O_CLOEXEC), 64, 0), HasSubstr("is no memfd"));
    EXPECT_THAT(refusal(1 << 20, 64, 0), HasSubstr("no open descriptor"));
    const int fd = memfd(4096, F_SEAL_SHRINK);
    muster_buffer_options both = named("both", 64);
    both.memory = fd;
    EXPECT_EQ(create(member, both).status, MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("cannot have a name"));
    ::close(fd);
    muster_buffer_options nameless = MUSTER_BUFFER_OPTIONS_INIT;
    nameless.bytes = 64;
    nameless.shared_by = member.group;
    EXPECT_EQ(create(member, nameless).status, MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("needs a name"));
    // The session has not suffered.
    EXPECT_EQ(create(member, named("fine", 64)).status, MUSTER_OK) << muster_last_error();
  });
}

}  // namespace
