// The direct path under the C++ memory model: api/client/direct and daemon/engine/direct/direct_pages.cpp
// themselves, on Relacy's simulated memory. Loads may return old values, threads may be cut anywhere, and a
// thread that sleeps for ever is an error: where no time passes, no nap ends by itself.
//
//   direct_model STORY holds|fails [SCHEDULES (0: as the table says) [as_written|x86|sequential]]
//
// `holds` passes if no schedule breaks the story, `fails` if one does: what a planted bug must give. The
// schedules are pseudo-random, the same ones each time.
#include "tests/models/member.hpp"

#include <cstring>
#include <string_view>

namespace muster::model {
namespace {

// The common base of all stories: a job, made once, and its members, made anew for each schedule.
template<class Story>
class Stage {
 public:
  static Job& job() {
    static Job made(Story::kRanks, Story::groups());
    return made;
  }

 protected:
  void before() {
    naps() = {Story::kSleep, {}};
    contents_.emplace(words(), Story::kBytes);
    job().begin();
    engine_.emplace(job());
    for (std::uint32_t rank = 0; rank < Story::kRanks; ++rank)
      stages_.push_back(
          std::make_unique<client::Stages>(job().memory(rank).own(), job().memory(rank).flight()));
  }
  std::unique_ptr<Member> join(std::uint32_t rank, std::uint32_t group = 0) {
    return std::make_unique<Member>(job(), *engine_, *stages_[rank], rank, group);
  }
  Engine& engine() { return *engine_; }

 private:
  std::optional<Words::Contents> contents_;
  std::optional<Engine> engine_;
  std::vector<std::unique_ptr<client::Stages>> stages_;
};

using Groups = std::vector<std::vector<std::uint32_t>>;
inline Groups one_group(std::uint32_t ranks) {
  Groups groups(1);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) groups[0].push_back(rank);
  return groups;
}

// When an epoch may end. kApart: after the fifth operation and before the end of the sixth. kAnytime: at any
// time.
enum class End { kApart, kAnytime };

// The settings of the story that the command line names.
struct Told {
  What what = What::kInline;
  int operations = 0;
  End end = End::kApart;
  bool exact = false;  // whether survivors have to have completed the same operations
  std::uint32_t lost = 2;
  bool soon = false;  // the epoch ends though somebody may be in the operation before the sixth
};
inline Told& told() {
  static Told story;
  return story;
}

// Some operations one after the other, without a fault. No access races with another, every result is right,
// and no member misses its wake.
template<std::uint32_t ranks>
struct Meet : rl::test_suite<Meet<ranks>, ranks>, Stage<Meet<ranks>> {
  static constexpr std::uint32_t kRanks = ranks;
  static constexpr Sleep kSleep = Sleep::kUntimed;
  static constexpr Bytes kBytes = Bytes::kRaceless;
  static Groups groups() { return one_group(ranks); }
  std::array<std::unique_ptr<Member>, ranks> members;

  void before() {
    Stage<Meet>::before();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) members[rank] = this->join(rank);
  }
  void thread(unsigned rank) {
    for (int i = 0; i < told().operations; ++i) RL_ASSERT(members[rank]->run(told().what));
  }
};

// Rank 0 is in two groups and its stages serve both in turn: what is put into a stage for one group may still
// be read when the other group is done.
struct TwoGroups : rl::test_suite<TwoGroups, 3>, Stage<TwoGroups> {
  static constexpr std::uint32_t kRanks = 3;
  static constexpr Sleep kSleep = Sleep::kUntimed;
  static constexpr Bytes kBytes = Bytes::kRaceless;
  static Groups groups() { return {{0, 1}, {0, 2}}; }
  std::array<std::unique_ptr<Member>, 4> members;  // of rank 0 in both; of ranks 1 and 2

  void before() {
    Stage<TwoGroups>::before();
    members = {join(0, 0), join(0, 1), join(1, 0), join(2, 1)};
  }
  void thread(unsigned rank) {
    for (int i = 0; i < 2; ++i) {
      if (rank == 0) RL_ASSERT(members[0]->run(What::kStage));
      if (rank == 0) RL_ASSERT(members[1]->run(What::kStage));
      if (rank > 0) RL_ASSERT(members[rank + 1]->run(What::kStage));
    }
  }
};

