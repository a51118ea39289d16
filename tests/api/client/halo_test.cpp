// Sets of halos on real ranks: what they carry, forward and backward, and how all hear of what is wrong.
#include <muster/halo.h>

#include "api/client/stencil_handle.hpp"
#include "tests/api/base/halo/drawn.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace {

using muster::Box;
using muster::halo::Corners;
using muster::halo::Halo;
using muster::halo::Stencil;
using muster::halo::Window;
using muster::halo::test::Draw;
using muster::halo::test::Drawn;
using muster::halo::test::each_of;
using muster::halo::test::Grid;
using muster::halo::test::Items;
using muster::halo::test::layout_of;
using muster::halo::test::place;
using muster::test::Member;
using muster::test::ok;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
const Window kSame{Window::Kind::kConvolution, 3, 1, 1, 1, 1};

// An array of a rank, of the shape of a box.
class Array {
 public:
  Array(const Member& member, const Box& box)
      : shape_(box.length.begin(), box.length.begin() + static_cast<std::ptrdiff_t>(box.dims)) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(box.elements()) * sizeof(float);
    void* address = nullptr;
    muster_buffer buffer = 0;
    ok(muster_buffer_alloc(member.session, std::max<std::uint64_t>(bytes, 4), &buffer, &address));
    data_ = static_cast<float*>(address);
    view = muster_view(buffer, 0, MUSTER_F32, static_cast<std::int32_t>(box.dims), shape_.data());
    fill(kNothing);
  }
  void fill(float value) { std::fill_n(data_, std::max<std::int64_t>(count(), 0), value); }
  float& at(const Items& index) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) place = place * shape_[d] + index[d];
    return data_[place];
  }
  std::int64_t count() const {
    return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
  }

  muster_tensor view{};

 private:
  Items shape_;
  float* data_ = nullptr;
};

class Halos : public muster::test::RunningRanks {
 protected:
  static muster_halos* make_set(Member& member, muster_group group) {
    muster_halos_options options = MUSTER_HALOS_OPTIONS_INIT;
    options.group = group;
    muster_halos* halos = nullptr;
    ok(muster_halos_create(member.session, &options, &halos));
    return halos;
  }
  static void await_point(Member& member, muster_point point) {
    ok(muster_point_wait(member.session, point, -1));
  }
  // 8 rows over all ranks.
  static muster_stencil rows(const Member& member, const Window& window = kSame) {
    return {*Stencil::make(layout_of({8}, {member.world}), std::vector<Window>{window})};
  }
};

// One halo of a drawn stencil, with the arrays of this rank.
struct PlayedHalo {
  PlayedHalo(Member& of, const Drawn& with, Corners corners, muster_halo_gradients how)
      : member(of),
        drawn(with),
        gradients(how),
        mine(*drawn.stencil.halo(member.rank, corners)),
        fetched(how == MUSTER_HALO_FETCH ? *drawn.stencil.gradient()->halo(member.rank, corners) : Halo()),
        held(member, mine.held),
        back(member, how == MUSTER_HALO_FETCH ? fetched.held : mine.held) {}

  void fill(const Grid& x) {
    held.fill(kNothing);
    each_of(mine.own, [&](const Items& i) { held.at(place(mine, i)) = static_cast<float>(x.at(i)); });
  }
  void expect_results(const Grid& y) {
    each_of(mine.results, [&](const Items& o) {
      double sum = 0;
      drawn.played.each_tap(o, [&](const Items& w, const Items& item) {
        sum += drawn.played.weight(w) * held.at(place(mine, item));
      });
      EXPECT_EQ(sum, y.at(o));
    });
  }
  // The gradients that this rank computes before any travels.
  void fill_gradients(const Grid& dy) {
    if (gradients == MUSTER_HALO_FETCH) {
      back.fill(kNothing);
      each_of(fetched.own,
              [&](const Items& o) { back.at(place(fetched, o)) = static_cast<float>(dy.at(o)); });
      return;
    }
    back.fill(0);
    each_of(mine.results, [&](const Items& o) {
      drawn.played.each_tap(o, [&](const Items& w, const Items& item) {
        back.at(place(mine, item)) += static_cast<float>(drawn.played.weight(w) * dy.at(o));
      });
    });
  }
  void expect_gradients(const Grid& dx) {
    if (gradients == MUSTER_HALO_RETURN) {
      each_of(mine.own, [&](const Items& i) { EXPECT_EQ(back.at(place(mine, i)), dx.at(i)); });
      return;
    }
    Grid sums(drawn.played.items());
    each_of(fetched.needed, [&](const Items& o) {
      drawn.played.each_tap(o, [&](const Items& w, const Items& item) {
        sums.at(item) += drawn.played.weight(w) * back.at(place(fetched, o));
      });
    });
    each_of(mine.own, [&](const Items& i) { EXPECT_EQ(sums.at(i), dx.at(i)); });
  }

