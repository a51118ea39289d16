// Halos with their kernels under way: whose bits repeat, ranks that run ahead, stay behind, differ or leave,
// other lanes beside them, and what a start costs and moves.
#include "tests/api/client/fields/layer.hpp"
#include "tests/support/cost.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace {

using muster::halo::Segment;
using muster::test::CostCounter;
using muster::test::each_item;
using muster::test::FieldArray;
using muster::test::group_of;
using muster::test::HaloSet;
using muster::test::Items;
using muster::test::kNothing;
using muster::test::kSame;
using muster::test::Late;
using muster::test::Layer;
using muster::test::layer_of;
using muster::test::LayerEpoch;
using muster::test::LayerPart;
using muster::test::Member;
using muster::test::Numbers;
using muster::test::ok;
using muster::test::Vector;
using muster::test::Window;
using ::testing::HasSubstr;

class ScheduledFields : public muster::test::Fields<Layer> {
 protected:
  static std::uint64_t counter(Member& member, const char* name) {
    std::uint64_t value = 0;
    ok(muster_counter(member.session, name, &value));
    return value;
  }
  // Three epochs, counted.
  static void expect_bytes(Member& member, const Layer& l, muster_halo_gradients how) {
    const muster_group group = group_of(member, l.ranks);
    {
      LayerPart part(member, l, *l.cut, member.rank, how);
      HaloSet halos(member, group);
      halos.add(part.halo());
      const auto landing = [](const std::vector<Segment>& segments, std::size_t dims) {
        std::uint64_t elements = 0;
        for (const Segment& each : segments) elements += static_cast<std::uint64_t>(each.elements(dims));
        return elements * sizeof(float);
      };
      const std::uint64_t forward = landing(part.mine.gets, l.dims + 1);
      // Returned gradients land in the giver's memory.
      const std::uint64_t backward = how == MUSTER_HALO_FETCH ? landing(part.back.gets, l.dims + 1)
                                                              : landing(part.mine.gives, l.dims + 1);
      muster_halos_info info = MUSTER_HALOS_INFO_INIT;
      part.fill(l.epochs[0]);
      halos.forward();  // the first start compares the sets, and that moves bytes between nodes
      halos.backward();
      for (const LayerEpoch& e : l.epochs) {
        part.fill(e);
        std::uint64_t before = counter(member, "bytes_moved");
        halos.forward();
        EXPECT_EQ(counter(member, "bytes_moved") - before, forward);
        before = counter(member, "bytes_moved");
        halos.backward();
        EXPECT_EQ(counter(member, "bytes_moved") - before, backward);
      }
      ok(muster_halos_query(halos.get(), &info));
      EXPECT_EQ(info.forward_bytes_in, static_cast<std::uint64_t>(part.mine.elements_in) * sizeof(float));
      if (l.zeros) {
        EXPECT_EQ(info.forward_bytes_in, forward);
        EXPECT_EQ(info.backward_bytes_in, backward);
      } else {
        EXPECT_LT(info.forward_bytes_in, forward);
      }
    }
    ok(muster_group_free(member.session, group));
  }
  static muster_point launch(Member& member, const muster_kernel& kernel, muster_point after) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.wait_count = after == MUSTER_POINT_NONE ? 0 : 1;
    submit.waits[0] = after;
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_launch(member.session, &kernel, &submit, &done));
    return done;
  }
};

