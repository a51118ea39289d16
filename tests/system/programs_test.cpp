// Random programs of eight ranks on the mesh 2 x 2 x 2: operations of all groups, in another order at each
// rank, on all lanes, where they wait for each other, and both paths, in memory of each kind; half of them
// with all that an operation may have (drawn.hpp). All finish, with the right results.
#include <muster/muster.h>

#include "api/base/collective/collective.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/system/drawn.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using muster::test::Drawn;
using muster::test::kDrawnBytes;
using muster::test::Member;

constexpr int kWorld = 8;
constexpr std::size_t kSlots = 36;       // operations of a program
constexpr std::size_t kSlotInts = 4096;  // of each operation's source and target
const char* const kDims[] = {"dp_replicate", "dp_shard", "tp", "dp", "dp_shard_cp", "world"};
constexpr std::int32_t kMembers[] = {2, 2, 2, 4, 2, 8};  // of a group along it

// The kind of memory of a vector. An EXCHANGE uses an array with ghosts, in any kind of memory.
enum Kind : std::size_t { kPlain, kNamed, kImported, kShared, kKinds };
constexpr std::size_t kColumns = 5;  // of such an array, without its ghosts
constexpr std::size_t kStride = kColumns + 2;

// One operation, as all its members know it.
struct Operation {
  std::size_t slot = 0;
  std::size_t dim = 0;
  muster_op op = MUSTER_ALL_REDUCE;
  std::uint64_t count = 0;
  muster_lane lane = 0;  // where it is started
  bool runs = false;
  bool shares_target = false;          // one result for all of its members
  std::shared_ptr<const Drawn> drawn;  // if so, it and not `op` and `count` say what this is
};

// Operations on one lane have the same order on all ranks, and so have runs: a lane is ordered, and a run
// waits. Each rank mixes all else in its own random order.
std::vector<Operation> program_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Operation> program;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    Operation o;
    o.slot = slot;
    o.dim = random() % std::size(kDims);
    constexpr muster_op kOps[] = {
        MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST,  MUSTER_BARRIER,
        MUSTER_REDUCE,     MUSTER_GATHER,     MUSTER_SCATTER,        MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE};
    o.op = kOps[random() % std::size(kOps)];
    o.count = random() % 8 == 0 ? random() % (kSlotInts / kWorld) : random() % 20;
    o.lane = static_cast<muster_lane>(random() % MUSTER_LANE_CLASSES);
    o.runs = random() % 3 == 0;
    o.shares_target = random() % kKinds == 0;
    if (random() % 2 == 0) {
      o.drawn = std::make_shared<Drawn>(random(), kMembers[o.dim]);
      // Messages of one pair meet in the order in which they are ready, so all of them go on one lane.
      if (muster::is_transfer(o.drawn->op())) o.lane = static_cast<muster_lane>(seed % MUSTER_LANE_CLASSES);
    }
    program.push_back(o);
  }
  return program;
}

std::vector<Operation> order_of(const std::vector<Operation>& program, std::uint64_t seed, int rank) {
  std::mt19937_64 random(seed * 31 + static_cast<std::uint64_t>(rank));
  // Queues of what must stay in order, merged at random.
  std::array<std::vector<Operation>, MUSTER_LANE_CLASSES + 1> queues;
  for (const Operation& o : program) queues[o.runs ? std::size_t{MUSTER_LANE_CLASSES} : o.lane].push_back(o);
  std::vector<Operation> order;
  std::array<std::size_t, MUSTER_LANE_CLASSES + 1> next{};
  while (order.size() < program.size()) {
    const std::size_t q = random() % queues.size();
    if (next[q] < queues[q].size()) order.push_back(queues[q][next[q]++]);
  }
  return order;
}

class Programs : public muster::test::RunningRanks {
 protected:
  struct Memory {
    muster_buffer buffer = 0;
    std::int32_t* ints = nullptr;
  };
  // One rank's part in all programs.
  struct Part {
    Member& member;
    std::array<muster_group, std::size(kDims)> groups{};
    std::array<std::vector<std::int32_t>, std::size(kDims)> ranks;
    std::array<Memory, kKinds> sources, targets;
    std::array<Memory, kShared> drawn;  // of what is drawn: a slot has all of its vectors
  };
  // Where a vector lies.
  struct Place {
    Memory memory;
    std::size_t slot = 0;
    muster_range range() const { return {memory.buffer, slot * kSlotInts * sizeof(std::int32_t)}; }
    std::int32_t* ints() const { return memory.ints + slot * kSlotInts; }
  };