  Member& member;
  const Drawn& drawn;
  muster_halo_gradients gradients;
  Halo mine, fetched;
  Array held, back;
};

// Three epochs of one halo with other data each time, in which ranks are late by chance. An array is written
// anew as soon as its point is reached: a neighbour that still read it would see the next epoch.
void play(Member& member, std::uint64_t seed) {
  Draw draw(seed);
  const Drawn d = muster::halo::test::drawn(draw, seed, member.world);
  SCOPED_TRACE(d.text);
  const auto ranks = static_cast<std::int32_t>(d.stencil.layout().ranks());
  if (member.rank >= ranks) return;
  const bool by_dims = draw.one_in(2);
  const bool fetches = draw.one_in(2) && d.stencil.gradient().has_value();
  constexpr std::size_t kFacesMax = 680;
  for (const Halo& halo :
       muster::halo::test::halos_of(d.stencil, by_dims ? Corners::kByDims : Corners::kDirect))
    if (halo.gets.size() + halo.gives.size() > kFacesMax) return;  // wide pads in three dims, row by row
  std::vector<std::int32_t> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  muster_group group = MUSTER_GROUP_SELF;
  ok(muster_group_make(member.session, world.data(), world.size(), "field", &group));
  PlayedHalo played(member, d, by_dims ? Corners::kByDims : Corners::kDirect,
                    fetches ? MUSTER_HALO_FETCH : MUSTER_HALO_RETURN);

  muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
  set.group = group;
  muster_halos* halos = nullptr;
  ok(muster_halos_create(member.session, &set, &halos));
  const muster_stencil stencil{d.stencil};
  muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
  options.name = "conv";
  options.stencil = &stencil;
  options.corners = by_dims ? MUSTER_CORNERS_BY_DIMS : MUSTER_CORNERS_DIRECT;
  options.gradients = played.gradients;
  options.held = played.held.view;
  options.held_gradients = played.back.view;
  muster_halo halo = 0;
  ok(muster_halo_create(halos, &options, &halo));
  std::mt19937_64 late(seed * 64 + static_cast<std::uint64_t>(member.rank));
  for (int epoch = 0; epoch < 3; ++epoch) {
    const Grid x = draw.numbers(d.played.items()), dy = draw.numbers(d.played.results());
    const Grid y = d.played.forward(x), dx = d.played.gradient(dy);
    if (late() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(late() % 400));
    muster_point done = MUSTER_POINT_NONE;
    played.fill(x);
    ok(muster_halo_forward(halos, halo, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(member.session, done, -1));
    played.expect_results(y);
    played.fill(Grid(x.shape, 1e30));  // whoever still read it would be wrong
    played.fill_gradients(dy);
    ok(muster_halo_backward(halos, halo, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(member.session, done, -1));
    played.expect_gradients(dx);
    played.back.fill(1e30F);
  }
  muster_halos_info info = MUSTER_HALOS_INFO_INIT;
  ok(muster_halos_query(halos, &info));
  EXPECT_EQ(info.forward_bytes_in, static_cast<std::uint64_t>(played.mine.elements_in) * sizeof(float));
  ok(muster_halos_destroy(halos));
  for (const Array* array : {&played.held, &played.back})
    ok(muster_buffer_free(member.session, array->view.buffer));
  ok(muster_group_free(member.session, group));
}

// Goal:   random stencils on real ranks give what one rank computes, to the bit, forward and backward, over
//         epochs with changing data and ranks that are late.
TEST_F(Halos, CarryWhatOneRankWouldRead) {
  const std::uint64_t cases = muster::test::property_cases(60);
  with_ranks(8, [&](Member& member) {
    for (std::uint64_t seed = 0; seed < cases && !HasFailure(); ++seed) {
      play(member, seed + 1'000'000);
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    }
    meet_and_leave(member);
  });
}

// Goal:   boundary kernels run when ghosts have come, interior kernels do not wait for them, and one point is
//         after all. In a backward the ghosts' gradients leave after the boundary kernels, and come home
//         before the additions.
TEST_F(Halos, RunTheirKernelsAroundTheExchange) {
  with_ranks(2, [&](Member& member) {
    const muster_stencil stencil = rows(member);
    const Halo halo = *stencil.stencil.halo(member.rank);
    Array held(member, halo.held), back(member, halo.held), seen(member, halo.held), early(member, halo.own);
    const std::int64_t own_at = halo.own.offset[0] - halo.held.offset[0], ghost_at = member.rank == 0 ? 4 : 0;
    const auto part = [](const Array& array, std::int64_t at, std::int64_t length) {
      muster_tensor view = array.view;
      view.offset_bytes += static_cast<std::uint64_t>(at) * sizeof(float);
      view.size[0] = length;
      return view;
    };
    const auto plan = [&](const muster_kernel& kernel) {
      muster_plan made = 0;
      ok(muster_plan_kernel(member.session, &kernel, &made));
      return made;
    };
    const muster_plan interior = plan(muster_copy(part(held, own_at, 4), early.view));
    const muster_plan boundary = plan(muster_copy(held.view, seen.view));
    const muster_plan ghosts = plan(muster_fill(part(back, ghost_at, 1), 5));
    const muster_plan rest = plan(muster_fill(part(back, own_at, 4), 1));
    muster_halos* halos = make_set(member, member.group);
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "conv";
    options.stencil = &stencil;
    options.held = held.view;
    options.held_gradients = back.view;
    options.gradients = MUSTER_HALO_RETURN;
    options.forward = {&interior, &boundary, 1, 1};
    options.backward = {&rest, &ghosts, 1, 1};
    muster_halo number = 0;
    ok(muster_halo_create(halos, &options, &number));
    std::uint32_t late = 0;
    ok(muster_timeline_create(member.session, &late));
    muster_point done = MUSTER_POINT_NONE;
    for (std::int64_t i = 0; i < 4; ++i) held.at({own_at + i}) = static_cast<float>(4 * member.rank + i + 1);
    // Rank 1 is late: until then rank 0 has run its interior, and nothing behind that.
    ok(muster_halo_forward(halos, number,
                           member.rank == 1 ? muster_timeline_point(late, 1) : MUSTER_POINT_NONE, &done));
    if (member.rank == 0) {
      await([&] { return early.at({3}) == 4; });
      EXPECT_EQ(muster_point_wait(member.session, done, 30'000'000), MUSTER_ERR_WAIT_TIMEOUT);
      EXPECT_TRUE(std::isnan(seen.at({0})));
    }
    await_all(member);
    if (member.rank == 1) ok(muster_timeline_signal(member.session, late, 1));
    await_point(member, done);
    for (std::int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(seen.at({i}), static_cast<float>(halo.held.offset[0] + i + 1));
    ok(muster_halo_backward(halos, number, done, &done));
    await_point(member, done);
    for (std::int64_t i = 0; i < 4; ++i) {
      const bool at_the_cut = member.rank == 0 ? i == 3 : i == 0;
      EXPECT_EQ(back.at({own_at + i}), at_the_cut ? 6 : 1);
    }
    ok(muster_halos_destroy(halos));
    meet_and_leave(member);
  });
}

// Goal:   a stencil that nothing crosses meets nobody.
TEST_F(Halos, MeetNobodyWhereNothingIsRead) {
  with_ranks(2, [&](Member& member) {
    const muster_stencil stencil = rows(member, {Window::Kind::kConvolution, 2, 2});
    Array held(member, stencil.stencil.halo(member.rank)->held);
    muster_halos* halos = make_set(member, member.group);
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "patches";
    options.stencil = &stencil;
    options.held = held.view;
    muster_halo number = 0;
    ok(muster_halo_create(halos, &options, &number));
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_halo_forward(halos, number, MUSTER_POINT_NONE, &done));
    if (member.rank == 0) {
      await_point(member, done);
      ok(muster_halo_forward(halos, number, MUSTER_POINT_NONE, &done));
      await_point(member, done);
    }
    muster_halos_info info = MUSTER_HALOS_INFO_INIT;
    ok(muster_halos_query(halos, &info));
    EXPECT_EQ(info.exchanges, 0U);
    EXPECT_EQ(muster_halo_backward(halos, number, MUSTER_POINT_NONE, &done), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("halo \"patches\" was made for forward only"));
    ok(muster_halos_destroy(halos));
    meet_and_leave(member);
  });
}

// Goal:   ranks with other kernels, names, or numbers of halos hear so at the first start, all of them.
TEST_F(Halos, ThatDifferAreAnErrorOfAllRanks) {
  with_ranks(3, [&](Member& member) {
    for (const char* what : {"kernel", "stride", "name", "count", "corners"}) {
      SCOPED_TRACE(what);
      const bool other = member.rank == 2;
      const auto is = [&](const char* word) { return other && std::string_view(what) == word; };
      Window window = kSame;
      if (is("kernel")) window.kernel = 2;
      if (is("stride")) window.stride = 2;
      const muster_stencil stencil = rows(member, window);
      Array held(member, stencil.stencil.halo(member.rank)->held);
      muster_halos* halos = make_set(member, member.group);
      muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
      options.name = is("name") ? "other" : "conv";
      options.stencil = &stencil;
      options.held = held.view;
      if (is("corners")) options.corners = MUSTER_CORNERS_BY_DIMS;
      muster_halo number = 0;
      ok(muster_halo_create(halos, &options, &number));
      options.name = "second";
      if (!is("count")) ok(muster_halo_create(halos, &options, &number));
      muster_point done = MUSTER_POINT_NONE;
      EXPECT_EQ(muster_halo_forward(halos, 0, MUSTER_POINT_NONE, &done), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(),
                  AllOf(HasSubstr("ranks have made different halos"), HasSubstr("Rank 2")));
      ok(muster_halos_destroy(halos));
      await_all(member);
    }
    meet_and_leave(member);
  });
}

// Goal:   a rank that is refused alone (here: more faces than an exchange has) tells all others so.
TEST_F(Halos, RefusedAtOneRankAreRefusedAtAll) {
  with_ranks(2, [&](Member& member) {
    // All results are at rank 0, which gets each row of a reflected pad by itself.
    Window wide{Window::Kind::kConvolution, 701, 1, 1, 700, 700, Window::Pad::kReflect};
    const muster_stencil stencil{
        *Stencil::make(layout_of({800}, {2}), std::vector<Window>{wide}, std::vector<Items>{{1500, 0}})};
    Array held(member, stencil.stencil.halo(member.rank)->held);
    muster_halos* halos = make_set(member, member.group);
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "wide";
    options.stencil = &stencil;
    options.held = held.view;
    muster_halo number = 0;
    ok(muster_halo_create(halos, &options, &number));
    muster_point done = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_halo_forward(halos, number, MUSTER_POINT_NONE, &done), MUSTER_ERR_NO_RESOURCE);
    EXPECT_THAT(muster_last_error(), HasSubstr("680"));
    ok(muster_halos_destroy(halos));
    meet_and_leave(member);
  });
}

TEST_F(Halos, NameWhatIsWrongWithAHalo) {
  with_ranks(2, [&](Member& member) {
    const muster_stencil stencil = rows(member);
    const Halo halo = *stencil.stencil.halo(member.rank);
    Array held(member, halo.held), own(member, halo.own);
    muster_halos* halos = make_set(member, member.group);
    muster_halo number = 0;
    muster_halo_options good = MUSTER_HALO_OPTIONS_INIT;
    good.name = "conv";
    good.stencil = &stencil;
    good.held = held.view;
    const auto expect = [&](const muster_halo_options& options, const char* text,
                            muster_status_t code = MUSTER_ERR_BAD_ARGUMENT) {
      EXPECT_EQ(muster_halo_create(halos, &options, &number), code) << text;
      EXPECT_THAT(muster_last_error(), HasSubstr(text));
    };
    muster_halo_options options = good;
    options.held = own.view;
    expect(options, "halo \"conv\": held has shape [4]; this rank holds [5]");
    options = good;
    options.gradients = MUSTER_HALO_RETURN;
    options.held_gradients = own.view;
    expect(options, "halo \"conv\": held_gradients has shape [4]; this rank holds [5]");
    options.held_gradients = held.view;
    options.held_gradients.dtype = MUSTER_F64;
    expect(options, "held_gradients has dtype f64; returned gradients are added in");
    options = good;
    options.held_gradients = held.view;
    expect(options, "but gradients is MUSTER_HALO_FORWARD_ONLY");
    options = good;
    options.name = "";
    expect(options, "the halo has a name of 0 bytes");
    options = good;
    options.gradients = 3;
    expect(options, "gradients is 3");
    options = good;
    options.forward.interior_count = 1;
    expect(options, "forward.interior is NULL, but it has 1 plans");
    const muster_stencil alone{*Stencil::make(layout_of({8}, {1}), std::vector<Window>{kSame})};
    options = good;
    options.stencil = &alone;
    expect(options, "the stencil's layout has 1 ranks, but the set's group has 2");
    Window circular = kSame;
    circular.pad = Window::Pad::kCircular;
    const muster_stencil wrapped = rows(member, circular);
    Array whole(member, wrapped.stencil.halo(member.rank)->held);
    options = good;
    options.stencil = &wrapped;
    options.held = options.held_gradients = whole.view;
    options.gradients = MUSTER_HALO_FETCH;
    expect(options, "gradients of results cannot be fetched where pads are circular", MUSTER_ERR_UNSUPPORTED);
    ok(muster_halo_create(halos, &good, &number));
    expect(good, "there is a halo \"conv\" already");
    muster_point done = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_halo_forward(halos, 1, MUSTER_POINT_NONE, &done), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("there is no halo 1; the set has 1"));
    ok(muster_halo_forward(halos, 0, MUSTER_POINT_NONE, &done));
    await_point(member, done);
    good.name = "later";
    expect(good, "halo \"later\" comes after the set's first start", MUSTER_ERR_STATE);
    ok(muster_halos_destroy(halos));
    meet_and_leave(member);
  });
}