// Goal:   C11 of the catalogue: gradients by items have one rank's bits where they are fetched, and are near
//         them where they are returned. Both have the same bits in each of 100 epochs, whoever is late.
TEST_F(ScheduledFields, RepeatTheirBits) {
  const Layer l = layer_of("C11", {13, 6}, kSame, {{4, 1, 5, 3}}, Numbers::kFloats, 61, 5, 7);
  const LayerEpoch& e = l.epochs[0];
  with_ranks(4, [&](Member& member) {
    LayerPart alone(member, l, *l.whole, 0, MUSTER_HALO_FETCH);
    alone.fill(e);
    start(member, alone.forward(alone.mine.results));
    start(member, alone.by_items(alone.mine.own));
    for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN}) {
      LayerPart part(member, l, *l.cut, member.rank, how);
      HaloSet halos(member, member.group);
      halos.add(part.halo());
      Late late(62, member.rank);
      std::vector<double> y, dx;
      for (int epoch = 0; epoch < 100; ++epoch) {
        part.fill(e);
        part.dx.fill(kNothing);
        late.maybe();
        halos.forward();
        late.maybe();
        halos.backward();
        if (epoch == 0) {
          expect_right(e, part, how == MUSTER_HALO_FETCH ? &alone : nullptr);
          y = part.own_results();
          dx = part.own_gradients();
        }
        EXPECT_EQ(part.own_results(), y) << epoch;
        EXPECT_EQ(part.own_gradients(), dx) << epoch;
      }
      each_item(part.mine.own, [&](const Items& i) {
        for (std::int64_t c = 0; c < l.channels; ++c)
          EXPECT_NEAR(part.dx.get(i, c), alone.dx.get(i, c), 1e-6 * e.dx_terms);
      });
    }
    meet_and_leave(member);
  });
}

