// Random collectives through the C API against the oracle: every operation, dtype and operator, run or
// started, in memory of every kind, with displacements, strides, lists of blocks, in place and into results
// that all share. Whole buffers are compared: what is no target must stay as it was.
//
// Some ranks make their plan at another place of their buffers and start it with offsets.
//
// A case is an arena with every member's vectors (tests/transport/collective_case.hpp). Each member has an
// image of its own part of it in one buffer for what it gives and in one for what it gets; in place they are
// one buffer.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/conformance_rows.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using muster::math::test::Random;
using muster::test::Member;
using muster::transport::test::Case;
using muster::transport::test::FacePlace;
using muster::transport::test::Place;
using muster::transport::test::Placement;
using muster::transport::test::Shape;
namespace cases = muster::transport::test;

constexpr std::size_t kRoom = 512 << 10;  // bytes of each buffer
constexpr std::size_t kLargeRoom = 8 << 20;
constexpr std::byte kFence{0xB3};
constexpr std::size_t kLine = 64;

// The kind of memory of a vector. Each rank has its own part of shared memory.
enum Kind : std::size_t { kPlain, kNamed, kImported, kShared, kKinds };
constexpr const char* kKindNames[] = {"plain", "named", "imported", "node-shared"};

struct Memory {
  muster_buffer buffer = 0;
  std::uint64_t at = 0;       // byte of the buffer at which this rank's part begins
  std::byte* data = nullptr;  // of that part
};

// A random case. All members draw the same one.
struct Drawn {
  Shape shape;
  Case made;
  std::vector<std::size_t> begins;  // of each member's part of the arena, and the end of the last
  bool shares = false;              // one result for all
  bool in_common = false;           // the result already holds the blocks to gather, or the root's vector
  bool starts = false;
  muster_lane lane = 0;
  std::uint64_t shift = 0;  // where images begin in their buffers
  std::uint64_t seed = 0;
};

// How one member takes part.
struct Part {
  Placement placement;
  std::size_t begin = 0, bytes = 0;  // of its part of the arena
  Kind gives = kPlain, gets = kPlain;
  bool one_buffer = false;
  bool moves = false;  // the plan is made at other places of its buffers, and the start gives the offsets
  std::uint64_t source_shift = 0, target_shift = 0;  // where images begin for that plan, as Drawn::shift
};

bool is_whole(const Memory& memory, std::size_t room, std::uint64_t at, const std::byte* bytes,
              std::size_t count) {
  static const std::vector<std::byte> fence(kLargeRoom, kFence);
  return std::memcmp(memory.data, fence.data(), at) == 0 &&
         (count == 0 || std::memcmp(memory.data + at, bytes, count) == 0) &&
         std::memcmp(memory.data + at + count, fence.data(), room - at - count) == 0;
}

// The parts of the arena, in order of members. No member's vectors lie in another member's part.
std::vector<std::size_t> parts_of(const Case& made) {
  std::vector<std::size_t> begins(made.members.size() + 1, made.before.size());
  for (std::size_t k = made.members.size(); k-- > 1;) {
    const Placement& m = made.members[k];
    std::size_t low = std::min({begins[k + 1], m.source, m.target});
    for (const auto* faces : {&m.sends, &m.receives})
      for (const FacePlace& face : *faces) low = std::min(low, face.at);
    begins[k] = low / kLine * kLine;
  }
  begins[0] = 0;
  return begins;
}

