// Halos move the bytes that their stencils predict, and no others. Counters say so: of each rank what has
// landed, and of each node what it has sent to others.
#include "api/client/stencil_handle.hpp"
#include "tests/api/base/halo/played.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <muster/halo.h>
#include <muster/kernels.h>

namespace {

using muster::Box;
using muster::halo::Corners;
using muster::halo::Halo;
using muster::halo::Stencil;
using muster::halo::Window;
using muster::halo::test::halos_of;
using muster::halo::test::Items;
using muster::halo::test::layout_of;
using muster::shm::GroupCount;
using muster::test::Member;
using muster::test::ok;

constexpr int kRanks = 8;
constexpr std::uint64_t kRounds = 3;
constexpr std::uint64_t kElement = sizeof(float);

struct Case {
  const char* name;
  Items shape, cuts;
  std::map<std::size_t, Items> lengths;
  Window window;  // of each dim
  Corners corners = Corners::kDirect;
};

Window window_of(std::int64_t kernel, Window::Pad pad) {
  return {Window::Kind::kConvolution, kernel, 1, 1, kernel / 2, kernel / 2, pad};
}

std::vector<Case> cases() {
  const Window plain = window_of(3, Window::Pad::kZeros), ring = window_of(3, Window::Pad::kCircular);
  const Window wide = window_of(7, Window::Pad::kZeros);
  return {{"row", {32}, {8}, {}, plain},
          {"ring", {32}, {8}, {}, ring},
          {"thin", {17}, {8}, {{0, {1, 1, 1, 5, 0, 1, 1, 7}}}, wide},
          {"corners", {12, 10}, {4, 2}, {}, plain},
          {"corners_by_dims", {12, 10}, {4, 2}, {}, plain, Corners::kByDims},
          {"long_rows", {16, 4'096}, {8, 1}, {}, plain},
          {"cube", {6, 6, 6}, {2, 2, 2}, {}, ring}};
}

// The items that a rank's results read and that it does not own: each once. Pads of zeros.
std::uint64_t ghosts_of(const Halo& halo, const Items& shape) {
  std::uint64_t ghosts = 0;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (halo.results.length[d] == 0) return 0;
  muster::halo::test::each_of(halo.needed, [&](const Items& item) {
    bool owned = true, inside = true;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      owned = owned && item[d] >= halo.own.offset[d] && item[d] < halo.own.offset[d] + halo.own.length[d];
      inside = inside && item[d] >= 0 && item[d] < shape[d];
    }
    if (inside && !owned) ++ghosts;
  });
  return ghosts;
}

class HaloBytes : public muster::test::RunningRanks, public ::testing::WithParamInterface<Case> {
 protected:
  static std::uint64_t bytes_of(const muster::halo::Segment& segment) {
    return static_cast<std::uint64_t>(segment.elements(GetParam().shape.size())) * kElement;
  }
  HaloBytes()
      : stencil_(*Stencil::make(layout_of(GetParam().shape, GetParam().cuts, GetParam().lengths),
                                std::vector<Window>(GetParam().shape.size(), GetParam().window))),
        halos_(halos_of(stencil_, GetParam().corners)) {}

  // The bytes that each node sends to others in a forward and a backward, by the needs of the getters. In a
  // backward each ghost's gradient returns.
  std::vector<std::uint64_t> predicted() const {
    std::vector<std::uint64_t> sent(node_.count());
    for (int rank = 0; rank < kRanks; ++rank)
      for (const auto& segment : halos_[static_cast<std::size_t>(rank)].gets) {
        const std::uint32_t here = node_.node_of(rank, kRanks);
        const std::uint32_t there = node_.node_of(static_cast<int>(segment.peer), kRanks);
        if (here == there) continue;
        sent[there] += bytes_of(segment);
        sent[here] += bytes_of(segment);
      }
    return sent;
  }
  // A node counts an operation when it forgets it, and writes its counts now and then. So they are read until
  // they rest.
  std::vector<std::uint64_t> sent() {
    std::vector<std::uint64_t> last(node_.count());
    for (int same = 0; node_.several() && same < 6;) {
      auto now = node_.counted("job-of-" + std::to_string(kRanks), "field", GroupCount::kSentBytes);
      same = now == last ? same + 1 : 0;
      last = std::move(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return last;
  }
  static std::uint64_t moved(const Member& member) {
    std::uint64_t bytes = 0;
    ok(muster_counter(member.session, "bytes_moved", &bytes));
    return bytes;
  }

  const Stencil stencil_;
  const std::vector<Halo> halos_;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}
INSTANTIATE_TEST_SUITE_P(Of, HaloBytes, ::testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.name; });

muster_tensor array_of(const Member& member, const Box& box) {
  muster_buffer buffer = 0;
  void* address = nullptr;
  ok(muster_buffer_alloc(member.session, static_cast<std::uint64_t>(box.elements()) * kElement + kElement,
                         &buffer, &address));
  return muster_view(buffer, 0, MUSTER_F32, static_cast<std::int32_t>(box.dims), box.length.data());
}

// Goal:   each ghost comes once, its gradient returns once, and no byte goes anywhere else.
TEST_P(HaloBytes, AreWhatTheStencilPredicts) {
  for (const Halo& halo : halos_) {
    std::uint64_t elements = 0;
    for (const auto& segment : halo.gets) elements += bytes_of(segment) / kElement;
    if (GetParam().window.pad == Window::Pad::kZeros && GetParam().corners == Corners::kDirect)
      EXPECT_EQ(elements, ghosts_of(halo, GetParam().shape));
  }
  std::vector<std::uint64_t> before;
  with_ranks(kRanks, [&](Member& member) {
    std::vector<std::int32_t> world(kRanks);
    for (std::int32_t i = 0; i < kRanks; ++i) world[static_cast<std::size_t>(i)] = i;
    muster_group group = 0;
    ok(muster_group_make(member.session, world.data(), world.size(), "field", &group));
    muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
    set.group = group;
    muster_halos* halos = nullptr;
    ok(muster_halos_create(member.session, &set, &halos));
    const Halo& mine = halos_[static_cast<std::size_t>(member.rank)];
    const muster_stencil cut{stencil_};
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "conv";
    options.stencil = &cut;
    options.corners = GetParam().corners == Corners::kDirect ? MUSTER_CORNERS_DIRECT : MUSTER_CORNERS_BY_DIMS;
    options.gradients = MUSTER_HALO_RETURN;
    options.held = array_of(member, mine.held);
    options.held_gradients = array_of(member, mine.held);
    muster_halo halo = 0;
    ok(muster_halo_create(halos, &options, &halo));
    const auto round = [&] {
      muster_point done = MUSTER_POINT_NONE;
      ok(muster_halo_forward(halos, halo, MUSTER_POINT_NONE, &done));
      ok(muster_halo_backward(halos, halo, done, &done));
      ok(muster_point_wait(member.session, done, -1));
    };
    round();  // the first start compares the sets, which moves bytes too
    ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    const std::uint64_t moved_before = moved(member);
    if (member.rank == 0) before = sent();
    await_all(member);
    for (std::uint64_t i = 0; i < kRounds; ++i) round();
    std::uint64_t lands = 0;
    for (const auto& segment : mine.gets) lands += bytes_of(segment);
    for (const auto& segment : mine.gives) lands += bytes_of(segment);
    EXPECT_EQ(moved(member) - moved_before, kRounds * lands) << "rank " << member.rank;
    muster_halos_info info = MUSTER_HALOS_INFO_INIT;
    ok(muster_halos_query(halos, &info));
    EXPECT_EQ(info.forward_bytes_in, static_cast<std::uint64_t>(mine.elements_in) * kElement);
    EXPECT_EQ(info.backward_bytes_in, info.forward_bytes_out);
    EXPECT_EQ(info.backward_bytes_out, info.forward_bytes_in);
    await_all(member);
    if (member.rank == 0) {
      std::vector<std::uint64_t> expected = before;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += kRounds * predicted()[i];
      EXPECT_EQ(sent(), expected);
    }
    ok(muster_halos_destroy(halos));
    meet_and_leave(member);
  });
}

}  // namespace
