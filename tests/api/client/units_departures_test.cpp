// Random programs of sharded units in which one rank departs from the others by one call: another parameter
// unused, another flag, another order, another count, a call left out. No rank may then have other numbers
// than without the departure and hear nothing of it, and none may wait for ever.
//
// A failure prints its seed; MUSTER_DEPARTURE_SEED=N runs that program alone.
#include <muster/units.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using muster::test::Member;

constexpr std::int64_t kDeadlineNs = 400'000'000;  // of what others wait for in vain
constexpr unsigned int kHangSeconds = 120;         // beyond which a program has hung
constexpr int kTrying = 8;                         // so often ranks hear of one failure each, until they meet

// ---- draws common to all ranks -----------------------------------------------------------------

struct UnitShape {
  std::vector<std::int64_t> sizes;  // of its parameters
  std::size_t frozen = SIZE_MAX;    // one of them
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
  std::uint32_t flags = 0;
};

// One forward and backward of all units.
struct Pass {
  std::vector<std::vector<std::size_t>> unused;  // by unit
  std::uint32_t flags = 0;                       // of each backward
};
using Step = std::vector<Pass>;

struct Program {
  int world = 0;
  std::string mesh;
  std::uint32_t set_flags = 0;
  std::vector<UnitShape> units;
  std::vector<Step> steps;  // the last has no departure: it shows who has heard
};

enum class What : std::uint8_t {
  kUnused,
  kOtherUnused,  // another parameter in the place of one
  kBackwardFlags,
  kStepFlags,
  kOrder,
  kSize,
  kUnitOption,
  kNoForward,
  kNoBackward,
  kNoUnit,
  kForwardTwice,
  kKinds
};

struct Departure {
  What what = What::kUnused;
  int rank = 0;
  std::size_t step = 0, pass = 0, unit = 0, parameter = 0;
  std::uint32_t flag = 0;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template<class T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }

 private:
  std::mt19937_64 random_;
};

Pass draw_pass(Draw& draw, const Program& program, std::uint32_t flags) {
  Pass pass{{}, flags};
  for (const UnitShape& unit : program.units) {
    auto& unused = pass.unused.emplace_back();
    for (std::size_t p = 0; p < unit.sizes.size(); ++p)
      if (p != unit.frozen && draw.one_in(3)) unused.push_back(p);
    // Each unit keeps a used parameter: a wholly unused unit sends nothing, and then no rank would notice
    // another that leaves out its backward.
    const std::size_t trained = unit.sizes.size() - (unit.frozen < unit.sizes.size() ? 1 : 0);
    if (unused.size() == trained) unused.clear();
  }
  return pass;
}

Program draw_program(Draw& draw) {
  Program program;
  constexpr std::array<std::pair<int, const char*>, 3> kMeshes{
      {{2, "dp_shard=2"}, {3, "dp_replicate=3,dp_shard=1"}, {4, "dp_replicate=2,dp_shard=2"}}};
  const auto [world, mesh] = draw.one_of(kMeshes);
  program.world = world;
  program.mesh = mesh;
  program.set_flags = MUSTER_UNITS_ACCUMULATE | MUSTER_UNITS_KEEP_GRADIENTS;
  program.units.resize(1 + draw.below(3));
  for (UnitShape& unit : program.units) {
    unit.sizes.resize(1 + draw.below(3));
    const auto size =
        static_cast<std::int64_t>(4 + draw.below(5));  // often alike: then sizes tell nothing apart
    for (std::int64_t& each : unit.sizes)
      each = draw.one_in(3) ? static_cast<std::int64_t>(4 + draw.below(9)) : size;
    if (unit.sizes.size() > 1 && draw.one_in(4)) unit.frozen = draw.below(unit.sizes.size());
    unit.after_forward = draw.one_of(
        std::array<std::int32_t, 3>{MUSTER_RESHARD_DEFAULT, MUSTER_RESHARD_ALWAYS, MUSTER_RESHARD_NEVER});
    if (draw.one_in(6)) unit.flags = MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE;
  }
  for (std::size_t s = 0; s < 2 + draw.below(2); ++s) {
    Step& step = program.steps.emplace_back();
    if (draw.one_in(2))
      step.push_back(draw_pass(draw, program,
                               draw.one_of(std::array<std::uint32_t, 3>{0, MUSTER_BACKWARD_KEEP_GRADIENTS,
                                                                        MUSTER_BACKWARD_SHARDS_ONLY})));
    step.push_back(draw_pass(draw, program, 0));
  }
  // All ranks meet in all units in the last step. A rank without an error until then gets it there.
  for (Pass& pass : program.steps.back())
    for (auto& unused : pass.unused) unused.clear();
  return program;
}

