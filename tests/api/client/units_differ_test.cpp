// One rank departs from the others in steps that look right. Each rank gets an error, and none averages
// values that do not belong together.
#include <muster/kernels.h>
#include <muster/units.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

constexpr std::int64_t kDeadlineNs = 600'000'000;  // of what others wait for in vain
constexpr int kTrying = 8;                         // so often ranks hear of a failure each, until they meet

struct Set {
  std::uint32_t flags = 0;
  int units = 1;
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
  bool sharded = true;
  bool summed_over_tp = false;
};

// Units "u0", "u1" of three vectors "a", "b", "c" of one size each, over all dims of data. A rank makes no
// more calls once one has failed.
//
// Owns    the set.
// Thread  its rank's.
// Bound   -
// Fails   status(), error(): the first failure.
class Trainer {
 public:
  Trainer(const Member& member, const Set& set) : member_(member), set_(set) {
    const LayoutHandle layout = made({8}, Axes(set.sharded ? 1 : 0, shard("dp_shard", 0, 0)), member.session);
    muster_units_options options = MUSTER_UNITS_OPTIONS_INIT;
    options.flags = set.flags;
    options.prefetch = 2;
    ok(muster_units_create(member.session, &options, &units));
    for (int u = 0; u < set.units; ++u) add(u, layout.get());
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer() { static_cast<void>(muster_units_destroy(units)); }

  void begin(std::uint32_t flags = 0) {
    call([&] { return muster_step_begin(units, MUSTER_POINT_NONE, flags); });
  }
  void forward(muster_unit unit = 0) {
    muster_point ready = MUSTER_POINT_NONE;
    call([&] { return muster_unit_forward_begin(units, unit, &ready); });
    await(ready);
    call([&] { return muster_unit_forward_end(units, unit, 0, MUSTER_POINT_NONE); });
  }
  // Writes, or adds, the rank's number plus 1.
  void backward(muster_unit unit = 0, std::uint32_t flags = 0,
                const std::vector<std::uint32_t>& unused = {}) {
    muster_point ready[2] = {};
    call([&] { return muster_unit_backward_begin(units, unit, ready); });
    for (const muster_point point : ready) await(point);
    for (std::uint32_t p = 0; p < 3 && status_ == MUSTER_OK; ++p)
      for (float* element : elements(unit, p, MUSTER_UNIT_WHOLE_GRADIENT))
        *element = static_cast<float>(member_.rank + 1) + (keeps_ ? *element : 0);
    for (const std::uint32_t p : unused) call([&] { return muster_unit_unused(units, unit, p); });
    call([&] { return muster_unit_backward_end(units, unit, 0, MUSTER_POINT_NONE, flags, nullptr); });
    keeps_ = (flags & MUSTER_BACKWARD_KEEP_GRADIENTS) != 0;
  }
  void end() {
    muster_point done[2] = {};
    call([&] { return muster_step_end(units, MUSTER_POINT_NONE, done); });
    for (const muster_point point : done) await(point);
  }
  void step() {
    begin();
    for (int u = 0; u < set_.units; ++u) forward(static_cast<muster_unit>(u));
    for (int u = set_.units; u-- > 0;) backward(static_cast<muster_unit>(u));
    end();
  }
  // So many microbatches, reduced with the last one.
  void accumulate(int microbatches, std::uint32_t flags) {
    begin();
    for (int i = 0; i < microbatches; ++i) {
      forward();
      backward(0, i + 1 < microbatches ? flags : 0);
    }
    end();
  }
  void figure(bool squares) {
    muster_buffer buffer = 0;
    void* address = nullptr;
    call([&] { return muster_buffer_alloc(member_.session, 16, &buffer, &address); });
    const muster_tensor out = muster_view1(buffer, 0, MUSTER_F64, squares ? 1 : 2);
    muster_point done = MUSTER_POINT_NONE;
    call([&] {
      return squares ? muster_units_square_sum(units, &out, &done)
                     : muster_units_zero_count(units, &out, &done);
    });
    await(done);
  }
  void broadcast() {
    muster_point done = MUSTER_POINT_NONE;
    call([&] { return muster_units_broadcast(units, MUSTER_POINT_NONE, &done); });
    await(done);
  }
  void call(const std::function<muster_status_t()>& body) {
    if (status_ != MUSTER_OK) return;
    status_ = body();
    if (status_ != MUSTER_OK) error_ = muster_last_error();
  }
  void expect_gradients(float value) {
    for (std::uint32_t p = 0; p < 3; ++p)
      for (const float* element : elements(0, p, MUSTER_UNIT_GRADIENT_SHARD)) EXPECT_EQ(*element, value);
  }
  // After a failure all ranks meet again, and train.
  void begin_anew() {
    status_ = MUSTER_OK;
    keeps_ = false;
    ok(muster_step_abandon(units));
    const bool keeps = set_.after_forward == MUSTER_RESHARD_NEVER;
    for (muster_unit u = 0; u < static_cast<muster_unit>(set_.units); ++u) {
      ok(muster_unit_set_reshard(units, u, keeps ? MUSTER_RESHARD_NEVER : MUSTER_RESHARD_ALWAYS));
      ok(muster_unit_prefetch(units, u, 0, &u, 0));
    }
    step();
    EXPECT_EQ(status_, MUSTER_OK) << error_;
    expect_gradients(static_cast<float>(member_.world + 1) / (set_.summed_over_tp ? 1 : 2));
  }
  muster_status_t status() const { return status_; }
  const std::string& error() const { return error_; }

  muster_units* units = nullptr;

 private:
  void add(int u, const muster_layout* layout) {
    const std::string name = "u" + std::to_string(u);
    const std::uint32_t flags = set_.summed_over_tp ? MUSTER_PARAMETER_SUMMED_OVER_TP : 0U;
    const std::string names[] = {name + ".a", name + ".b", name + ".c"};
    const muster_parameter parameters[] = {{names[0].c_str(), layout, MUSTER_F32, flags},
                                           {names[1].c_str(), layout, MUSTER_F32, flags},
                                           {names[2].c_str(), layout, MUSTER_F32, flags}};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = name.c_str();
    options.shard = set_.sharded ? "dp_shard" : nullptr;
    options.replicate = set_.sharded ? "dp_replicate" : "dp";
    options.tensor = "tp";
    options.after_forward = set_.after_forward;
    options.parameters = parameters;
    options.parameter_count = 3;
    muster_unit unit = 0;
    ok(muster_unit_create(units, &options, &unit));
  }
  void await(muster_point point) {
    if (point != MUSTER_POINT_NONE) call([&] { return muster_point_wait(member_.session, point, -1); });
  }
  std::vector<float*> elements(muster_unit unit, std::uint32_t parameter, std::int32_t which) const {
    muster_tensor tensor{};
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_unit_tensor(units, unit, parameter, which, &tensor));
    ok(muster_buffer_query(member_.session, tensor.buffer, &info));
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
    std::vector<float*> all;
    for (std::int64_t i = 0; i < tensor.size[0]; ++i) all.push_back(first + i);
    return all;
  }