// A neighbour exchange of ghosts around a circle, along one dim of arrays that differ in that dim alone.
Shape ghosted_shape(Random& random, std::int32_t world, std::vector<Placement>& members,
                    std::size_t* arena_bytes) {
  Shape shape;
  shape.collective.op = MUSTER_EXCHANGE;
  shape.collective.dtype = muster::math::test::kDtypes[random.below(std::size(muster::math::test::kDtypes))];
  shape.ranks = static_cast<std::int32_t>(1 + random.below(static_cast<std::uint64_t>(world)));
  muster_ghosted array = MUSTER_GHOSTED_INIT;
  array.dtype = shape.collective.dtype;
  array.dims = static_cast<std::int32_t>(1 + random.below(3));
  const auto dim = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(array.dims)));
  for (std::int32_t d = 0; d < array.dims; ++d) {
    array.own[d] = static_cast<std::int64_t>(1 + random.below(9));
    array.before[d] = static_cast<std::int64_t>(random.below(3));
    array.after[d] = static_cast<std::int64_t>(random.below(3));
  }
  const std::int64_t back = array.after[dim] == 0 ? 0 : 1 + static_cast<std::int64_t>(random.below(2));
  const std::int64_t on = array.before[dim] == 0 ? 0 : 1 + static_cast<std::int64_t>(random.below(2));
  array.before[dim] = std::max(array.before[dim], on);
  array.after[dim] = std::max(array.after[dim], back);
  const auto others = ((1U << array.dims) - 1) & ~(1U << dim);
  const auto with = static_cast<std::uint32_t>(random.below(8)) & others;
  cases::Layout layout(0);
  const std::size_t element = muster::dtype_bytes(array.dtype);
  for (std::int32_t i = 0; i < shape.ranks; ++i) {
    array.own[dim] = static_cast<std::int64_t>(2 + random.below(9));  // as many rows as are sent at least
    std::uint64_t bytes = 0;
    EXPECT_EQ(muster_ghosted_bytes(&array, &bytes), MUSTER_OK) << muster_last_error();
    const std::size_t start = layout.take(bytes);
    Placement member{i};
    const auto face = [&](std::int32_t part, std::int64_t rows, std::int32_t peer, std::uint32_t tag) {
      muster_tensor view{};
      EXPECT_EQ(muster_ghosted_view(&array, {0, start / element * element}, part, dim, rows, with, &view),
                MUSTER_OK)
          << muster_last_error();
      FacePlace place{peer,
                      tag,
                      {view.size, view.size + view.dims},
                      {view.stride, view.stride + view.dims},
                      view.offset_bytes};
      return place;
    };
    const std::int32_t next = (i + 1) % shape.ranks;
    const std::int32_t previous = (i + shape.ranks - 1) % shape.ranks;
    if (on > 0) {
      member.sends.push_back(face(MUSTER_GHOSTED_LAST, on, next, 0));
      member.receives.push_back(face(MUSTER_GHOSTED_BEFORE, on, previous, 0));
    }
    if (back > 0) {
      member.sends.push_back(face(MUSTER_GHOSTED_FIRST, back, previous, 1));
      member.receives.push_back(face(MUSTER_GHOSTED_AFTER, back, next, 1));
    }
    members.push_back(std::move(member));
  }
  *arena_bytes = layout.bytes();
  return shape;
}

Case ghosted_case(Random& random, std::int32_t world, Shape* shape) {
  Case made;
  std::size_t bytes = 0;
  *shape = ghosted_shape(random, world, made.members, &bytes);
  made.before.resize((bytes + 7) / 8 * 8);
  muster::math::test::fill(MUSTER_I64, made.before.data(), made.before.size() / 8, random.next());
  made.after = cases::oracle(shape->collective, shape->ranks, made.members, made.before,
                             muster::dtype_bytes(shape->collective.dtype));
  return made;
}

// Whether a shape may become one of ghosts, or one whose result all share.
enum class Turns : bool { kNone, kMay };