Departure draw_departure(Draw& draw, const Program& program) {
  Departure departure;
  departure.what = static_cast<What>(draw.below(static_cast<std::size_t>(What::kKinds)));
  departure.rank = static_cast<int>(draw.below(static_cast<std::size_t>(program.world)));
  departure.step = draw.below(program.steps.size() - 1);
  departure.pass = draw.below(program.steps[departure.step].size());
  departure.unit = draw.below(program.units.size());
  departure.parameter = draw.below(program.units[departure.unit].sizes.size());
  departure.flag = draw.one_of(std::array<std::uint32_t, 3>{
      MUSTER_BACKWARD_KEEP_GRADIENTS, MUSTER_BACKWARD_SHARDS_ONLY, MUSTER_BACKWARD_KEEP_WHOLE});
  return departure;
}

// Whole numbers, whose sums and means are exact in any order.
float gradient_of(int rank, std::size_t s, std::size_t m, std::size_t u, std::size_t p) {
  return static_cast<float>(12 *
                            (1 + (7 * s + 5 * m + 3 * u + 2 * p + 11 * static_cast<std::size_t>(rank)) % 23));
}

// Whether that rank says in that pass that it has no gradient of the parameter.
bool is_unused(const Program& program, const Departure* departure, std::size_t s, std::size_t m,
               std::size_t u, std::size_t p) {
  const auto& unused = program.steps[s][m].unused[u];
  const auto has = [&unused](std::size_t which) {
    return std::count(unused.begin(), unused.end(), which) > 0;
  };
  const bool here =
      departure != nullptr && departure->step == s && departure->pass == m && departure->unit == u;
  if (here && departure->what == What::kUnused && departure->parameter == p) return !has(p);
  if (here && departure->what == What::kOtherUnused && !unused.empty() && !has(departure->parameter))
    return p == departure->parameter || (p != unused.front() && has(p));
  return has(p);
}

// The gradients that a rank has after each step: those of each trained parameter.
using Numbers = std::vector<std::vector<float>>;

// The means of what the ranks have contributed, the rank that departs what it says, in as many elements as
// there are in `like`.
Numbers means_of(const Program& program, const Departure& departure, Numbers like) {
  std::size_t at = 0;
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    for (std::size_t u = 0; u < program.units.size(); ++u)
      for (std::size_t p = 0; p < program.units[u].sizes.size(); ++p) {
        if (p == program.units[u].frozen) continue;
        float sum = 0;
        for (std::size_t m = 0; m < program.steps[s].size(); ++m)
          for (int rank = 0; rank < program.world; ++rank)
            if (!is_unused(program, rank == departure.rank ? &departure : nullptr, s, m, u, p))
              sum += gradient_of(rank, s, m, u, p);
        std::fill(like[at].begin(), like[at].end(), sum / static_cast<float>(program.world));
        ++at;
      }
  return like;
}

// ---- one rank's run ----------------------------------------------------------------------------

// Owns    its set of units.
// Thread  its rank's.
// Bound   a program.
// Fails   run: the first status that is not MUSTER_OK; the rank then makes no more calls.
class RankRun {
 public:
  // `departure`: null where this rank departs in nothing.
  RankRun(const Member& member, const Program& program, const Departure* departure)
      : member_(member), program_(program), departure_(departure) {}
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;
  ~RankRun() { static_cast<void>(muster_units_destroy(units_)); }

  bool run() {
    if (!make()) return false;
    for (std::size_t s = 0; s < program_.steps.size(); ++s)
      if (!step(s)) return false;
    return true;
  }
  muster_status_t status() const { return status_; }
  const std::string& error() const { return error_; }
  const Numbers& numbers() const { return numbers_; }