// Goal:   S1: what one rank means otherwise is an error of all, and none waits for its deadline.
TEST_F(ScheduledFields, ThatDifferAreAnErrorOfAllRanksBeforeTheDeadline) {
  const Layer l = layer_of("same", {9, 4}, kSame, {{3, 3, 3}}, Numbers::kWhole, 63);
  Window other_window = kSame;
  other_window.before = 0;
  other_window.after = 2;
  const Layer other = layer_of("other pads", {9, 4}, other_window, {{3, 3, 3}}, Numbers::kWhole, 63);
  const Layer moved = layer_of("other lengths", {9, 4}, kSame, {{4, 3, 2}}, Numbers::kWhole, 63);
  const Layer halves = layer_of("other dtype", {9, 4}, kSame, {{3, 3, 3}}, Numbers::kHalves, 63);
  with_ranks(3, [&](Member& member) {
    ok(muster_mesh_deadline(member.session, MUSTER_MESH_JOB, 2'000'000'000));
    for (const Layer* const differs : {&l, &other, &moved, &halves}) {
      SCOPED_TRACE(differs->text);
      const bool is_other = member.rank == 1;
      const Layer& mine = is_other ? *differs : l;
      const bool returned = is_other && differs == &l;
      LayerPart part(member, mine, *mine.cut, member.rank, returned ? MUSTER_HALO_RETURN : MUSTER_HALO_FETCH);
      HaloSet halos(member, member.group);
      halos.add(part.halo());
      muster_point done = MUSTER_POINT_NONE;
      EXPECT_EQ(muster_halo_forward(halos.get(), 0, MUSTER_POINT_NONE, &done), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), HasSubstr("ranks have made different halos"));
      await_all(member);
    }
    meet_and_leave(member);
  });
}

// All that rank 0 has of `epochs` epochs, each in an array of its own.
class Archive {
 public:
  Archive(LayerPart& part, std::size_t epochs) : part_(part) {
    for (std::size_t i = 0; i < epochs; ++i) {
      const Layer& l = part.l;
      x.emplace_back(part.member, part.mine.held, l.dims, l.channels, l.dtype());
      dy.emplace_back(part.member, part.back.held, l.dims, l.outputs, l.dtype());
      y.emplace_back(part.member, part.mine.results, l.dims, l.outputs, l.dtype());
      dx.emplace_back(part.member, part.mine.own, l.dims, l.channels, l.dtype());
    }
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() {
    for (const auto* const arrays : {&x, &dy, &y, &dx})
      for (const FieldArray& array : *arrays) ok(muster_buffer_free(part_.member.session, array.view.buffer));
  }
  static void copy(const FieldArray& from, FieldArray& to) {
    for (std::int64_t i = 0; i < from.count(); ++i) to.set(i, from.get(i));
  }

  std::vector<FieldArray> x, dy, y, dx;

 private:
  LayerPart& part_;
};

// Goal:   S2: a rank has started 100 epochs before its neighbour begins the second, and waits for none. The
//         neighbour overwrites its arrays as soon as it may. No rank reads a ghost of another epoch.
TEST_F(ScheduledFields, OfARankThatRunsAheadAreOfTheirEpoch) {
  constexpr std::size_t kAhead = 100;
  const Layer l = layer_of("ahead", {9, 4}, kSame, {{5, 4}}, Numbers::kWhole, 64);
  std::atomic<bool> has_started_all{false};
  with_ranks(2, [&](Member& member) {
    LayerPart part(member, l, *l.cut, member.rank, MUSTER_HALO_FETCH);
    HaloSet halos(member, member.group);
    halos.add(part.halo());
    const auto epoch = [&](std::size_t i) -> const LayerEpoch& { return l.epochs[i % l.epochs.size()]; };
    if (member.rank == 1) {
      Late late(65, member.rank);
      for (std::size_t i = 0; i < kAhead; ++i) {
        part.fill(epoch(i));
        late.maybe();
        halos.forward();
        part.x.fill(1e30);
        late.maybe();
        halos.backward();
        part.dy.fill(1e30);
        expect_right(epoch(i), part);
        await([&] { return has_started_all.load(); });
      }
    } else {
      Archive archive(part, kAhead);
      for (std::size_t i = 0; i < kAhead; ++i) {
        part.fill(epoch(i));
        Archive::copy(part.x, archive.x[i]);
        Archive::copy(part.dy, archive.dy[i]);
      }
      muster_point done = MUSTER_POINT_NONE;
      for (std::size_t i = 0; i < kAhead; ++i) {
        launch(member, muster_copy(archive.x[i].view, part.x.view), done);
        done = launch(member, muster_copy(archive.dy[i].view, part.dy.view), done);
        done = halos.start_forward(0, done);
        launch(member, muster_copy(part.y.view, archive.y[i].view), done);
        done = halos.start_backward(0, done);
        done = launch(member, muster_copy(part.dx.view, archive.dx[i].view), done);
      }
      has_started_all = true;
      halos.await(done);
      for (std::size_t i = 0; i < kAhead; ++i) {
        Archive::copy(archive.y[i], part.y);
        Archive::copy(archive.dx[i], part.dx);
        expect_right(epoch(i), part);
      }
    }
    meet_and_leave(member);
  });
}

// Goal:   S3: two halos in flight at once, beside an ALL_GATHER and a REDUCE_SCATTER on lanes of their own.
TEST_F(ScheduledFields, InFlightTogetherLeaveEachOtherAlone) {
  const Layer one = layer_of("one", {12, 4}, kSame, {{3, 4, 5}}, Numbers::kWhole, 66);
  const Layer two = layer_of("two", {7, 5}, kSame, {{1, 5, 1}}, Numbers::kWhole, 67);
  constexpr std::uint64_t kCount = 5000;
  with_ranks(3, [&](Member& member) {
    LayerPart first(member, one, *one.cut, member.rank, MUSTER_HALO_FETCH);
    LayerPart second(member, two, *two.cut, member.rank, MUSTER_HALO_RETURN);
    HaloSet halos(member, member.group);
    const muster_halo a = halos.add(first.halo(), "one"), b = halos.add(second.halo(), "two");
    const Vector mine = vector_of(member, kCount), all = vector_of(member, 3 * kCount),
                 addends = vector_of(member, 3 * kCount), sums = vector_of(member, kCount);
    muster_collective gather = collective(member, MUSTER_ALL_GATHER, mine, all);
    muster_collective reduce = collective(member, MUSTER_REDUCE_SCATTER, addends, sums);
    gather.count = reduce.count = kCount;
    reduce.redop = MUSTER_SUM;
    Late late(68, member.rank);
    for (std::size_t epoch = 0; epoch < one.epochs.size(); ++epoch) {
      first.fill(one.epochs[epoch]);
      second.fill(two.epochs[epoch]);
      const auto number = static_cast<float>(10 * epoch);
      std::fill_n(mine.data, kCount, number + static_cast<float>(member.rank));
      std::fill_n(addends.data, 3 * kCount, number + static_cast<float>(member.rank));
      late.maybe();
      muster_submit submit = MUSTER_SUBMIT_INIT;
      std::array<muster_point, 2> others{};
      const muster_point forward_a = halos.start_forward(a);
      submit.lane = MUSTER_LANE_GATHER;
      ok(muster_collect(member.session, &gather, &submit, &others[0]));
      const muster_point forward_b = halos.start_forward(b);
      submit.lane = MUSTER_LANE_REDUCE;
      ok(muster_collect(member.session, &reduce, &submit, &others[1]));
      for (const muster_point point :
           {halos.start_backward(b, forward_b), halos.start_backward(a, forward_a), others[0], others[1]})
        halos.await(point);
      expect_right(one.epochs[epoch], first);
      expect_right(two.epochs[epoch], second);
      for (std::uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(sums.data[i], 3 * number + 3);
        for (std::uint64_t rank = 0; rank < 3; ++rank)
          EXPECT_EQ(all.data[rank * kCount + i], number + static_cast<float>(rank));
      }
    }
    meet_and_leave(member);
  });
}

// Goal:   S4: a rank leaves while its neighbours exchange. All that wait for it hear so.
TEST_F(ScheduledFields, EndWhereARankLeaves) {
  const Layer l = layer_of("2 x 2", {6, 6}, kSame, {{3, 3}, {3, 3}}, Numbers::kWhole, 69);
  for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN}) {
    std::atomic<int> waiting{0};
    with_ranks(4, [&](Member& member) {
      LayerPart part(member, l, *l.cut, member.rank, how);
      auto halos = std::make_unique<HaloSet>(member, member.group);
      halos->add(part.halo());
      part.fill(l.epochs[0]);
      halos->forward();
      halos->backward();
      expect_right(l.epochs[0], part);
      await_all(member);
      if (member.rank == 3) {
        await([&] { return waiting == 3; });
        return;
      }
      const muster_point forward = halos->start_forward(0);
      const muster_point backward = halos->start_backward(0, forward);
      ++waiting;
      EXPECT_EQ(muster_point_wait(member.session, backward, -1), MUSTER_ERR_DEPENDENCY);
      EXPECT_THAT(muster_last_error(), HasSubstr("rank 3"));
      EXPECT_EQ(muster_halos_abandon(halos->get()), MUSTER_ERR_PEER_LOST);
      halos.reset();
      part.let_go();
    });
  }
}

