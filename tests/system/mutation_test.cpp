// Agreement on both paths: what one rank says otherwise is found on every rank before a byte moves, and what
// all say alike is never taken for a difference.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/system/drawn.hpp"
#include "tests/transport/collective_case.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>

namespace {

using muster::math::test::Random;
using muster::test::Drawn;
using muster::test::kDrawnBytes;
using muster::test::Member;
using muster::transport::test::FacePlace;
using muster::transport::test::Placement;
using muster::transport::test::Shape;
using ::testing::HasSubstr;

constexpr std::size_t kDrawnMax = 128 << 10;   // bytes of what an operation has in each memory,
constexpr std::size_t kSpare = 8 * kDrawnMax;  // with another dtype too; behind it a face that is changed
constexpr std::size_t kRoom = kSpare + 2 * kDrawnMax;  // bytes of each memory
constexpr int kUntouched = 0xB3;
constexpr std::uint32_t kOtherTag = 1000;  // of no edge

// Drops out of the barrier at the end, so that no rank waits for one that leaves a test early.
struct Attendance {
  explicit Attendance(std::barrier<>& barrier) : meeting(barrier) {}
  ~Attendance() { meeting.arrive_and_drop(); }
  std::barrier<>& meeting;
};

// A rank's buffers: its own, and those that it shares with the others.
struct Memory {
  muster_buffer source = 0, target = 0, shared = 0;
  std::byte* own = nullptr;     // target's
  std::byte* common = nullptr;  // shared's
};

// One member's description of an operation.
struct Saying {
  Saying(muster::Collective collective, Placement placement)
      : c(std::move(collective)), p(std::move(placement)) {}

  muster::Collective c;
  Placement p;
  std::optional<std::uint64_t> shared;  // byte of the common memory at which its target lies

  // The description for the API, which points into this object.
  const muster_collective& in(const Member& member, const Memory& memory) {
    said = MUSTER_COLLECTIVE_INIT;
    said.op = c.op;
    said.group = member.group;
    site = "mutation:" + std::to_string(p.index);
    said.site = site.c_str();
    if (c.op == MUSTER_BARRIER) return said;
    said.dtype = c.dtype;
    said.redop = c.redop;
    said.scale = c.redop == MUSTER_PREMUL_SUM ? c.scale : 0.0;
    if (muster::has_root(c.op) || muster::is_transfer(c.op))
      said.peer = c.op == MUSTER_SEND ? c.receiver : c.root;
    if (c.op == MUSTER_EXCHANGE) {
      faces(p.sends, memory.source, sends);
      faces(p.receives, memory.target, receives);
      said.sends = sends.data();
      said.receives = receives.data();
      said.send_count = static_cast<std::uint32_t>(sends.size());
      said.receive_count = static_cast<std::uint32_t>(receives.size());
      return said;
    }
    if (c.op != MUSTER_RECV) said.source = {memory.source, 0};
    if (c.op != MUSTER_SEND)
      said.target = shared ? muster_range{memory.shared, *shared} : muster_range{memory.target, 0};
    said.count = muster::is_pairwise(c.op) ? p.count : c.count;
    // Blocks are for who has some: the root of another operation, or of this one, may be somebody else now.
    const bool is_root = p.index == c.root;
    const bool agreed = muster::has_agreed_blocks(c.op);
    const auto& given = agreed ? c.counts : p.source_counts;
    const auto& got = agreed ? c.counts : p.target_counts;
    if (muster::has_source_blocks(c.op, is_root) && !given.empty()) said.source_blocks.counts = given.data();
    if (muster::has_target_blocks(c.op, is_root) && !got.empty()) said.target_blocks.counts = got.data();
    return said;
  }

 private:
  void faces(const std::vector<FacePlace>& places, muster_buffer buffer,
             std::vector<muster_face>& into) const {
    into.clear();
    for (const FacePlace& place : places) {
      muster_face face{place.peer, place.tag, {}};
      face.view.buffer = buffer;
      face.view.offset_bytes = place.at;
      face.view.dtype = c.dtype;
      face.view.dims = static_cast<std::int32_t>(place.size.size());
      std::copy(place.size.begin(), place.size.end(), face.view.size);
      std::copy(place.stride.begin(), place.stride.end(), face.view.stride);
      into.push_back(face);
    }
  }