 private:
  bool well(muster_status_t status) {
    status_ = status;
    if (status != MUSTER_OK) error_ = muster_last_error();
    return status == MUSTER_OK;
  }
  bool departs(What what) const { return departure_ != nullptr && departure_->what == what; }
  bool departs_at(What what, std::size_t s, std::size_t pass, std::size_t unit) const {
    return departs(what) && departure_->step == s && departure_->pass == pass && departure_->unit == unit;
  }

  bool make() {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = program_.set_flags;
    if (!well(muster_units_create(member_.session, &set, &units_))) return false;
    for (std::size_t u = 0; u < program_.units.size(); ++u)
      if (!make_unit(u)) return false;
    return true;
  }
  bool make_unit(std::size_t u) {
    const UnitShape& shape = program_.units[u];
    const bool departs_here = departure_ != nullptr && departure_->unit == u;
    std::vector<muster_layout*> layouts;
    std::vector<std::string> names;
    std::vector<muster_parameter> parameters;
    bool made = true;
    for (std::size_t p = 0; p < shape.sizes.size() && made; ++p) {
      muster_layout_options layout = MUSTER_LAYOUT_OPTIONS_INIT;
      layout.dims = 1;
      layout.shape[0] = shape.sizes[p];
      if (departs_here && departs(What::kSize) && departure_->parameter == p) ++layout.shape[0];
      layout.axis_count = 1;
      layout.axes[0].name = "dp_shard";
      layout.axes[0].placement = MUSTER_SHARD;
      made = well(muster_layout_create(member_.session, &layout, &layouts.emplace_back()));
      names.push_back("u" + std::to_string(u) + ".p" + std::to_string(p));
      parameters.push_back(
          {nullptr, layouts.back(), MUSTER_F32, p == shape.frozen ? MUSTER_PARAMETER_FROZEN : 0U});
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p].name = names[p].c_str();
    const std::string name = "u" + std::to_string(u);
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = name.c_str();
    options.shard = "dp_shard";
    options.replicate = "dp_replicate";
    options.after_forward = shape.after_forward;
    options.flags = shape.flags;
    if (departs_here && departs(What::kUnitOption)) options.divisor = 3;
    options.parameters = parameters.data();
    options.parameter_count = static_cast<std::uint32_t>(parameters.size());
    muster_unit unit = 0;
    made = made && well(muster_unit_create(units_, &options, &unit));
    for (muster_layout* layout : layouts) static_cast<void>(muster_layout_destroy(layout));
    return made;
  }

  bool step(std::size_t s) {
    const Step& passes = program_.steps[s];
    const bool unchanged = departs(What::kStepFlags) && departure_->step == s;
    if (!well(muster_step_begin(units_, MUSTER_POINT_NONE, unchanged ? MUSTER_STEP_UNCHANGED : 0)))
      return false;
    bool adds = false;
    for (std::size_t m = 0; m < passes.size(); ++m)
      if (!pass(s, m, &adds)) return false;
    muster_point done[2] = {MUSTER_POINT_NONE, MUSTER_POINT_NONE};
    if (!well(muster_step_end(units_, MUSTER_POINT_NONE, done))) return false;
    for (const muster_point point : done)
      if (!await(point)) return false;
    return note_gradients();
  }
  bool pass(std::size_t s, std::size_t m, bool* adds) {
    const std::size_t count = program_.units.size();
    std::vector<std::size_t> order(count);
    for (std::size_t u = 0; u < count; ++u) order[u] = u;
    if (departs(What::kOrder) && departure_->step == s && departure_->pass == m)
      std::swap(order[departure_->unit], order[count - 1 - departure_->unit]);
    for (const std::size_t u : order)
      if (!forward(s, m, u)) return false;
    for (std::size_t i = count; i-- > 0;)
      if (!backward(s, m, order[i], *adds)) return false;
    *adds = program_.steps[s][m].flags == MUSTER_BACKWARD_KEEP_GRADIENTS;
    return true;
  }
  bool forward(std::size_t s, std::size_t m, std::size_t u) {
    if (departs_at(What::kNoForward, s, m, u) || departs_at(What::kNoUnit, s, m, u)) return true;
    const auto unit = static_cast<muster_unit>(u);
    for (int times = departs_at(What::kForwardTwice, s, m, u) ? 2 : 1; times > 0; --times) {
      muster_point ready = MUSTER_POINT_NONE;
      if (!well(muster_unit_forward_begin(units_, unit, &ready)) || !await(ready) ||
          !well(muster_unit_forward_end(units_, unit, 0, MUSTER_POINT_NONE)))
        return false;
    }
    return true;
  }
  bool backward(std::size_t s, std::size_t m, std::size_t u, bool adds) {
    if (departs_at(What::kNoBackward, s, m, u) || departs_at(What::kNoUnit, s, m, u)) return true;
    const auto unit = static_cast<muster_unit>(u);
    muster_point ready[2] = {MUSTER_POINT_NONE, MUSTER_POINT_NONE};
    if (!well(muster_unit_backward_begin(units_, unit, ready)) || !await(ready[0]) || !await(ready[1]))
      return false;
    const Pass& pass = program_.steps[s][m];
    for (std::size_t p = 0; p < program_.units[u].sizes.size(); ++p) {
      if (p == program_.units[u].frozen) continue;
      const bool unused = is_unused(program_, departure_, s, m, u, p);
      if (!write(s, m, u, p, adds, unused)) return false;
      if (unused && !well(muster_unit_unused(units_, unit, static_cast<std::uint32_t>(p)))) return false;
    }
    std::uint32_t flags = pass.flags;
    if (departs_at(What::kBackwardFlags, s, m, u)) flags ^= departure_->flag;
    return well(muster_unit_backward_end(units_, unit, 0, MUSTER_POINT_NONE, flags, nullptr));
  }