// The case of a shape. Nothing if it has no room in the buffers, or more members than there are ranks.
std::optional<Drawn> drawn(Shape shape, std::int32_t world, std::uint64_t seed, std::size_t room = kRoom,
                           Turns turns = Turns::kMay) {
  Random random(seed * 13 + 5);
  Drawn d;
  d.seed = seed;
  d.starts = random.below(2) == 0;
  d.lane = static_cast<muster_lane>(random.below(MUSTER_LANE_CLASSES));
  const bool may = turns == Turns::kMay;
  const bool ghosted = may && shape.collective.op == MUSTER_EXCHANGE && random.below(2) == 0;
  const std::size_t element = std::max<std::size_t>(muster::dtype_bytes(shape.collective.dtype), 1);
  if (shape.ranks > world) return std::nullopt;
  shape.misaligned_bytes = shape.misaligned_bytes / element * element;
  const bool whole = shape.pieces.empty();  // blocks in a common target lie end to end
  d.shares = may && whole && muster::may_share_target(shape.collective.op) && random.below(3) == 0;
  d.in_common = d.shares && shape.collective.op != MUSTER_ALL_REDUCE && random.below(2) == 0;
  if (d.shares) {  // the place, and so its blocks, are the same for all
    shape.place = Place::kApart;
    shape.scattered = shape.silent_root = false;
  }
  d.shape = std::move(shape);
  std::size_t bytes = 0;
  if (!ghosted) {
    static_cast<void>(cases::placements_of(d.shape, &bytes));
    if (bytes > room * static_cast<std::size_t>(d.shape.ranks)) return std::nullopt;
  }
  d.made = ghosted ? ghosted_case(random, world, &d.shape) : cases::make_case(d.shape);
  d.begins = parts_of(d.made);
  d.shift = random.below(64) * kLine;
  for (std::size_t k = 0; k + 1 < d.begins.size(); ++k)
    if (d.begins[k + 1] - d.begins[k] + d.shift > room) return std::nullopt;
  return d;
}

// A rank's memory of each kind, and what it says of a case.
class Taker {
 public:
  Taker(Member& member, std::size_t room) : member_(member), room_(room) {
    for (const Kind kind : {kPlain, kNamed, kImported, kShared}) {
      sources_[kind] = memory_of(kind, "source");
      targets_[kind] = memory_of(kind, "target");
    }
    common_ = memory_of(kShared, "common");
    common_.data -= common_.at;  // all of it is everybody's
    common_.at = 0;
    groups_.push_back(MUSTER_GROUP_SELF);
    for (std::int32_t ranks = 2; ranks <= member.world; ++ranks) groups_.push_back(group_of(ranks));
  }

  // This rank's part in the case; none if it is no member.
  std::optional<Part> part_in(const Drawn& d) const {
    for (std::size_t k = 0; k < d.made.members.size(); ++k) {
      if (d.made.members[k].index != member_.rank) continue;
      Random random(d.seed * 64 + static_cast<std::uint64_t>(member_.rank));
      Part part{d.made.members[k], d.begins[k], d.begins[k + 1] - d.begins[k], kPlain, kPlain, false};
      part.gives = static_cast<Kind>(random.below(kKinds));
      part.one_buffer = d.shape.in_place(member_.rank) && !d.shares;
      // A target of those operations in shared memory would be one for all.
      const bool would_share = muster::may_share_target(d.shape.collective.op);
      part.gets = static_cast<Kind>(random.below(would_share ? kShared : kKinds));
      if (part.one_buffer) part.gives = part.gets;
      const bool moves = d.starts && !d.shares && muster::has_vectors(d.shape.collective.op);
      part.moves = moves && random.below(2) == 0;
      const std::uint64_t places = (room_ - part.bytes) / kLine + 1;
      part.source_shift = random.below(places) * kLine;
      part.target_shift = part.one_buffer ? part.source_shift : random.below(places) * kLine;
      return part;
    }
    return std::nullopt;
  }