// Messages one way and then the other.
struct Pairs : rl::test_suite<Pairs, 2>, Stage<Pairs> {
  static constexpr std::uint32_t kRanks = 2;
  static constexpr Sleep kSleep = Sleep::kUntimed;
  static constexpr Bytes kBytes = Bytes::kRaceless;
  static Groups groups() { return one_group(2); }
  std::array<std::unique_ptr<Member>, 2> members;

  void before() {
    Stage<Pairs>::before();
    members = {join(0), join(1)};
  }
  void thread(unsigned rank) {
    for (int i = 0; i < 2; ++i) RL_ASSERT(members[rank]->transfer(1 - rank, rank == 0));
    RL_ASSERT(members[rank]->transfer(1 - rank, rank == 1));
  }
};

// The common base of stories in which an epoch ends: five operations, the sixth, and two in the next epoch.
template<std::uint32_t ranks>
struct Ending {
  static constexpr std::uint32_t kRanks = ranks;
  static constexpr Sleep kSleep = Sleep::kTimed;
  static constexpr Bytes kBytes = Bytes::kTorn;
  static constexpr int kBefore = 5;
  static Groups groups() { return one_group(ranks); }
  std::array<std::unique_ptr<Member>, ranks> members;
  rl::atomic<std::uint32_t> count;  // of members that have come to a certain point

  void come() { count.fetch_add(1, rl::mo_acq_rel, rl::debug_info("come")); }
  void await(std::uint32_t many) {
    while (count.load(rl::mo_acquire, rl::debug_info("await")) < many) rl::yield(1, rl::debug_info("await"));
  }
  void do_before(Member& member) {
    for (int i = 0; told().end == End::kApart && i < kBefore; ++i) RL_ASSERT(member.run(told().what));
  }
  // Operations in the next epoch; in the first one the sixth, or as many as there is time for.
  void do_after(Member& member) {
    while (member.epoch() == 0 || member.number() < 2) {
      if (told().end == End::kApart && member.epoch() == 0 && member.number() == kBefore + 1)
        member.await_end();
      else
        static_cast<void>(member.run(told().what));
    }
  }
};

// The epoch is ended for all. Each member hears of it once, and both do two operations in the next.
struct Abort : rl::test_suite<Abort, 3>, Stage<Abort>, Ending<2> {
  void before() {
    Stage<Abort>::before();
    count.store(0, rl::mo_relaxed, rl::debug_info("count"));
    for (std::uint32_t rank = 0; rank < 2; ++rank) members[rank] = join(rank);
  }
  void thread(unsigned index) {
    if (index == 2) {
      await(2);
      return engine().abort(GroupId(0));
    }
    do_before(*members[index]);
    come();
    do_after(*members[index]);
    RL_ASSERT(members[index]->heard == 1);
  }
};

// A member is lost before an operation or in it, and comes back as another process: kApart, once the others
// have heard; else at once. Each survivor hears of it once, and the next epoch begins at 1 for all. With
// `exact`: what all had arrived at is done by both survivors or by none.
struct Departure : rl::test_suite<Departure, 3>, Stage<Departure>, Ending<3> {
  void before() {
    Stage<Departure>::before();
    count.store(0, rl::mo_relaxed, rl::debug_info("count"));
    for (std::uint32_t rank = 0; rank < 3; ++rank) members[rank] = join(rank);
  }
  void thread(unsigned rank) {
    Member& member = *members[rank];
    do_before(member);
    const bool lost = rank == told().lost;
    const std::uint32_t before = told().end == End::kApart && !told().soon ? 3 : 0;
    if (before > 0) come();
    await(before);
    if (lost) {
      if (rl::rand(2) == 0) member.arrive_and_vanish(told().what);
      engine().depart(rank, GroupId(0));
      if (told().end == End::kApart) await(before + 2);
      member.attach_anew();
    } else if (told().end == End::kApart) {
      while (member.epoch() == 0)
        if (member.run(told().what)) member.await_end();
      come();
    }
    do_after(member);
    RL_ASSERT(member.heard == (lost ? 0 : 1));
  }
  void after() {
    const std::uint32_t one = told().lost == 0 ? 1 : 0;
    const std::uint32_t other = 3 - told().lost - one;
    RL_ASSERT(!told().exact || members[one]->completed == members[other]->completed);
  }
};