  bool write(std::size_t s, std::size_t m, std::size_t u, std::size_t p, bool adds, bool unused) {
    const float value = gradient_of(member_.rank, s, m, u, p);
    return each(u, p, MUSTER_UNIT_WHOLE_GRADIENT, [&](float& element) {
      if (!unused) element = adds ? element + value : value;
      if (unused && !adds) element = 99;  // whatever lies there
    });
  }
  bool note_gradients() {
    for (std::size_t u = 0; u < program_.units.size(); ++u)
      for (std::size_t p = 0; p < program_.units[u].sizes.size(); ++p) {
        if (p == program_.units[u].frozen) continue;
        std::vector<float>& all = numbers_.emplace_back();
        if (!each(u, p, MUSTER_UNIT_GRADIENT_SHARD, [&all](const float& element) { all.push_back(element); }))
          return false;
      }
    return true;
  }
  template<class Body>
  bool each(std::size_t u, std::size_t p, std::int32_t which, Body body) {
    muster_tensor tensor{};
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    if (!well(muster_unit_tensor(units_, static_cast<muster_unit>(u), static_cast<std::uint32_t>(p), which,
                                 &tensor)))
      return false;
    if (tensor.size[0] == 0) return true;
    if (!well(muster_buffer_query(member_.session, tensor.buffer, &info))) return false;
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
    for (std::int64_t i = 0; i < tensor.size[0]; ++i) body(first[i]);
    return true;
  }
  bool await(muster_point point) {
    return point == MUSTER_POINT_NONE || well(muster_point_wait(member_.session, point, -1));
  }

  const Member& member_;
  const Program& program_;
  const Departure* departure_;
  muster_units* units_ = nullptr;
  muster_status_t status_ = MUSTER_OK;
  std::string error_;
  Numbers numbers_;
};

// ---- all ranks ---------------------------------------------------------------------------------

struct Outcome {
  muster_status_t status = MUSTER_OK;
  std::string error;
  Numbers without, with;
};

class UnitsDepartures : public muster::test::RunningRanks {
 protected:
  static void on_alarm(int) {
    constexpr char kText[] = "a program hangs; its seed stands above\n";
    static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
    _exit(1);
  }
  // A call that all make, until all have heard of what has failed before.
  template<class Call>
  static muster_status_t until_well(Call call) {
    muster_status_t status = MUSTER_OK;
    for (int i = 0; i < kTrying; ++i)
      if ((status = call()) == MUSTER_OK) break;
    return status;
  }