// Goal:   S6: once a set has started, a forward and a backward ask for no heap in the client.
TEST_F(ScheduledFields, AskForNoHeapOnceTheyRun) {
  if (std::getenv("MUSTER_CHECK") != nullptr) GTEST_SKIP() << "check mode keeps lists of what is in flight";
  const Layer l = layer_of("2 x 2", {6, 6}, kSame, {{3, 3}, {3, 3}}, Numbers::kFloats, 70);
  for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN})
    with_ranks(4, [&](Member& member) {
      LayerPart part(member, l, *l.cut, member.rank, how);
      HaloSet halos(member, member.group);
      halos.add(part.halo());
      part.fill(l.epochs[0]);
      const auto epochs = [&](int count) {
        for (int i = 0; i < count; ++i) {
          halos.forward();
          halos.backward();
        }
      };
      epochs(200);
      CostCounter counter;
      epochs(50);
      const muster::test::Cost cost = counter.stop();
      EXPECT_EQ(cost.allocations, 0U);
      expect_right(l.epochs[0], part);
      meet_and_leave(member);
    });
}

// Goal:   S7: "bytes_moved" grows by what the plan says: by the ghosts of other ranks, and by those that a
//         rank copies to itself.
TEST_F(ScheduledFields, MoveTheBytesThatThePlanSays) {
  Window circular = kSame;
  circular.pad = Window::Pad::kCircular;
  const Layer layers[] = {layer_of("pads of zeros", {9, 6}, kSame, {{4, 5}, {2, 4}}, Numbers::kWhole, 71),
                          layer_of("circular", {9, 6}, circular, {{4, 5}, {6}}, Numbers::kWhole, 72)};
  with_ranks(4, [&](Member& member) {
    for (const Layer& l : layers)
      for (const muster_halo_gradients how : {MUSTER_HALO_FETCH, MUSTER_HALO_RETURN}) {
        if (!l.zeros && how == MUSTER_HALO_FETCH) continue;
        SCOPED_TRACE(l.text);
        if (member.rank < l.ranks) expect_bytes(member, l, how);
        await_all(member);
      }
    meet_and_leave(member);
  });
}

}  // namespace