  const Member& member_;
  Set set_;
  muster_status_t status_ = MUSTER_OK;
  std::string error_;
  bool keeps_ = false;
};

class UnitsDifferIn : public RunningRanks {
 protected:
  // All ranks hear of what they do in `body`, and begin anew.
  void expect_heard(const char* shape, const Set& set, const std::function<void(Trainer&, int rank)>& body) {
    SCOPED_TRACE(shape);
    mesh = shape;
    with_ranks(2, [&](Member& member) {
      const auto deadline = [&](std::int64_t ns) {
        muster_status_t status = MUSTER_OK;
        for (int i = 0; i < kTrying; ++i)
          if ((status = muster_mesh_deadline(member.session, MUSTER_MESH_JOB, ns)) == MUSTER_OK) break;
        EXPECT_EQ(status, MUSTER_OK) << muster_last_error();
      };
      deadline(0);
      {
        Trainer trainer(member, set);
        trainer.step();
        EXPECT_EQ(trainer.status(), MUSTER_OK) << trainer.error();
        deadline(kDeadlineNs);
        body(trainer, member.rank);
        EXPECT_NE(trainer.status(), MUSTER_OK) << "rank " << member.rank << " hears nothing";
        await_all(member);
        deadline(0);
        if (trainer.status() != MUSTER_OK) trainer.begin_anew();
        await_all(member);
      }
      await_all(member);
    });
  }
};

using UnitsDiffer = UnitsDifferIn;

// Each on a mesh of replicas and on one of shards.
class UnitsOfDataDiffer : public UnitsDifferIn, public ::testing::WithParamInterface<const char*> {};

constexpr const char* kReplicas = "dp_replicate=2,dp_shard=1";
constexpr const char* kShards = "dp_shard=2";
constexpr const char* kTensors = "dp_shard=1,tp=2";
const Set kSummed{.sharded = false, .summed_over_tp = true};
constexpr std::uint32_t kKeep = MUSTER_BACKWARD_KEEP_GRADIENTS;

// Goal:   a rank that has fewer microbatches, as at the end of an uneven data set.
TEST_P(UnitsOfDataDiffer, HearThatOneHasFewerMicrobatches) {
  for (const auto& [first, second] : {std::pair{4, 2}, {3, 1}, {2, 1}, {1, 5}})
    expect_heard(GetParam(), {.flags = MUSTER_UNITS_KEEP_GRADIENTS, .after_forward = MUSTER_RESHARD_NEVER},
                 [mine = first, other = second](Trainer& trainer, int rank) {
                   trainer.accumulate(rank == 0 ? mine : other, kKeep | MUSTER_BACKWARD_KEEP_WHOLE);
                   trainer.step();
                 });
}