  std::vector<Outcome> outcomes_of(const Program& program, const Departure& departure) {
    mesh = program.mesh;
    std::vector<Outcome> outcomes(static_cast<std::size_t>(program.world));
    with_ranks(program.world, [&](Member& member) {
      Outcome& outcome = outcomes[static_cast<std::size_t>(member.rank)];
      const auto deadline = [&](std::int64_t ns) {
        return muster_mesh_deadline(member.session, MUSTER_MESH_JOB, ns);
      };
      EXPECT_EQ(until_well([&] { return deadline(0); }), MUSTER_OK) << muster_last_error();
      {
        RankRun run(member, program, nullptr);
        EXPECT_TRUE(run.run()) << run.error();
        outcome.without = run.numbers();
      }
      EXPECT_EQ(deadline(kDeadlineNs), MUSTER_OK) << muster_last_error();
      RankRun run(member, program, departure.rank == member.rank ? &departure : nullptr);
      static_cast<void>(run.run());
      outcome.status = run.status();
      outcome.error = run.error();
      outcome.with = run.numbers();
      await_all(member);
    });
    return outcomes;
  }

  // The numbers without the departure. A rank that says in one of several passes that it has no gradient of a
  // parameter, or that it has one, leaves what it contributes and no more: no other number changes.
  static bool right(const Program& program, const Departure& departure, const Outcome& outcome) {
    if (outcome.with == outcome.without) return true;
    const bool is_unused = departure.what == What::kUnused || departure.what == What::kOtherUnused;
    return is_unused && program.steps[departure.step].size() > 1 &&
           outcome.with == means_of(program, departure, outcome.without);
  }
};

// Goal:   an error at all ranks, or the same numbers as without.
TEST_F(UnitsDepartures, AreHeardOfOrChangeNoNumber) {
  const char* const alone = std::getenv("MUSTER_DEPARTURE_SEED");
  const std::uint64_t first = alone != nullptr ? std::stoull(alone) : 1;
  const std::uint64_t last = alone != nullptr ? first : muster::test::property_cases(200);
  std::signal(SIGALRM, on_alarm);
  std::array<std::size_t, static_cast<std::size_t>(What::kKinds)> heard{};
  for (std::uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    Draw draw(seed);
    const Program program = draw_program(draw);
    const Departure departure = draw_departure(draw, program);
    SCOPED_TRACE("MUSTER_DEPARTURE_SEED=" + std::to_string(seed) + ", kind " +
                 std::to_string(static_cast<int>(departure.what)) + " at rank " +
                 std::to_string(departure.rank));
    alarm(kHangSeconds);
    const std::vector<Outcome> outcomes = outcomes_of(program, departure);
    alarm(0);
    const auto failed = [](const Outcome& outcome) { return outcome.status != MUSTER_OK; };
    const auto others = [&](auto is) {
      for (std::size_t r = 0; r < outcomes.size(); ++r)
        if (static_cast<int>(r) != departure.rank && is(outcomes[r])) return true;
      return false;
    };
    Departure none = departure;
    none.rank = -1;
    for (const Outcome& outcome : outcomes)
      EXPECT_EQ(outcome.without, means_of(program, none, outcome.without));
    const bool any = std::any_of(outcomes.begin(), outcomes.end(), failed);
    for (std::size_t r = 0; r < outcomes.size(); ++r)
      EXPECT_TRUE(failed(outcomes[r]) || right(program, departure, outcomes[r]))
          << "rank " << r << " has other numbers and hears nothing";
    // An error at the departing rank alone is that rank's own mistake, and harms no other rank. If any other
    // rank fails, all ranks must fail.
    if (others(failed))
      for (std::size_t r = 0; r < outcomes.size(); ++r)
        EXPECT_TRUE(failed(outcomes[r])) << "rank " << r << " hears nothing of what others heard: "
                                         << std::find_if(outcomes.begin(), outcomes.end(), failed)->error;
    heard[static_cast<std::size_t>(departure.what)] += any ? 1 : 0;
  }
  if (alone != nullptr || HasFailure()) return;
  for (std::size_t kind = 0; kind < heard.size(); ++kind)
    RecordProperty("heard_" + std::to_string(kind), static_cast<int>(heard[kind]));
  EXPECT_GT(heard[static_cast<std::size_t>(What::kUnused)], 0u);
  EXPECT_GT(heard[static_cast<std::size_t>(What::kOtherUnused)], 0u);
  EXPECT_GT(heard[static_cast<std::size_t>(What::kSize)], 0u);
}

}  // namespace
