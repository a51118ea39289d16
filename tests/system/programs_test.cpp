// Random programs of eight ranks on the mesh 2 x 2 x 2: operations of all groups, in another order at each
// rank, on all lanes and both paths. All finish, with the right results.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <numeric>
#include <random>

namespace {

using muster::test::Member;

constexpr int kWorld = 8;
constexpr std::size_t kSlots = 24;       // operations of a program
constexpr std::size_t kSlotInts = 4096;  // of each operation's source and target
const char* const kDims[] = {"dp_replicate", "dp_shard", "tp", "dp", "dp_shard_cp", "world"};

// One operation, as all its members know it.
struct Operation {
  std::size_t slot = 0;
  std::size_t dim = 0;
  muster_op op = MUSTER_ALL_REDUCE;
  std::uint64_t count = 0;
  muster_lane lane = 0;  // where it is started
  bool runs = false;
};

// What goes on one lane, or is run, goes in one order everywhere: a lane is ordered, and who runs waits. All
// else is mixed by each rank as it likes.
std::vector<Operation> program_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Operation> program;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    Operation o;
    o.slot = slot;
    o.dim = random() % std::size(kDims);
    constexpr muster_op kOps[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_BROADCAST, MUSTER_BARRIER};
    o.op = kOps[random() % std::size(kOps)];
    o.count = random() % 8 == 0 ? random() % (kSlotInts / kWorld) : random() % 20;
    o.lane = static_cast<muster_lane>(random() % MUSTER_LANE_COUNT);
    o.runs = random() % 3 == 0;
    program.push_back(o);
  }
  return program;
}

std::vector<Operation> order_of(const std::vector<Operation>& program, std::uint64_t seed, int rank) {
  std::mt19937_64 random(seed * 31 + static_cast<std::uint64_t>(rank));
  // Queues of what must stay in order, merged at random.
  std::array<std::vector<Operation>, MUSTER_LANE_COUNT + 1> queues;
  for (const Operation& o : program) queues[o.runs ? std::size_t{MUSTER_LANE_COUNT} : o.lane].push_back(o);
  std::vector<Operation> order;
  std::array<std::size_t, MUSTER_LANE_COUNT + 1> next{};
  while (order.size() < program.size()) {
    const std::size_t q = random() % queues.size();
    if (next[q] < queues[q].size()) order.push_back(queues[q][next[q]++]);
  }
  return order;
}

class Programs : public muster::test::RunningRanks {
 protected:
  // One rank's part in all programs.
  struct Part {
    Member& member;
    std::array<muster_group, std::size(kDims)> groups{};
    std::array<std::vector<std::int32_t>, std::size(kDims)> ranks;
    muster_buffer source = 0, target = 0;
    std::int32_t* given = nullptr;
    std::int32_t* got = nullptr;
  };

  static Part part_of(Member& member) {
    Part part{member, {}, {}, 0, 0, nullptr, nullptr};
    for (std::size_t d = 0; d < std::size(kDims); ++d) {
      EXPECT_EQ(muster_mesh_group(member.session, kDims[d], &part.groups[d]), MUSTER_OK)
          << muster_last_error();
      part.ranks[d].resize(kWorld);
      std::size_t count = 0;
      EXPECT_EQ(muster_group_ranks(member.session, part.groups[d], part.ranks[d].data(), kWorld, &count),
                MUSTER_OK);
      part.ranks[d].resize(count);
    }
    void* given = nullptr;
    void* got = nullptr;
    constexpr std::uint64_t kBytes = kSlots * kSlotInts * sizeof(std::int32_t);
    EXPECT_EQ(muster_buffer_alloc(member.session, kBytes, &part.source, &given), MUSTER_OK);
    EXPECT_EQ(muster_buffer_alloc(member.session, kBytes, &part.target, &got), MUSTER_OK);
    part.given = static_cast<std::int32_t*>(given);
    part.got = static_cast<std::int32_t*>(got);
    return part;
  }

