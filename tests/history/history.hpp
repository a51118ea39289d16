// History: one random history of failures. Four ranks run one program on both paths, each operation with a
// signature and a result of its own, while they die, leave, stand still, abort, are interrupted, and run what
// is not the program's. A seed decides on every turn.
//
// Held in each history, beside what Allowed says of causes:
//   1  the program is run to its end, and every client ends
//   2  an operation that ends well has all members' words of the same step
//   3  a rank meets a newcomer only with what it began after it had heard of the loss of the one before, but
//      in a group that both have made since
//   4  of a start that ended well at one member no other member hears a failure
#pragma once

#include "tests/history/allowed.hpp"
#include "tests/history/job_by_hand.hpp"
#include "tests/history/turns.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace muster::test {

inline constexpr std::uint32_t kHistoryRanks = 4;
inline constexpr const char* kHistoryMesh = "dp_replicate=2,dp_shard=2";
inline constexpr Nanos kHistoryDeadline = std::chrono::milliseconds(600);

// Owns    the program, the members and the model.
// Thread  one.
// Bound   kTurnsMax turns.
// Fails   never: run() returns the broken rule.
class History {
 public:
  enum class Trouble : std::uint8_t { kKill, kLeave, kStop, kAbort, kMismatch, kInterrupt, kLate, kCount };

  // The job has no clients before and after.
  History(JobByHand& job, Turns& turns, std::uint64_t seed);
  ~History();
  // Returns the first error; empty: none. `story` gets each event as text; null: no text.
  std::string run(std::FILE* story = nullptr);

  std::array<std::uint64_t, static_cast<std::size_t>(Trouble::kCount)> troubles{};
  std::map<muster_status_t, std::uint64_t> heard;
  std::uint64_t met = 0;      // operations that ended well
  std::uint64_t shrunk = 0;   // members that went on in a smaller group
  std::uint64_t renewed = 0;  // lanes that were released and made again

 private:
  struct Step {
    std::uint32_t group = 0;
    bool is_run = false;
    muster_op op = MUSTER_ALL_REDUCE;
    std::int32_t root = 0;  // or sender
    std::int32_t receiver = 0;
    std::uint32_t words = 0;
    std::array<std::int32_t, kHistoryRanks> waits{};  // -1: none
    std::array<std::uint32_t, kHistoryRanks> lanes{};
    std::size_t offset = 0;  // of its words at every member
    bool done = false;
    bool erred = false;  // a member came with another operation in its place
    bool has(const HistoryGroup& group, std::uint32_t rank) const;
  };
  struct Flying {
    std::size_t attempt = 0;
    muster_point point = 0;
  };
  using Lives = std::array<std::uint32_t, kHistoryRanks>;
  struct Loss {  // with what words others may hear of it
    std::uint32_t rank = 0;
    std::uint32_t life = 0;
    std::set<std::string> texts;
    std::string own;
    bool in_a_run = false;
  };
  struct Member {
    enum class State : std::uint8_t { kAway, kAlive, kDying, kFinished };
    std::uint32_t rank = 0;
    std::uint32_t life = 0;
    std::int32_t pid = 0;
    State state = State::kAway;
    Fiber fiber;
    muster_session* session = nullptr;
    std::array<muster_group, 6> groups{};
    muster_buffer buffer = 0;
    std::int64_t* memory = nullptr;
    std::map<std::pair<std::size_t, bool>, muster_plan> plans;
    std::vector<Flying> flying;
    std::array<muster_lane, kHistoryLanes> lanes{};  // their numbers; MUSTER_LANE_NONE: it has none now
    std::array<bool, kHistoryLanes> stopped{};
    std::array<std::uint32_t, kHistoryLanes> stops{};
    std::set<std::string> run_texts;  // of runs that failed
    std::vector<Loss> told_of;        // since it attached
    Lives may_meet{};              // the latest client of each rank of whose forerunner's loss it has heard
    Lives must_meet{};             // the first client of each rank that it knows not to be gone
    std::size_t asked = SIZE_MAX;  // fault of the abort in which it is
    std::int32_t aborts = -1;
    bool leaves = false;
    bool asks = false;  // it waits for the conductor's answer
    bool errs = false;
    bool was_still = false;
    std::uint32_t late = 0;  // resets that it puts off
    std::uint32_t interrupts = 0;
    Instant still_until{0};
    std::uint32_t futile = 0;
    bool shrinking = false;
  };

  // ---- turns
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  void take_turn();
  void let_go_on(Member& m);
  bool stir();
  bool serve(Member& m);
  void move_time();
  void progress();
  bool program_is_done() const;
  bool over() const;
  void choose_victim();
  void end_all();
  // ---- trouble
  void cause_trouble();
  void kill(Member& m);
  void detach(Member& m, const std::string& how);
  void attach(Member& m);
  void interrupt(Member& m);
  // ---- a member
  void live(Member& m);
  void open(Member& m);
  void open_lane(Member& m, std::uint32_t lane);
  void renew_lane(Member& m);
  void look_at_starts(Member& m);
  bool act(Member& m);
  bool start(Member& m, std::size_t step);
  void run_step(Member& m, std::size_t step);
  bool is_flying(const Member& m, std::size_t step) const;
  bool may_start(Member& m, std::uint32_t lane);
  void reset(Member& m, std::uint32_t lane);
  void await(Member& m);
  void abort(Member& m);
  void shrink(Member& m);
  bool errs_at(Member& m, std::size_t step);
  std::size_t begin(Member& m, std::size_t step, bool wrong);
  muster_plan plan(Member& m, std::size_t step, bool wrong);
  void ended(Member& m, std::size_t attempt, muster_status_t status);
  void hear(Member& m, std::size_t attempt, muster_status_t status, const std::string& text);
  // ---- data
  void make_program();
  Step make_step(std::size_t number);
  std::int64_t* source(const Member& m, const Step& step) const { return m.memory + step.offset; }
  std::int64_t* target(const Member& m, const Step& step) const;
  void fill(const Member& m, std::size_t step, std::size_t attempt);
  void check(Member& m, std::size_t attempt);
  void check_words(Member& m, std::size_t attempt, std::uint32_t giver, const std::int64_t* words);
  void require(bool so, const std::string& what);
  template<class... Values>
  void tell(fmt::format_string<Values...> words, Values&&... values) {
    if (story_ != nullptr)
      fmt::print(story_, "{} {}\n", turn_, fmt::format(words, std::forward<Values>(values)...));
  }
  void must(const char* call, muster_status_t status);

  JobByHand& job_;
  Turns& turns_;
  std::mt19937_64 random_;
  Allowed allowed_;
  std::vector<Step> program_;
  std::size_t words_ = 0;    // of all steps
  std::uint32_t small_ = 0;  // words of the latest small reduction
  std::array<Member, kHistoryRanks> members_;
  std::vector<Lives> may_meet_;  // by attempt, when it was begun
  std::vector<Lives> must_meet_;
  std::vector<bool> met_;  // by attempt: another member had it
  std::uint32_t faults_left_ = 0;
  Turn turn_ = 0;
  std::uint32_t victim_ = kHistoryRanks;  // who does not come back; none before the program is over
  bool shrinks_ = false;
  bool closing_ = false;
  bool struck_ = false;  // anything has happened
  std::string wrong_;
  std::FILE* story_ = nullptr;
};

}  // namespace muster::test