  void give(const Drawn& d, const Part& part) {
    const std::byte* image = d.made.before.data() + part.begin;
    std::memcpy(source(part).data + d.shift, image, part.bytes);
    if (!part.one_buffer) std::memcpy(target(part).data + d.shift, image, part.bytes);
    const Block own = gives_in_common(d, part);
    if (own.bytes > 0)
      std::memcpy(common_.data + own.at, d.made.before.data() + part.placement.source, own.bytes);
  }
  // The operation; what it says if it fails.
  std::string take(const Drawn& d, const Part& part) {
    const muster_collective& here = said(d, part);
    muster_collective c = here;
    if (part.moves && c.source.buffer != 0) c.source.offset_bytes += part.source_shift - d.shift;
    if (part.moves && c.target.buffer != 0) c.target.offset_bytes += part.target_shift - d.shift;
    muster_plan plan = 0;
    muster_point point = 0;
    muster_status_t status = muster_plan_collective(member_.session, &c, &plan);
    if (status == MUSTER_OK && d.starts) {
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = d.lane;
      if (part.moves) {
        submit.flags = MUSTER_SUBMIT_OFFSETS;
        submit.source_offset_bytes = here.source.offset_bytes;
        submit.target_offset_bytes = here.target.offset_bytes;
      }
      status = muster_plan_start(member_.session, plan, &submit, &point);
      if (status == MUSTER_OK) status = muster_point_wait(member_.session, point, -1);
    } else if (status == MUSTER_OK) {
      status = muster_plan_run(member_.session, plan, 0);
    }
    std::string error = status == MUSTER_OK ? "" : muster_last_error();
    if (plan != 0 && muster_plan_destroy(member_.session, plan) != MUSTER_OK) error += muster_last_error();
    return error;
  }
  // Compares all buffers that were used, and puts their fences back.
  std::string check(const Drawn& d, const Part& part) {
    const std::byte* before = d.made.before.data() + part.begin;
    const std::byte* after = d.made.after.data() + part.begin;
    std::ostringstream wrong;
    if (!part.one_buffer && !is_whole(source(part), room_, d.shift, before, part.bytes))
      wrong << "the " << kKindNames[part.gives] << " buffer that it gives from was written; ";
    if (!is_whole(target(part), room_, d.shift, d.shares ? before : after, part.bytes))
      wrong << "the " << kKindNames[part.gets] << " buffer that it gets into is not what the oracle says; ";
    if (d.shares && !common_is_right(d, part)) wrong << "the one result of all is not what the oracle says; ";
    std::memset(source(part).data, static_cast<int>(kFence), d.shift + part.bytes);
    std::memset(target(part).data, static_cast<int>(kFence), d.shift + part.bytes);
    return wrong.str();
  }
  // Once nobody looks at it any more.
  void restore_common() { std::memset(common_.data, static_cast<int>(kFence), room_); }