  static std::int32_t value(std::uint64_t seed, std::size_t slot, int rank, std::uint64_t i) {
    return static_cast<std::int32_t>((seed * 7 + slot * 101 + static_cast<std::uint64_t>(rank) * 1009 + i) %
                                     100003);
  }

  static muster_collective collective_of(const Part& part, const Operation& o) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = o.op;
    c.group = part.groups[o.dim];
    if (o.op == MUSTER_BARRIER) return c;
    c.dtype = MUSTER_I32;
    c.redop = o.op == MUSTER_ALL_REDUCE ? MUSTER_SUM : 0;
    c.count = o.count;
    const std::uint64_t offset = o.slot * kSlotInts * sizeof(std::int32_t);
    c.source = {part.source, offset};
    c.target = {part.target, offset};
    if (o.op == MUSTER_BROADCAST) c.peer = static_cast<std::int32_t>(o.slot % part.ranks[o.dim].size());
    return c;
  }

  static muster_status_t take(const Part& part, const Operation& o, muster_point* point) {
    const muster_collective c = collective_of(part, o);
    muster_plan plan = 0;
    muster_status_t status = muster_plan_collective(part.member.session, &c, &plan);
    if (status != MUSTER_OK) return status;
    plans(part).push_back(plan);
    if (o.runs) return muster_plan_run(part.member.session, plan, 0);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = o.lane;
    return muster_plan_start(part.member.session, plan, &submit, point);
  }
  static std::vector<muster_plan>& plans(const Part& part) {
    static thread_local std::vector<muster_plan> made;
    static_cast<void>(part);
    return made;
  }

  static void check(const Part& part, const Operation& o, std::uint64_t seed) {
    const std::int32_t* got = part.got + o.slot * kSlotInts;
    const auto& ranks = part.ranks[o.dim];
    for (std::uint64_t i = 0; i < o.count && o.op != MUSTER_BARRIER; ++i) {
      if (o.op == MUSTER_ALL_REDUCE) {
        std::int32_t sum = 0;
        for (const std::int32_t rank : ranks) sum += value(seed, o.slot, rank, i);
        ASSERT_EQ(got[i], sum) << "seed " << seed << ", slot " << o.slot << ", element " << i;
      } else if (o.op == MUSTER_BROADCAST) {
        ASSERT_EQ(got[i], value(seed, o.slot, ranks[o.slot % ranks.size()], i)) << "seed " << seed;
      } else {
        for (std::size_t m = 0; m < ranks.size(); ++m)
          ASSERT_EQ(got[m * o.count + i], value(seed, o.slot, ranks[m], i)) << "seed " << seed;
      }
    }
  }

  static void run_program(const Part& part, std::uint64_t seed) {
    const std::vector<Operation> program = program_of(seed);
    for (const Operation& o : program)
      for (std::uint64_t i = 0; i < o.count; ++i)
        part.given[o.slot * kSlotInts + i] = value(seed, o.slot, part.member.rank, i);
    std::vector<muster_point> points;
    for (const Operation& o : order_of(program, seed, part.member.rank)) {
      muster_point point = 0;
      ASSERT_EQ(take(part, o, &point), MUSTER_OK) << "seed " << seed << ": " << muster_last_error();
      points.push_back(point);
    }
    for (const muster_point point : points)
      ASSERT_EQ(muster_point_wait(part.member.session, point, -1), MUSTER_OK)
          << "seed " << seed << ": " << muster_last_error();
    for (const Operation& o : program) check(part, o, seed);
    for (const muster_plan plan : plans(part))
      ASSERT_EQ(muster_plan_destroy(part.member.session, plan), MUSTER_OK);
    plans(part).clear();
  }
};

TEST_F(Programs, FinishWhateverTheOrderAcrossGroups) {
  const std::uint64_t programs = muster::test::property_cases(100);
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  std::barrier between(kWorld);
  with_ranks(kWorld, [&](Member& member) {
    Part part = part_of(member);
    for (std::uint64_t seed = 0; seed < programs; ++seed) {
      between.arrive_and_wait();  // targets are looked at before they are used again
      if (!HasFatalFailure()) run_program(part, seed);
    }
  });
}

}  // namespace