// A member leaves in order once an operation is over for it, and whoever started it says that it is absent.
// All had arrived, and the others need nothing more of it: they complete the operation too. Then each of them
// hears of both ends, and after the rank has come back the next epoch begins at 1 for all.
struct Leaving : rl::test_suite<Leaving, 3>, Stage<Leaving>, Ending<3> {
  void before() {
    Stage<Leaving>::before();
    count.store(0, rl::mo_relaxed, rl::debug_info("count"));
    for (std::uint32_t rank = 0; rank < 3; ++rank) members[rank] = join(rank);
  }
  void thread(unsigned rank) {
    Member& member = *members[rank];
    const bool leaves = rank == told().lost;
    do_before(member);
    RL_ASSERT(member.run(told().what));
    if (leaves) {
      engine().depart(rank, GroupId(0));
      engine().absent(GroupId(0));
      await(4);
      member.attach_anew();
      come();
    } else {
      member.await_end();
      come();
      await(2);
      member.await_end();
      come();
      await(5);
    }
    do_after(member);
    RL_ASSERT(member.heard == (leaves ? 0 : 2));
  }
};

// A deadline may pass while a peer is on its way. Then each hears of it once, and the late one is not taken
// for early in the next epoch; or nobody hears of anything.
struct Overdue : rl::test_suite<Overdue, 2>, Stage<Overdue>, Ending<2> {
  std::uint64_t first = 0;
  void before() {
    Stage<Overdue>::before();
    count.store(0, rl::mo_relaxed, rl::debug_info("count"));
    for (std::uint32_t rank = 0; rank < 2; ++rank) members[rank] = join(rank);
    first = job().board().epochs().present(GroupId(0));
  }
  void thread(unsigned rank) {
    Member& member = *members[rank];
    do_before(member);
    member.timeout = Member::kNap;
    static_cast<void>(member.run(told().what));
    member.timeout = Nanos::max();
    come();
    await(2);
    const bool ended = job().board().epochs().present(GroupId(0)) != first;
    if (ended) do_after(member);
    RL_ASSERT(member.heard == (ended ? 1 : 0));
  }
};

// A member had arrived when the epoch ended, and does not come again. Its old arrival is not taken for one in
// the next epoch: the deadline has to end the wait.
struct Stale : rl::test_suite<Stale, 3>, Stage<Stale>, Ending<2> {
  void before() {
    Stage<Stale>::before();
    count.store(0, rl::mo_relaxed, rl::debug_info("count"));
    for (std::uint32_t rank = 0; rank < 2; ++rank) members[rank] = join(rank);
  }
  void thread(unsigned index) {
    if (index == 2) {
      await(1);
      return engine().abort(GroupId(0));
    }
    Member& member = *members[index];
    if (index == 1) {
      member.arrive_and_vanish(told().what);
      return come();
    }
    member.await_end();
    member.timeout = Member::kNap;
    RL_ASSERT(!member.run(told().what));
  }
};

struct Row {
  const char* name;
  bool (*search)(rl::test_params&);
  Told told;
  unsigned schedules;  // unless the command line says another number
};

// As rl::simulate(), with the one scheduler that is used here.
template<class Story>
bool search(rl::test_params& params) {
  static_cast<void>(Story::job());  // before memory is simulated
  using Scheduler = rl::random_scheduler<Story::params::thread_count>;
  rl::ostringstream state;
  if (rl::run_test<Story, Scheduler>(params, state, false) == rl::test_result_success) return true;
  const rl::iteration_t found = params.stop_iteration;
  params.initial_state = params.final_state = state.str();
  params.collect_history = true;  // the same schedule again, written down
  rl::run_test<Story, Scheduler>(params, state, true);
  params.stop_iteration = found;
  return false;
}