  muster_collective said = MUSTER_COLLECTIVE_INIT;
  std::string site;
  std::vector<muster_face> sends, receives;
};

// The members of an operation of any kind, each as it says it. A transfer has two of them.
std::vector<Saying> draw(Random& random, int world) {
  for (;;) {
    Shape shape = muster::transport::test::random_shape(random.next());
    if (shape.ranks != world || !shape.pieces.empty()) continue;  // pieces: tests/api/client/pieces_test.cpp
    shape.place = muster::transport::test::Place::kApart;
    shape.scattered = false;
    shape.misaligned_bytes = 0;
    std::size_t bytes = 0;
    const auto members = muster::transport::test::placements_of(shape, &bytes);
    if (bytes > kDrawnMax) continue;
    const bool shares = muster::may_share_target(shape.collective.op) && random.below(3) == 0;
    const std::uint64_t at = 4096 * random.below(3);
    std::vector<Saying> all;
    for (const Placement& member : members) {
      Saying& saying = all.emplace_back(shape.collective, member);
      if (muster::is_transfer(saying.c.op))
        saying.c.op = member.index == saying.c.root ? MUSTER_SEND : MUSTER_RECV;
      if (shares) saying.shared = at;
    }
    return all;
  }
}

// Changes one of the things that all must share, and says by which word a verdict names it. False if the
// operation does not have it.
bool change_common(Random& random, Saying& said, std::int32_t ranks, std::string& field) {
  muster::Collective& c = said.c;
  const bool moves = c.op != MUSTER_BARRIER;
  constexpr const char* kFields[] = {"op:", "dtype:", "redop:", "scale:", "peer:", "count:"};
  const std::uint64_t which = random.below(8);
  field = which < std::size(kFields) ? kFields[which] : "";
  switch (which) {
    case 0:
      if (muster::is_transfer(c.op)) return false;  // it would wait for others, not for its partner
      c.op = c.op == MUSTER_BROADCAST ? MUSTER_REDUCE : MUSTER_BROADCAST;
      c.redop = c.op == MUSTER_REDUCE ? MUSTER_SUM : 0;
      if (!moves) c.dtype = MUSTER_F32;
      return true;
    case 1: {
      const auto& all = muster::math::test::kDtypes;
      const muster_dtype before = c.dtype;
      while (c.dtype == before) c.dtype = all[random.below(std::size(all))];
      if (c.redop == MUSTER_PREMUL_SUM) c.scale = muster::math::test::scale_for(c.dtype);
      return moves && c.op != MUSTER_EXCHANGE;
    }
    case 2:
      if (!muster::has_reduction(c.op)) return false;
      c.redop = c.redop % MUSTER_PREMUL_SUM + 1;
      c.scale = muster::math::test::scale_for(c.dtype);
      return true;
    case 3:
      c.scale += 1.0;
      return c.redop == MUSTER_PREMUL_SUM;
    case 4:
      c.root = (c.root + 1) % ranks;
      said.p.count = std::min<std::uint64_t>(said.p.count, 9);  // beside a list it meant nothing
      return muster::has_root(c.op);
    case 5:
      c.count += 1 + random.below(3);
      return c.counts.empty() && moves && !muster::is_pairwise(c.op);
    case 6:
      if (c.counts.empty()) return false;
      {
        const std::uint64_t block = random.below(c.counts.size());
        field = "counts[" + std::to_string(block) + "]:";
        c.counts[block] += 1 + random.below(3);
        return true;
      }
    default:  // the one memory of all, or the place in it
      if (!said.shared) return false;
      field = "target";
      if (random.below(2) == 0)
        *said.shared += 64;
      else
        said.shared.reset();
      return true;
  }
}

// Changes a face of an EXCHANGE: one more, one less, another tag, another length.
bool change_face(Random& random, std::vector<FacePlace>& faces) {
  const std::uint64_t how = random.below(4);
  if (how == 0) {
    faces.push_back({0, kOtherTag, {}, {}, kSpare});
    return true;
  }
  if (faces.empty()) return false;
  const std::size_t i = random.below(faces.size());
  if (how == 1) {
    faces.erase(faces.begin() + static_cast<std::ptrdiff_t>(i));
  } else if (how == 2) {
    faces[i].tag += kOtherTag;
  } else {
    faces[i] = {faces[i].peer, faces[i].tag, {static_cast<std::int64_t>(faces[i].count()) + 1}, {1}, kSpare};
  }
  return true;
}

// A change: the changed member, and the word that the verdict must contain.
struct Change {
  std::size_t odd = 0;
  std::string field;
  bool alone = false;  // all others agree against it; false for one end of an edge, and with two members
  // A run between nodes is a start on its operation's usual lane, which may be another one now.
  bool may_move_lane() const { return field == "op:" || field == "dtype:" || field == "count:"; }
};

// Changes the dtype of all faces of a member. They stay where they lie, and apart, while their elements have
// the same width. False if it has none with another member.
bool change_dtype_of_faces(Random& random, Saying& said) {
  const auto& all = muster::math::test::kDtypes;
  const muster_dtype before = said.c.dtype;
  while (said.c.dtype == before || muster::dtype_bytes(said.c.dtype) != muster::dtype_bytes(before))
    said.c.dtype = all[random.below(std::size(all))];
  const auto elsewhere = [&](const FacePlace& face) { return face.peer != said.p.index; };
  return std::any_of(said.p.sends.begin(), said.p.sends.end(), elsewhere) ||
         std::any_of(said.p.receives.begin(), said.p.receives.end(), elsewhere);
}

// Changes the description of one end of an edge. False if the member has no such end.
bool change_edge(Random& random, Saying& said, std::string& field) {
  const muster_op op = said.c.op;
  const bool given = random.below(2) == 0;
  field = "count from rank";
  if (op == MUSTER_EXCHANGE && random.below(4) == 0) {
    field = "dtype from rank";
    return change_dtype_of_faces(random, said);
  }
  if (op == MUSTER_EXCHANGE) return change_face(random, given ? said.p.sends : said.p.receives);
  if (!muster::is_pairwise(op)) return false;
  const auto me = static_cast<std::size_t>(said.p.index);
  auto& list = given ? said.p.source_counts : said.p.target_counts;
  if (said.p.source_counts.empty() && said.p.target_counts.empty()) {
    said.p.count += 1 + random.below(3);
    return true;
  }
  if (list.empty()) return false;
  const std::size_t block = random.below(list.size());
  list[block] += 1 + random.below(3);
  return block != me;  // what a member has with itself nobody else can say
}

// Changes one thing of one member.
Change mutate(Random& random, std::vector<Saying>& all, int world) {
  for (;;) {
    Change change;
    change.odd = random.below(all.size());
    Saying wrong = all[change.odd];
    const bool pairwise = muster::is_pairwise(wrong.c.op) && random.below(2) == 0;
    if (!(pairwise ? change_edge(random, wrong, change.field)
                   : change_common(random, wrong, world, change.field)))
      continue;
    change.alone = !pairwise && all.size() > 2;
    all[change.odd] = std::move(wrong);
    return change;
  }
}

// This rank's description, if it is a member; otherwise null.
Saying* of_rank(std::vector<Saying>& all, int rank) {
  const auto mine = std::find_if(all.begin(), all.end(), [&](const Saying& s) { return s.p.index == rank; });
  return mine == all.end() ? nullptr : &*mine;
}

// One member's faces with another as both would describe them: tag, dtype and elements.
using Edge = std::vector<std::tuple<std::uint64_t, muster_dtype, std::uint64_t>>;
Edge edge(const Saying& of, const std::vector<FacePlace>& faces, std::int32_t with) {
  Edge edge;
  for (const FacePlace& face : faces)
    if (face.peer == with) edge.emplace_back(face.tag, of.c.dtype, face.count());
  std::sort(edge.begin(), edge.end());
  return edge;
}

// An EXCHANGE in which all members that this one names, itself too, say the same as it.
bool has_all_neighbours_agree(const std::vector<Saying>& all, const Saying& mine) {
  return mine.c.op == MUSTER_EXCHANGE && std::all_of(all.begin(), all.end(), [&](const Saying& other) {
           const Edge to = edge(mine, mine.p.sends, other.p.index);
           const Edge from = edge(mine, mine.p.receives, other.p.index);
           if (to.empty() && from.empty()) return true;
           return other.c.op == MUSTER_EXCHANGE && to == edge(other, other.p.receives, mine.p.index) &&
                  from == edge(other, other.p.sends, mine.p.index);
         });
}

class Mutation : public muster::test::RunningRanks {
 protected:
  Memory memory_of(const Member& member) const {
    Memory memory;
    void* address = nullptr;
    EXPECT_EQ(muster_buffer_alloc(member.session, kRoom, &memory.source, nullptr), MUSTER_OK);
    EXPECT_EQ(muster_buffer_alloc(member.session, kRoom, &memory.target, &address), MUSTER_OK);
    memory.own = static_cast<std::byte*>(address);
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kRoom;
    options.name = "common";
    options.shared_by = member.group;
    EXPECT_EQ(muster_buffer_create(member.session, &options, &memory.shared, &address), MUSTER_OK)
        << muster_last_error();
    memory.common = static_cast<std::byte*>(address);
    return memory;
  }
  // Every member is told by field and rank what is different, and where that was said. Between nodes it is
  // told which nodes differ.
  void expect_named(const std::string& error, const Change& change, std::int32_t rank) const {
    const std::string number = std::to_string(rank);
    if (node_.several()) {
      EXPECT_THAT(error, HasSubstr("no data was moved"));
      EXPECT_THAT(error, ::testing::AnyOf(HasSubstr("node"), HasSubstr("rank")));
      return;
    }
    EXPECT_THAT(error, HasSubstr("no data was moved"));
    // A neighbour has gone on, and what it had said is forgotten.
    if (error.find("met at an exchange") != std::string::npos ||
        error.find("ended this exchange without") != std::string::npos) {
      EXPECT_THAT(error, HasSubstr("(mutation:"));
      return;
    }
    EXPECT_THAT(error, HasSubstr(change.field));
    EXPECT_THAT(error, ::testing::ContainsRegex("(rank|ranks|,) " + number + "[^0-9]"));
    EXPECT_THAT(error, HasSubstr("(mutation:" + std::string(change.alone ? number + ")" : "")));
    if (change.alone) {
      EXPECT_THAT(error, HasSubstr("at rank " + number + " (mutation:" + number + ")"));
    }
  }
  static void clear(const Memory& memory) {
    for (std::byte* const each : {memory.own, memory.common})
      if (each != nullptr) std::memset(each, kUntouched, kRoom);
  }
  static bool untouched(const Memory& memory) {
    const auto so = [](const std::byte* all) {
      return all == nullptr ||
             std::all_of(all, all + kRoom, [](std::byte b) { return b == std::byte{kUntouched}; });
    };
    return so(memory.own) && so(memory.common);
  }
  static muster_status_t on_engine(Member& member, const muster_collective& c) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_REDUCE;
    muster_plan plan = 0;
    muster_point point = 0;
    muster_status_t status = muster_plan_collective(member.session, &c, &plan);
    if (status == MUSTER_OK) status = muster_plan_start(member.session, plan, &submit, &point);
    if (status == MUSTER_OK) status = muster_point_wait(member.session, point, -1);
    member.error = muster_last_error();
    if (status < 0) {
      EXPECT_EQ(muster_lane_reset(member.session, MUSTER_LANE_REDUCE), MUSTER_OK);
    }
    if (plan != 0) {
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
    return status;
  }
  static muster_status_t started(const Member& member, muster_plan plan) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = 0;
    const muster_status_t status = muster_plan_start(member.session, plan, &submit, &point);
    return status == MUSTER_OK ? muster_point_wait(member.session, point, -1) : status;
  }
  static muster_status_t directly(Member& member, const muster_collective& c) {
    muster_plan plan = 0;
    muster_status_t status = muster_plan_collective(member.session, &c, &plan);
    if (status == MUSTER_OK) status = muster_plan_run(member.session, plan, 0);
    member.error = muster_last_error();
    if (plan != 0) {
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
    return status;
  }
  // Between nodes a difference fails the group on all lanes and paths. A rank without a part in it, or one
  // that went on, gets the error now.
  static void meet_again(Member& member) {
    muster_status_t status = on_engine(member, member.barrier());
    if (status == MUSTER_ERR_MISMATCH) status = on_engine(member, member.barrier());
    ASSERT_EQ(status, MUSTER_OK) << member.error;
  }
};

// Goal:   every single difference is found by every member, before any target is written.
// Method: with MUSTER_TEST_NODES=2 the members are on two nodes. There an EXCHANGE asks neighbours alone, and
// so
//         does a start of one on one node: a member that agrees with all of its own may go on. On one node
//         faces between two that agree may have moved.
TEST_F(Mutation, FindsEveryMutatedField) {
  const bool several = node_.several();
  const std::vector<int> worlds = several ? std::vector<int>{2, 3, 4} : std::vector<int>{2, 3};
  const std::uint64_t cases = muster::test::property_cases(2000) / worlds.size() + 1;
  for (const int world : worlds) {
    std::barrier between(world);
    with_ranks(world, [&](Member& member) {
      const Attendance attendance(between);
      const Memory memory = memory_of(member);
      clear(memory);
      between.arrive_and_wait();
      Random random(static_cast<std::uint64_t>(world));  // all ranks draw alike
      for (std::uint64_t i = 0; i < cases; ++i) {
        std::vector<Saying> all = draw(random, world);
        const muster_op right = all[0].c.op;
        const Change change = mutate(random, all, world);
        const std::size_t odd = change.odd;
        const bool engine = random.below(2) == 0 || (several && change.may_move_lane());
        if (Saying* mine = of_rank(all, member.rank)) {
          const muster_collective& c = mine->in(member, memory);
          const muster_status_t status = engine ? on_engine(member, c) : directly(member, c);
          const bool asks_neighbours = several || engine;
          const bool went_on = asks_neighbours && status == MUSTER_OK && has_all_neighbours_agree(all, *mine);
          if (went_on || (engine && !several && c.op == MUSTER_EXCHANGE)) clear(memory);
          ASSERT_TRUE(went_on || status == MUSTER_ERR_MISMATCH)
              << "world " << world << ", case " << i << (engine ? " on the engine" : " directly") << ", op "
              << right << ", as member " << all[odd].p.index << " has it " << all[odd].c.op << ": "
              << muster_status_name(status) << " " << member.error;
          if (!went_on) expect_named(member.error, change, all[odd].p.index);
          ASSERT_FALSE(HasFailure()) << "world " << world << ", case " << i
                                     << (engine ? " on the engine" : " directly") << ", op " << right;
          ASSERT_TRUE(untouched(memory)) << "case " << i << ": " << member.error;
        }
        if (several || engine) meet_again(member);
        between.arrive_and_wait();
      }
    });
  }
}

// Goal:   no false alarm, and right results.
// Method: operations that two ranks draw alike, over and over on both paths. Results are checked unless the
//         target is the one memory of both.
TEST_F(Mutation, TakesNothingThatMatchesForADifference) {
  constexpr std::size_t kDrawn = 200, kShared = 40;
  const std::uint64_t cases = muster::test::property_cases(5000);
  with_ranks(2, [&](Member& member) {
    const Memory memory = memory_of(member);
    const auto me = static_cast<std::size_t>(member.rank);
    void* address = nullptr;
    muster_buffer buffer = 0;
    ASSERT_EQ(muster_buffer_alloc(member.session, kDrawn * kDrawnBytes, &buffer, &address), MUSTER_OK)
        << muster_last_error();
    Random random(11);
    std::vector<Drawn> drawn;
    std::vector<muster_plan> plans(kDrawn + kShared);
    for (std::size_t i = 0; i < kDrawn; ++i) {
      const Drawn& one = drawn.emplace_back(random.next(), 2);
      ASSERT_EQ(one.plan(member.session, member.group, me, {buffer, i * kDrawnBytes}, &plans[i]), MUSTER_OK)
          << one.text() << ": " << muster_last_error();
    }
    for (std::size_t i = kDrawn; i < plans.size(); ++i) {
      std::vector<Saying> all = draw(random, 2);
      while (!all[0].shared) all = draw(random, 2);
      ASSERT_EQ(
          muster_plan_collective(member.session, &of_rank(all, member.rank)->in(member, memory), &plans[i]),
          MUSTER_OK)
          << muster_last_error();
    }
    for (std::uint64_t i = 0; i < cases; ++i) {
      const std::size_t which = random.below(plans.size());
      std::byte* own = static_cast<std::byte*>(address) + which * kDrawnBytes;
      if (which < kDrawn) drawn[which].give(own);
      const bool engine = random.below(8) == 0;
      ASSERT_EQ(engine ? started(member, plans[which]) : muster_plan_run(member.session, plans[which], 0),
                MUSTER_OK)
          << i << ": " << muster_last_error();
      if (which < kDrawn) {
        ASSERT_EQ(drawn[which].wrong(me, own), -1) << i << ": " << drawn[which].text();
      }
    }
  });
}

}  // namespace