  static Part part_of(Member& member) {
    Part part{member, {}, {}, {}, {}, {}};
    for (std::size_t d = 0; d < std::size(kDims); ++d) {
      EXPECT_EQ(muster_mesh_group(member.session, kDims[d], &part.groups[d]), MUSTER_OK)
          << muster_last_error();
      part.ranks[d].resize(kWorld);
      std::size_t count = 0;
      EXPECT_EQ(muster_group_ranks(member.session, part.groups[d], part.ranks[d].data(), kWorld, &count),
                MUSTER_OK);
      part.ranks[d].resize(count);
    }
    for (const Kind kind : {kPlain, kNamed, kImported, kShared}) {
      constexpr std::uint64_t kBytes = kSlots * kSlotInts * sizeof(std::int32_t);
      part.sources[kind] = memory_of(member, kind, "source", kBytes);
      part.targets[kind] = memory_of(member, kind, "target", kBytes);
      if (kind < kShared) part.drawn[kind] = memory_of(member, kind, "drawn", kSlots * kDrawnBytes);
    }
    return part;
  }
  static Memory memory_of(const Member& member, Kind kind, const char* name, std::uint64_t bytes) {
    constexpr std::uint64_t kOffset = 4096;
    const std::string shared_name = std::string("shared ") + name;
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kind == kShared ? kWorld * bytes : bytes;
    if (kind == kNamed) options.name = name;
    if (kind == kShared) options.name = shared_name.c_str(), options.shared_by = member.group;
    if (kind == kImported) {
      options.memory = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      options.memory_offset_bytes = kOffset;
      EXPECT_EQ(ftruncate(options.memory, static_cast<off_t>(kOffset + bytes)), 0);
      EXPECT_EQ(fcntl(options.memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    Memory memory;
    void* address = nullptr;
    const muster_status_t made =
        kind == kPlain ? muster_buffer_alloc(member.session, bytes, &memory.buffer, &address)
                       : muster_buffer_create(member.session, &options, &memory.buffer, &address);
    EXPECT_EQ(made, MUSTER_OK) << muster_last_error();
    if (kind == kImported) ::close(options.memory);
    memory.ints = static_cast<std::int32_t*>(address);
    return memory;
  }

  // A kind of its own for each rank, slot and program.
  static Kind kind_of(const Part& part, const Operation& o, std::uint64_t seed, std::size_t kinds) {
    std::mt19937_64 random((seed * kSlots + o.slot) * kWorld + static_cast<std::uint64_t>(part.member.rank));
    return static_cast<Kind>(random() % kinds);
  }
  // In shared memory, each rank has slots of its own.
  static Place source_of(const Part& part, const Operation& o, std::uint64_t seed) {
    const Kind kind = kind_of(part, o, seed, kKinds);
    const std::size_t own = o.slot * kWorld + static_cast<std::size_t>(part.member.rank);
    return {part.sources[kind], kind == kShared ? own : o.slot};
  }
  // A shared target is one slot for all members of a group: that of its first member. If each member has a
  // result of its own, it uses its own slot.
  static Place target_of(const Part& part, const Operation& o, std::uint64_t seed) {
    if (!o.shares_target) return {part.targets[kind_of(part, o, seed, kShared)], o.slot};
    const std::int32_t whose = muster::may_share_target(o.op) ? part.ranks[o.dim].front() : part.member.rank;
    return {part.targets[kShared], o.slot * kWorld + static_cast<std::size_t>(whose)};
  }

  // The memory of a drawn operation, one for sources and targets.
  struct Arena {
    std::byte* memory = nullptr;
    muster_range range{};
  };
  static Arena arena_of(const Part& part, const Operation& o, std::uint64_t seed) {
    const Memory& memory = part.drawn[kind_of(part, o, seed, kShared)];
    const std::size_t at = o.slot * kDrawnBytes;
    return {reinterpret_cast<std::byte*>(memory.ints) + at, {memory.buffer, at}};
  }
  static bool concerns(const Part& part, const Operation& o) {
    return !o.drawn || o.drawn->concerns(seat_of(part, o).first);
  }

  static std::int32_t value(std::uint64_t seed, std::size_t slot, int rank, std::uint64_t i) {
    return static_cast<std::int32_t>((seed * 7 + slot * 101 + static_cast<std::uint64_t>(rank) * 1009 + i) %
                                     100003);
  }

  static muster_collective collective_of(const Part& part, const Operation& o, std::uint64_t seed) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = o.op;
    c.group = part.groups[o.dim];
    if (o.op == MUSTER_BARRIER) return c;
    c.dtype = MUSTER_I32;
    if (o.op == MUSTER_EXCHANGE) return c;
    c.redop = muster::has_reduction(o.op) ? MUSTER_SUM : 0;
    c.count = o.count;
    c.source = source_of(part, o, seed).range();
    c.target = target_of(part, o, seed).range();
    if (muster::has_root(o.op)) c.peer = static_cast<std::int32_t>(root_of(part, o));
    return c;
  }
  static std::size_t root_of(const Part& part, const Operation& o) {
    return o.slot % part.ranks[o.dim].size();
  }

  // An array of as many rows as the operation has elements, and a column of ghosts before and behind them.
  static muster_ghosted array_of(const Operation& o) {
    muster_ghosted array = MUSTER_GHOSTED_INIT;
    array.dtype = MUSTER_I32;
    array.dims = 2;
    array.own[0] = static_cast<std::int64_t>(o.count);
    array.own[1] = kColumns;
    array.before[1] = array.after[1] = 1;
    return array;
  }
  // Which member this rank is, and who comes before it in a circle of them.
  static std::pair<std::size_t, std::size_t> seat_of(const Part& part, const Operation& o) {
    const auto& ranks = part.ranks[o.dim];
    const auto me =
        static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), part.member.rank) - ranks.begin());
    return {me, (me + ranks.size() - 1) % ranks.size()};
  }
  // Each brings the last of its columns to the one behind it.
  static muster_status_t plan_of(const Part& part, const Operation& o, std::uint64_t seed,
                                 muster_plan* plan) {
    if (o.drawn)
      return o.drawn->plan(part.member.session, part.groups[o.dim], seat_of(part, o).first,
                           arena_of(part, o, seed).range, plan);
    muster_collective c = collective_of(part, o, seed);
    if (o.op != MUSTER_EXCHANGE) return muster_plan_collective(part.member.session, &c, plan);
    const auto [me, before] = seat_of(part, o);
    const muster_ghosted array = array_of(o);
    const muster_range start = target_of(part, o, seed).range();
    muster_face send{static_cast<std::int32_t>((me + 1) % part.ranks[o.dim].size()), 0, {}};
    muster_face receive{static_cast<std::int32_t>(before), 0, {}};
    EXPECT_EQ(muster_ghosted_view(&array, start, MUSTER_GHOSTED_LAST, 1, 1, 0, &send.view), MUSTER_OK);
    EXPECT_EQ(muster_ghosted_view(&array, start, MUSTER_GHOSTED_BEFORE, 1, 1, 0, &receive.view), MUSTER_OK);
    c.sends = &send;
    c.receives = &receive;
    c.send_count = c.receive_count = 1;
    return muster_plan_collective(part.member.session, &c, plan);
  }

  // Fills the source of an operation, before any operation begins.
  static void give(const Part& part, const Operation& o, std::uint64_t seed) {
    if (o.drawn) return o.drawn->give(arena_of(part, o, seed).memory);
    if (o.op != MUSTER_EXCHANGE) {
      std::int32_t* given = source_of(part, o, seed).ints();
      const bool blocks = muster::has_source_blocks(o.op, true);
      const std::uint64_t count = o.count * (blocks ? part.ranks[o.dim].size() : 1);
      for (std::uint64_t i = 0; i < count; ++i) given[i] = value(seed, o.slot, part.member.rank, i);
      return;
    }
    std::int32_t* array = target_of(part, o, seed).ints();
    for (std::uint64_t i = 0; i < o.count * kColumns; ++i)
      array[i / kColumns * kStride + 1 + i % kColumns] = value(seed, o.slot, part.member.rank, i);
  }

  // A start at this rank.
  struct Started {
    Operation operation;
    muster_point point = 0;
    std::vector<muster_point> waits;
  };
  // Points on other lanes that a start may wait for. Only of operations that stand before it in the program,
  // as they do at every rank: two that waited for each other would be at their deadlines together.
  static std::vector<muster_point> waits_of(const std::vector<Started>& started, const Operation& o,
                                            std::mt19937_64& random) {
    std::vector<muster_point> waits;
    for (const Started& one : started) {
      const bool may = one.operation.slot < o.slot && one.operation.lane != o.lane;
      if (may && waits.size() < MUSTER_WAITS_MAX && random() % 4 == 0) waits.push_back(one.point);
    }
    return waits;
  }
  static muster_status_t take(const Part& part, const Operation& o, std::uint64_t seed,
                              const std::vector<muster_point>& waits, muster_point* point) {
    muster_plan plan = 0;
    const muster_status_t status = plan_of(part, o, seed, &plan);
    if (status != MUSTER_OK) return status;
    plans(part).push_back(plan);
    if (o.runs) return muster_plan_run(part.member.session, plan, 0);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = o.lane;
    submit.wait_count = static_cast<std::uint32_t>(waits.size());
    std::copy(waits.begin(), waits.end(), submit.waits);
    return muster_plan_start(part.member.session, plan, &submit, point);
  }
  static std::vector<muster_plan>& plans(const Part& part) {
    static thread_local std::vector<muster_plan> made;
    static_cast<void>(part);
    return made;
  }

  // Element `i` of the result at this rank.
  static std::int32_t expected(const Part& part, const Operation& o, std::uint64_t seed, std::uint64_t i) {
    const auto& ranks = part.ranks[o.dim];
    const std::uint64_t me = seat_of(part, o).first;
    const auto sum = [&](std::uint64_t at) {
      std::int32_t all = 0;
      for (const std::int32_t rank : ranks) all += value(seed, o.slot, rank, at);
      return all;
    };
    const std::int32_t root = ranks[root_of(part, o)];
    switch (o.op) {
      case MUSTER_ALL_REDUCE:
      case MUSTER_REDUCE:
        return sum(i);
      case MUSTER_REDUCE_SCATTER:
        return sum(me * o.count + i);
      case MUSTER_BROADCAST:
        return value(seed, o.slot, root, i);
      case MUSTER_SCATTER:
        return value(seed, o.slot, root, me * o.count + i);
      case MUSTER_ALL_TO_ALL:
        return value(seed, o.slot, ranks[i / o.count], me * o.count + i % o.count);
      default:  // MUSTER_ALL_GATHER, MUSTER_GATHER
        return value(seed, o.slot, ranks[i / o.count], i % o.count);
    }
  }
  static void check(const Part& part, const Operation& o, std::uint64_t seed) {
    if (o.drawn) {
      ASSERT_EQ(o.drawn->wrong(seat_of(part, o).first, arena_of(part, o, seed).memory), -1)
          << "seed " << seed << ", slot " << o.slot << ": " << o.drawn->text();
      return;
    }
    if (o.op == MUSTER_BARRIER) return;
    const std::int32_t* got = target_of(part, o, seed).ints();
    const auto [me, before] = seat_of(part, o);
    if (o.op == MUSTER_EXCHANGE) {
      for (std::uint64_t i = 0; i < o.count; ++i)
        ASSERT_EQ(got[i * kStride],
                  value(seed, o.slot, part.ranks[o.dim][before], i * kColumns + kColumns - 1))
            << "seed " << seed << ", slot " << o.slot << ", row " << i;
      return;
    }
    const bool is_root = me == root_of(part, o);
    if ((o.op == MUSTER_REDUCE || o.op == MUSTER_GATHER) && !is_root) return;
    const bool blocks = muster::has_target_blocks(o.op, is_root);
    for (std::uint64_t i = 0; i < o.count * (blocks ? part.ranks[o.dim].size() : 1); ++i)
      ASSERT_EQ(got[i], expected(part, o, seed, i))
          << "seed " << seed << ", slot " << o.slot << ", op " << o.op << ", element " << i;
  }

  static void run_program(const Part& part, const std::vector<Operation>& program, std::uint64_t seed) {
    for (const Operation& o : program) give(part, o, seed);
    std::mt19937_64 random(seed * 37 + static_cast<std::uint64_t>(part.member.rank));
    std::vector<Started> all;
    for (const Operation& o : order_of(program, seed, part.member.rank)) {
      if (!concerns(part, o)) continue;
      Started one{o, 0, {}};
      if (!o.runs) one.waits = waits_of(all, o, random);
      ASSERT_EQ(take(part, o, seed, one.waits, &one.point), MUSTER_OK)
          << "seed " << seed << ": " << muster_last_error();
      if (!o.runs) all.push_back(std::move(one));
    }
    for (const Started& one : all) {
      ASSERT_EQ(muster_point_wait(part.member.session, one.point, -1), MUSTER_OK)
          << "seed " << seed << ": " << muster_last_error();
      for (const muster_point earlier : one.waits)
        ASSERT_EQ(muster_point_test(part.member.session, earlier), MUSTER_OK)
            << "seed " << seed << ", slot " << one.operation.slot << " did not wait";
    }
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
  std::vector<Operation> program;
  std::uint64_t drawn = 0, messages = 0;
  with_ranks(kWorld, [&](Member& member) {
    Part part = part_of(member);
    for (std::uint64_t seed = 0; seed < programs; ++seed) {
      between.arrive_and_wait();  // targets are looked at before they are used again
      if (member.rank == 0) {
        program = program_of(seed);
        for (const Operation& o : program) {
          drawn += o.drawn ? 1 : 0;
          messages += o.drawn && muster::is_transfer(o.drawn->op()) ? 1 : 0;
        }
      }
      between.arrive_and_wait();
      if (!HasFatalFailure()) run_program(part, program, seed);
    }
  });
  std::printf("%llu programs; %llu operations with all that one may have, %llu of them messages\n",
              static_cast<unsigned long long>(programs), static_cast<unsigned long long>(drawn),
              static_cast<unsigned long long>(messages));
}

}  // namespace