constexpr Row kRows[] = {
    {"inline", search<Meet<2>>, {What::kInline, 3}, 20000},
    {"inline3", search<Meet<3>>, {What::kInline, 2}, 20000},
    {"slot", search<Meet<2>>, {What::kSlot, 3}, 20000},
    {"stage", search<Meet<2>>, {What::kStage, 3}, 20000},
    {"arena", search<Meet<2>>, {What::kArena, 3}, 20000},
    {"read", search<Meet<2>>, {What::kRead, 2}, 20000},
    {"read_in_place", search<Meet<2>>, {What::kReadPlace, 2}, 20000},
    {"sliced", search<Meet<2>>, {What::kSliced, 2}, 20000},
    {"two_groups", search<TwoGroups>, {}, 80000},
    {"pairs", search<Pairs>, {}, 20000},
    {"abort_inline", search<Abort>, {What::kInline, 0, End::kApart}, 20000},
    {"abort_slot", search<Abort>, {What::kSlot, 0, End::kApart}, 20000},
    {"abort_stage", search<Abort>, {What::kStage, 0, End::kApart}, 20000},
    {"abort_arena", search<Abort>, {What::kArena, 0, End::kApart}, 20000},
    {"abort_inline_anytime", search<Abort>, {What::kInline, 0, End::kAnytime}, 20000},
    {"abort_slot_anytime", search<Abort>, {What::kSlot, 0, End::kAnytime}, 20000},
    {"abort_stage_anytime", search<Abort>, {What::kStage, 0, End::kAnytime}, 20000},
    {"departure", search<Departure>, {What::kInline, 0, End::kApart}, 20000},
    {"departure_exact", search<Departure>, {What::kInline, 0, End::kApart, true}, 20000},
    {"departure_exact_slot", search<Departure>, {What::kSlot, 0, End::kApart, true}, 20000},
    {"departure_exact_arena", search<Departure>, {What::kArena, 0, End::kApart, true, 1}, 20000},
    {"departure_soon", search<Departure>, {What::kArena, 0, End::kApart, true, 1, true}, 20000},
    {"departure_soon_slot", search<Departure>, {What::kSlot, 0, End::kApart, true, 1, true}, 20000},
    {"departure_anytime", search<Departure>, {What::kInline, 0, End::kAnytime}, 20000},
    {"departure_arena", search<Departure>, {What::kArena, 0, End::kApart, false, 1}, 20000},
    {"departure_giver", search<Departure>, {What::kArena, 0, End::kAnytime, false, 0}, 20000},
    {"leaving_inline", search<Leaving>, {What::kInline, 0, End::kApart}, 20000},
    {"leaving_slot", search<Leaving>, {What::kSlot, 0, End::kApart}, 20000},
    {"leaving_stage", search<Leaving>, {What::kStage, 0, End::kApart}, 20000},
    {"leaving_arena", search<Leaving>, {What::kArena, 0, End::kApart}, 20000},
    {"leaving_read", search<Leaving>, {What::kRead, 0, End::kApart}, 20000},
    {"overdue", search<Overdue>, {What::kInline, 0, End::kApart}, 20000},
    {"stale", search<Stale>, {What::kInline, 0, End::kAnytime}, 20000},
};

}  // namespace
}  // namespace muster::model

int main(int argc, char** argv) {
  const std::string_view strengths[] = {"as_written", "x86", "sequential"};
  const auto* const strength = argc == 5 ? std::ranges::find(strengths, argv[4]) : strengths;
  if (argc < 3 || argc > 5 || strength == std::end(strengths)) {
    std::fprintf(stderr, "usage: direct_model STORY holds|fails [SCHEDULES [as_written|x86|sequential]]\n");
    return 2;
  }
  muster::model::words().strength = static_cast<muster::model::Strength>(strength - strengths);
  const bool wanted = std::strcmp(argv[2], "holds") == 0;
  rl::test_params params;
  params.execution_depth_limit = 20000;
  params.progress_stream = &std::cerr;
  params.progress_output_period = 60;
  std::ostream silent(nullptr);
  if (!wanted) params.output_stream = &silent;  // the schedule that a planted bug needs
  for (const auto& row : muster::model::kRows) {
    if (std::strcmp(row.name, argv[1]) != 0) continue;
    const std::uint64_t asked = argc >= 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
    params.iteration_count = asked > 0 ? asked : row.schedules;
    muster::model::told() = row.told;
    const bool held = row.search(params);
    std::cout << row.name << (held ? " holds" : " fails") << ": " << rl::test_result_str(params.test_result)
              << " at schedule " << params.stop_iteration << std::endl;
    return held == wanted ? 0 : 1;
  }
  std::fprintf(stderr, "no story \"%s\"\n", argv[1]);
  return 2;
}