// Goal:   a rank that leaves in the middle is named at the others, within the job's deadline; and where a
//         group was aborted, all meet again, and the next exchange is right.
TEST_F(Halos, HearOfARankThatLeavesAndGoOnAfterAnAbort) {
  with_ranks(3, [&](Member& member) {
    const muster_stencil stencil = rows(member);
    const Halo halo = *stencil.stencil.halo(member.rank);
    Array held(member, halo.held);
    muster_halos* halos = make_set(member, member.group);
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = "conv";
    options.stencil = &stencil;
    options.held = held.view;
    muster_halo number = 0;
    ok(muster_halo_create(halos, &options, &number));
    muster_point done = MUSTER_POINT_NONE;
    const auto forward = [&](float value) {
      held.fill(value + static_cast<float>(member.rank));
      ok(muster_halo_forward(halos, number, MUSTER_POINT_NONE, &done));
    };
    forward(1);
    await_point(member, done);
    await_all(member);
    if (member.rank != 1) {
      forward(2);
      if (member.rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ok(muster_group_abort(member.session, member.group));
      }
      EXPECT_EQ(muster_point_wait(member.session, done, -1), MUSTER_ERR_DEPENDENCY);
      EXPECT_THAT(muster_last_error(), HasSubstr("abort"));
    }
    await_all(member);
    ok(muster_halos_abandon(halos));
    forward(3);
    await_point(member, done);
    if (member.rank == 1) EXPECT_EQ(held.at({0}), 3);
    await_all(member);
    if (member.rank == 2) {
      ok(muster_halos_destroy(halos));
      return;  // and closes its session
    }
    forward(4);
    muster_status_t ended = muster_point_wait(member.session, done, -1);
    if (member.rank == 0 && ended == MUSTER_OK) {  // rank 2 is not its neighbour
      forward(5);
      ended = muster_point_wait(member.session, done, -1);
    }
    EXPECT_EQ(ended, MUSTER_ERR_DEPENDENCY);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 2"));
    EXPECT_EQ(muster_halos_abandon(halos), MUSTER_ERR_PEER_LOST);
    ok(muster_halos_destroy(halos));
  });
}

}  // namespace