 private:
  Memory memory_of(Kind kind, const std::string& what) {
    constexpr std::uint64_t kOffset = 4096;
    const std::string name = what + " of " + std::to_string(room_);  // it is there beyond this test
    const std::string shared_name = "shared " + name;
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kind == kShared ? room_ * static_cast<std::uint64_t>(member_.world) : room_;
    if (kind == kNamed) options.name = name.c_str();
    if (kind == kShared) options.name = shared_name.c_str(), options.shared_by = member_.group;
    if (kind == kImported) {
      options.memory = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      options.memory_offset_bytes = kOffset;
      EXPECT_EQ(ftruncate(options.memory, static_cast<off_t>(kOffset + room_)), 0);
      EXPECT_EQ(fcntl(options.memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    Memory memory;
    void* address = nullptr;
    const muster_status_t made =
        kind == kPlain ? muster_buffer_alloc(member_.session, room_, &memory.buffer, &address)
                       : muster_buffer_create(member_.session, &options, &memory.buffer, &address);
    EXPECT_EQ(made, MUSTER_OK) << muster_last_error();
    if (kind == kImported) ::close(options.memory);
    if (kind == kShared) memory.at = room_ * static_cast<std::uint64_t>(member_.rank);
    memory.data = static_cast<std::byte*>(address) + memory.at;
    std::memset(memory.data, static_cast<int>(kFence), room_);
    return memory;
  }
  // The group of the first `ranks` ranks.
  muster_group group_of(std::int32_t ranks) {
    if (ranks == member_.world) return member_.group;
    std::vector<std::int32_t> list;
    for (std::int32_t rank = 0; rank < ranks; ++rank) list.push_back(rank);
    muster_group group = 0;
    if (member_.rank >= ranks) return group;
    EXPECT_EQ(muster_group_make(member_.session, list.data(), list.size(), nullptr, &group), MUSTER_OK)
        << muster_last_error();
    return group;
  }

  const Memory& source(const Part& part) const {
    return part.one_buffer ? targets_[part.gets] : sources_[part.gives];
  }
  const Memory& target(const Part& part) const { return targets_[part.gets]; }

  // The block that the member contributes from its place in the common result; empty in other cases.
  struct Block {
    std::uint64_t at = 0, bytes = 0;
  };
  static Block gives_in_common(const Drawn& d, const Part& part) {
    const muster::Collective& c = d.shape.collective;
    const std::size_t element = muster::dtype_bytes(c.dtype);
    if (!d.in_common) return {};
    if (c.op == MUSTER_BROADCAST) return {d.shift, part.placement.index == c.root ? c.count * element : 0};
    const std::vector<std::uint64_t> lengths = cases::block_lengths(c, d.shape.ranks);
    const auto own = static_cast<std::size_t>(part.placement.index);
    return {d.shift + Placement::offset({}, lengths, own) * element, lengths[own] * element};
  }
  // The place in the image of byte `at` of the arena.
  static std::uint64_t place(const Drawn& d, const Part& part, const Memory& memory, std::size_t at) {
    return memory.at + d.shift + at - part.begin;
  }
  static muster_range range(const Drawn& d, const Part& part, const Memory& memory, std::size_t at) {
    if (at == cases::kNowhere) return {0, 0};
    return {memory.buffer, place(d, part, memory, at)};
  }
  bool common_is_right(const Drawn& d, const Part& part) const {
    const Placement& m = part.placement;
    const std::vector<std::uint64_t> lengths = cases::block_lengths(d.shape.collective, d.shape.ranks);
    std::uint64_t elements = d.shape.collective.count;
    if (d.shape.collective.op == MUSTER_ALL_GATHER) {
      elements = 0;
      for (const std::uint64_t length : lengths) elements += length;
    }
    const std::size_t bytes = elements * muster::dtype_bytes(d.shape.collective.dtype);
    return is_whole(common_, room_, d.shift, d.made.after.data() + m.target, bytes);
  }

  void faces(const Drawn& d, const Part& part, const std::vector<FacePlace>& places, const Memory& memory,
             std::vector<muster_face>& into) const {
    into.clear();
    for (const FacePlace& at : places) {
      muster_face face{at.peer, at.tag, {}};
      face.view.buffer = memory.buffer;
      face.view.offset_bytes = place(d, part, memory, at.at);
      face.view.dtype = d.shape.collective.dtype;
      face.view.dims = static_cast<std::int32_t>(at.size.size());
      std::copy(at.size.begin(), at.size.end(), face.view.size);
      std::copy(at.stride.begin(), at.stride.end(), face.view.stride);
      into.push_back(face);
    }
  }
  const muster_collective& said(const Drawn& d, const Part& part) {
    const muster::Collective& c = d.shape.collective;
    const Placement& p = part.placement;
    said_ = MUSTER_COLLECTIVE_INIT;
    said_.op = c.op;
    if (muster::is_transfer(c.op)) said_.op = p.index == c.root ? MUSTER_SEND : MUSTER_RECV;
    said_.group = groups_[static_cast<std::size_t>(d.shape.ranks) - 1];
    if (c.op == MUSTER_BARRIER) return said_;
    said_.dtype = c.dtype;
    if (c.op == MUSTER_EXCHANGE) {
      faces(d, part, p.sends, source(part), sends_);
      faces(d, part, p.receives, target(part), receives_);
      said_.sends = sends_.data();
      said_.receives = receives_.data();
      said_.send_count = static_cast<std::uint32_t>(sends_.size());
      said_.receive_count = static_cast<std::uint32_t>(receives_.size());
      return said_;
    }
    said_.redop = c.redop;
    said_.scale = c.redop == MUSTER_PREMUL_SUM ? c.scale : 0.0;
    said_.peer = said_.op == MUSTER_SEND ? c.receiver : c.root;
    said_.source = range(d, part, source(part), p.source);
    said_.target = d.shares ? muster_range{common_.buffer, d.shift} : range(d, part, target(part), p.target);
    const Block own = gives_in_common(d, part);
    if (own.bytes > 0) said_.source = {common_.buffer, own.at};
    said_.count = muster::is_pairwise(c.op) ? p.count : c.first_piece.empty() ? c.count : 0;
    const bool is_root = p.index == c.root;
    const bool agreed = muster::has_agreed_blocks(c.op);
    const auto list = [](const std::vector<std::uint64_t>& numbers) {
      return numbers.empty() ? nullptr : numbers.data();
    };
    const auto blocks = [&](const auto& counts, const auto& offsets) -> muster_blocks {
      if (!p.piece_counts.empty()) return {nullptr, nullptr, p.piece_counts.data(), p.pieces.data()};
      return {list(agreed ? c.counts : counts), list(offsets), nullptr, nullptr};
    };
    if (muster::has_source_blocks(c.op, is_root))
      said_.source_blocks = blocks(p.source_counts, p.source_offsets);
    if (muster::has_target_blocks(c.op, is_root))
      said_.target_blocks = blocks(p.target_counts, p.target_offsets);
    return said_;
  }

  Member& member_;
  std::size_t room_;  // bytes of each buffer
  std::array<Memory, kKinds> sources_, targets_;
  Memory common_;
  std::vector<muster_group> groups_;  // of the first ranks, one more each
  muster_collective said_ = MUSTER_COLLECTIVE_INIT;
  std::vector<muster_face> sends_, receives_;
};

class RandomCollectives : public muster::test::RunningRanks {
 protected:
  // Drops out of the barrier at the end, so that no rank waits for one that leaves early.
  struct Attendance {
    explicit Attendance(std::barrier<>& barrier) : meeting(barrier) {}
    ~Attendance() { meeting.arrive_and_drop(); }
    std::barrier<>& meeting;
  };

  // Nodes add in another order than one node.
  Shape shape_for_nodes(Shape shape) const {
    return node_.several() ? cases::added_exactly(std::move(shape)) : shape;
  }
  static bool is_first_of_node(const Member& member) {
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    EXPECT_EQ(muster_session_query(member.session, &info), MUSTER_OK);
    return info.local_rank == 0;
  }

  // Takes the results of `next`, until there is none. One rank at a time may call it.
  void take_all(int world, std::size_t room, const std::function<std::optional<Drawn>()>& next) {
    std::barrier meeting(world);
    std::optional<Drawn> now;
    with_ranks(world, [&](Member& member) {
      const Attendance attendance(meeting);
      Taker taker(member, room);
      if (is_first_of_node(member)) taker.restore_common();
      while (true) {
        const bool shared = now && now->shares;
        meeting.arrive_and_wait();  // all have looked at the one before
        if (shared && is_first_of_node(member)) taker.restore_common();
        if (member.rank == 0) now = HasFailure() ? std::nullopt : next();
        meeting.arrive_and_wait();
        if (!now) return;
        const std::optional<Part> part = taker.part_in(*now);
        std::string error;
        if (part) {
          taker.give(*now, *part);
          error = taker.take(*now, *part);
        }
        meeting.arrive_and_wait();  // what others share has been written
        if (part && error.empty()) error = taker.check(*now, *part);
        EXPECT_EQ(error, "") << "seed " << now->seed << ", rank " << member.rank << " of " << world
                             << (now->starts ? ", started on lane " + std::to_string(now->lane) : ", run")
                             << (now->in_common ? ", one result for all in place: "
                                 : now->shares  ? ", one result for all: "
                                                : ": ")
                             << now->shape.text();
      }
    });
  }
  // Run, and started.
  void take_rows(const std::vector<Shape>& rows, std::size_t room) {
    constexpr int kWorld = 8;
    std::uint64_t taken = 0;
    take_all(kWorld, room, [&]() -> std::optional<Drawn> {
      if (taken == 2 * rows.size()) return std::nullopt;
      auto made = drawn(shape_for_nodes(rows[taken / 2]), kWorld, taken, room, Turns::kNone);
      EXPECT_TRUE(made) << "no room: " << rows[taken / 2].text();
      if (made) made->starts = taken % 2 != 0;
      ++taken;
      return made;
    });
    std::printf("%llu cases in buffers of %zu KiB\n", static_cast<unsigned long long>(taken), room >> 10);
  }
};

// Goal:   cases that nobody thought of. A failing seed is printed.
TEST_F(RandomCollectives, GiveTheBitsOfTheOracle) {
  const std::uint64_t cases = muster::test::property_cases(5000);
  std::uint64_t seed = 0;
  for (const int world : {2, 4, 9}) {
    std::uint64_t taken = 0;
    take_all(world, kRoom, [&]() -> std::optional<Drawn> {
      while (taken < cases / 3) {
        ++seed;
        auto one = drawn(shape_for_nodes(cases::random_shape(seed)), world, seed);
        if (one) {
          ++taken;
          return one;
        }
      }
      return std::nullopt;
    });
  }
}

// Goal:   every operation, dtype, operator, number of ranks and length gives the oracle's bits, run and
//         started, in and out of place: what the conformance suite shows of each path alone, through
//         muster.h.
// Method: lengths of nothing, one element, less than a vector, a few tiles, and many parts with an odd end;
//         MUSTER_CONFORMANCE=full takes all of them, else what takes_long() and takes_longest() choose.
TEST_F(RandomCollectives, GiveTheBitsOfTheOracleAtEachLength) {
  for (const std::uint64_t count : cases::kEachCount) {
    std::vector<Shape> rows;
    cases::for_each_shape(count, [&](const Shape& shape) { return rows.push_back(shape), true; });
    take_rows(rows, count < 4099 ? kRoom : 2 * kRoom);
  }
  std::vector<Shape> rows;
  cases::for_each_long_shape([&](const Shape& shape) { return rows.push_back(shape), true; });
  take_rows(rows, kLargeRoom);
}

// Goal:   every operator on every dtype, run and started, into targets of their own and into one for all.
TEST_F(RandomCollectives, ReduceEveryDtypeByEveryOperator) {
  struct One {
    muster_op op;
    muster_dtype dtype;
    muster_redop redop;
    std::uint64_t count;
    bool starts, shares;
  };
  std::vector<One> all;
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE, MUSTER_REDUCE_SCATTER})
    for (const muster_dtype dtype : muster::math::test::kDtypes)
      for (const muster_redop redop : muster::math::test::kRedops)
        for (const std::uint64_t count : {5, 6000})
          for (const bool starts : {false, true})
            for (const bool shares : {false, true})
              if (!shares || op == MUSTER_ALL_REDUCE)
                all.push_back({op, dtype, redop, count, starts, shares});
  std::size_t next = 0;
  take_all(3, kRoom, [&]() -> std::optional<Drawn> {
    if (next == all.size()) return std::nullopt;
    const One& one = all[next++];
    Shape shape =
        cases::varied(cases::shape_of(one.op, one.dtype, one.redop, 3, one.count, Place::kApart), next);
    if (one.shares) shape.scattered = false;
    auto made = drawn(shape_for_nodes(std::move(shape)), 3, next);
    made->starts = one.starts;
    made->shares = one.shares;
    made->in_common = false;
    return made;
  });
}

}  // namespace
