// Check mode reports misuse of halos. Each test plants one wrong line in a correct program.
#include "tests/api/client/check/checked_ranks.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>

#include <muster/halo.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Eight items over two ranks, and a window of three: rank 0 has a ghost behind its own items, rank 1 one
// before.
class CheckHalos : public CheckedRanks {
 protected:
  struct Ring {
    muster_halos* halos = nullptr;
    Vector held, out;
    std::int64_t ghost = 0;  // where it lies in `held`
    muster_plan interior = 0, boundary = 0;
    muster_halo halo = 0;
    muster_point forward(muster_status_t expected = MUSTER_OK) const {
      muster_point done = MUSTER_POINT_NONE;
      EXPECT_EQ(muster_halo_forward(halos, halo, MUSTER_POINT_NONE, &done), expected) << muster_last_error();
      return done;
    }
  };
  static muster_plan copy_of(Member& member, const Ring& ring, std::int64_t first, std::int64_t count) {
    muster_plan plan = 0;
    const auto at = static_cast<std::uint64_t>(first);
    const muster_kernel copy = muster_copy(floats(ring.held, count, at), floats(ring.out, count, at));
    ok(muster_plan_kernel(member.session, &copy, &plan));
    return plan;
  }
  static Ring ring_of(Member& member, bool boundary_too_early) {
    muster_layout_options cut = MUSTER_LAYOUT_OPTIONS_INIT;
    cut.dims = 1;
    cut.shape[0] = 8;
    cut.axis_count = 1;
    cut.axes[0].ranks = 2;
    cut.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    ok(muster_layout_create(nullptr, &cut, &layout));
    const muster_window window = muster_window_convolution(3, 1, 1, 1, 1, MUSTER_PAD_ZEROS);
    muster_stencil_options said = MUSTER_STENCIL_OPTIONS_INIT;
    said.layout = layout;
    said.windows = &window;
    muster_stencil* stencil = nullptr;
    ok(muster_stencil_create(&said, &stencil));
    Ring ring;
    ring.held = vector_of(member, 5);
    ring.out = vector_of(member, 5);
    ring.ghost = member.rank == 0 ? 4 : 0;
    for (int i = 0; i < 5; ++i) ring.held.data[i] = static_cast<float>(10 * member.rank + i);
    muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
    set.group = member.group;
    ok(muster_halos_create(member.session, &set, &ring.halos));
    ring.interior = copy_of(member, ring, member.rank == 0 ? 0 : 2, 3);
    ring.boundary = copy_of(member, ring, ring.ghost, 1);
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "ring";
    options.stencil = stencil;
    const std::int64_t five = 5;
    options.held = muster_view(ring.held.buffer, 0, MUSTER_F32, 1, &five);
    const muster_plan both[] = {ring.interior, ring.boundary};
    options.forward.interior = both;
    options.forward.interior_count = boundary_too_early ? 2 : 1;
    options.forward.boundary = both + 1;
    options.forward.boundary_count = boundary_too_early ? 0 : 1;
    ok(muster_halo_create(ring.halos, &options, &ring.halo));
    ok(muster_stencil_destroy(stencil));
    ok(muster_layout_destroy(layout));
    return ring;
  }
};

TEST_F(CheckHalos, IsSilentWhereNothingIsWrong) {
  with_ranks(2, [](Member& member) {
    const Ring ring = ring_of(member, false);
    for (int epoch = 0; epoch < 3; ++epoch) {
      ok(muster_point_wait(member.session, ring.forward(), -1));
      EXPECT_EQ(ring.out.data[ring.ghost], static_cast<float>(member.rank == 0 ? 11 + epoch : 3 + epoch));
      for (int i = 0; i < 5; ++i) ring.held.data[i] += 1.0F;
    }
    ok(muster_halos_destroy(ring.halos));
  });
}

// Goal:   from the start of a forward on, ghosts of the one before are NaN, until the next ones have come.
// Method: rank 1 aborts the group where it should start, so none come.
TEST_F(CheckHalos, SpoilsGhostsUntilTheyLand) {
  with_ranks(2, [](Member& member) {
    const Ring ring = ring_of(member, false);
    ok(muster_point_wait(member.session, ring.forward(), -1));
    EXPECT_EQ(ring.held.data[ring.ghost], member.rank == 0 ? 11.0F : 3.0F);
    if (member.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ok(muster_group_abort(member.session, member.group));
    } else {
      EXPECT_NE(muster_point_wait(member.session, ring.forward(), -1), MUSTER_OK);
      EXPECT_TRUE(std::isnan(ring.held.data[ring.ghost]));
      for (int i = 0; i < 4; ++i) EXPECT_EQ(ring.held.data[i], static_cast<float>(i));
    }
    ok(muster_halos_abandon(ring.halos));
    ok(muster_halos_destroy(ring.halos));
  });
}

TEST_F(CheckHalos, NamesABoundaryKernelThatStartsEarly) {
  with_ranks(2, [](Member& member) {
    const Ring ring = ring_of(member, true);
    static_cast<void>(ring.forward(MUSTER_ERR_STATE));
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("kernel copy"), HasSubstr("reads bytes"),
                                           HasSubstr("exchange"), HasSubstr("ring")));
    ok(muster_halos_abandon(ring.halos));
    ok(muster_halos_destroy(ring.halos));
  });
}

// Goal:   an array that is freed in mid-halo is not lost, and the call that frees it says so.
TEST_F(CheckHalos, NamesAFreeThatComesEarly) {
  with_ranks(2, [](Member& member) {
    const Ring ring = ring_of(member, false);
    ok(muster_point_wait(member.session, ring.forward(), -1));
    if (member.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const muster_point done = ring.forward();
    if (member.rank == 0) {
      EXPECT_NE(muster_buffer_free(member.session, ring.held.buffer), MUSTER_OK);
      EXPECT_THAT(muster_last_error(), HasSubstr("plans use the buffer"));
    }
    ok(muster_point_wait(member.session, done, -1));
    EXPECT_EQ(ring.out.data[ring.ghost], member.rank == 0 ? 11.0F : 3.0F);
    ok(muster_halos_destroy(ring.halos));
  });
}

}  // namespace
}  // namespace muster::test