// Goal:   likewise where each microbatch is reduced.
TEST_P(UnitsOfDataDiffer, HearThatOneReducesFewerMicrobatches) {
  for (const auto& [first, second] : {std::pair{4, 2}, {2, 1}, {1, 3}})
    expect_heard(GetParam(), {.flags = MUSTER_UNITS_ACCUMULATE, .after_forward = MUSTER_RESHARD_NEVER},
                 [mine = first, other = second](Trainer& trainer, int rank) {
                   trainer.accumulate(rank == 0 ? mine : other, MUSTER_BACKWARD_KEEP_WHOLE);
                   trainer.step();
                 });
}

// Goal:   a rank that skips the backward of steps, as where its loss is no number.
TEST_P(UnitsOfDataDiffer, HearThatOneSkipsBackwards) {
  for (const int skipped : {1, 2, 3})
    expect_heard(GetParam(), {.after_forward = MUSTER_RESHARD_NEVER}, [skipped](Trainer& trainer, int rank) {
      for (int i = 0; i < skipped + 2; ++i) {
        if (rank == 0 || i >= skipped) {
          trainer.step();
        } else {
          trainer.begin();
          trainer.end();
        }
      }
    });
}

// Goal:   parameters whose gradients are summed over tp, and which no other dim of the mesh shares.
TEST_F(UnitsDiffer, HearThatOneLeavesAnotherAddendUnused) {
  using Unused = std::vector<std::uint32_t>;
  for (const auto& [first, second] :
       {std::pair<Unused, Unused>{{0}, {1}}, {{0, 1}, {1, 2}}, {{}, {2}}, {{1}, {0}}})
    expect_heard(kTensors, kSummed, [mine = first, other = second](Trainer& trainer, int rank) {
      trainer.begin();
      trainer.forward();
      trainer.backward(0, 0, rank == 0 ? mine : other);
      trainer.end();
      trainer.step();
    });
}

// Goal:   a step of which one rank uses nothing, as a mixture that sends no token to an expert.
TEST_F(UnitsDiffer, HearThatOneUsesNothing) {
  for (const int steps : {1, 2})
    expect_heard(kReplicas, {}, [steps](Trainer& trainer, int rank) {
      for (int i = 0; i < steps; ++i) {
        trainer.begin();
        trainer.forward();
        if (rank == 0)
          trainer.backward(0, 0, {0, 1, 2});
        else
          trainer.backward();
        trainer.end();
      }
      trainer.step();
      trainer.step();
    });
}

INSTANTIATE_TEST_SUITE_P(Meshes, UnitsOfDataDiffer, ::testing::Values(kReplicas, kShards),
                         [](const auto& info) { return info.index == 0 ? "replicas" : "shards"; });

// Goal:   figures of other kinds, over shards and over tp.
TEST_F(UnitsDiffer, HearThatOneAsksForAnotherFigure) {
  expect_heard(kShards, {}, [](Trainer& trainer, int rank) {
    trainer.figure(rank == 0);
    trainer.step();
  });
}

TEST_F(UnitsDiffer, HearThatOneAsksForAnotherFigureOfTp) {
  expect_heard(kTensors, kSummed, [](Trainer& trainer, int rank) {
    trainer.figure(rank == 0);
    trainer.step();
  });
}

// Goal:   one rank makes replicas equal while the other goes on.
TEST_F(UnitsDiffer, HearThatOneBroadcastsAlone) {
  expect_heard(kReplicas, {}, [](Trainer& trainer, int rank) {
    if (rank == 0) trainer.broadcast();
    trainer.step();
    trainer.step();
  });
}

TEST_F(UnitsDiffer, HearThatOneBroadcastsAloneOverTp) {
  expect_heard(kTensors, kSummed, [](Trainer& trainer, int rank) {
    if (rank == 0) trainer.broadcast();
    trainer.step();
    trainer.step();
  });
}

// Goal:   units that one rank gathers in another order, or keeps where the other frees them.
TEST_F(UnitsDiffer, HearThatOneGathersOtherwise) {
  expect_heard(kShards, {.units = 3}, [](Trainer& trainer, int rank) {
    const muster_unit next = 2;
    if (rank == 0) trainer.call([&] { return muster_unit_prefetch(trainer.units, 0, 0, &next, 1); });
    trainer.step();
    trainer.step();
  });
  expect_heard(kShards, {.units = 2}, [](Trainer& trainer, int rank) {
    if (rank == 1)
      trainer.call([&] { return muster_unit_set_reshard(trainer.units, 1, MUSTER_RESHARD_NEVER); });
    trainer.step();
    trainer.step();
  });
  expect_heard(kShards, {.after_forward = MUSTER_RESHARD_NEVER}, [](Trainer& trainer, int rank) {
    for (int i = 0; i < 2; ++i) {  // evaluations, of which one rank says that nothing has changed
      trainer.begin(rank == 1 && i == 1 ? MUSTER_STEP_UNCHANGED : 0);
      trainer.forward();
      trainer.end();
    }
    trainer.step();
    trainer.step();
  });
}

}  // namespace
}  // namespace muster::test
