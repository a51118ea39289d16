// Arrays of a field's part at a rank, and ranks that run halos and kernels on them.
#pragma once

#include "api/client/stencil_handle.hpp"
#include "tests/api/base/halo/drawn.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <muster/field_kernels.h>
#include <muster/halo.h>

namespace muster::test {

using halo::Halo;
using halo::Stencil;
using halo::Window;
using halo::test::Draw;
using halo::test::Grid;
using halo::test::Items;

inline constexpr std::int64_t kFieldRanks = 8;
inline constexpr int kEpochs = 3;
inline constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
enum class Numbers : std::uint8_t { kWhole, kFloats, kHalves };  // F32 of small integers; F32; BF16

inline std::uint16_t half_of(double value) {  // to nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// An array [1, items of a box..., channels] of a rank. Items are in coordinates of the field.
class FieldArray {
 public:
  FieldArray(Member& member, const Box& box, std::size_t dims, std::int64_t channels, muster_dtype dtype)
      : box_(box), dims_(dims), channels_(channels), dtype_(dtype) {
    std::vector<std::int64_t> shape{1};
    for (std::size_t d = 0; d < dims; ++d) shape.push_back(box.length[d]);
    shape.push_back(channels);
    count_ = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    muster_buffer buffer = 0;
    void* address = nullptr;
    ok(muster_buffer_alloc(member.session, static_cast<std::uint64_t>(count_) * bytes() + 8, &buffer,
                           &address));
    data_ = static_cast<std::byte*>(address);
    view = muster_view(buffer, 0, dtype, static_cast<std::int32_t>(shape.size()), shape.data());
    fill(kNothing);
  }
  double get(const Items& item, std::int64_t channel) const { return get(place(item, channel)); }
  void set(const Items& item, std::int64_t channel, double value) { set(place(item, channel), value); }
  double get(std::int64_t i) const {
    if (dtype_ == MUSTER_F32) return reinterpret_cast<const float*>(data_)[i];
    return std::bit_cast<float>(std::uint32_t{reinterpret_cast<const std::uint16_t*>(data_)[i]} << 16);
  }
  void set(std::int64_t i, double value) {
    if (dtype_ == MUSTER_F32)
      reinterpret_cast<float*>(data_)[i] = static_cast<float>(value);
    else
      reinterpret_cast<std::uint16_t*>(data_)[i] = half_of(value);
  }
  void fill(double value) {
    for (std::int64_t i = 0; i < count_; ++i) set(i, value);
  }
  std::int64_t count() const { return count_; }
  // Without the dim of samples, as halos see it.
  muster_tensor of_halo() const {
    muster_tensor t = view;
    for (int d = 0; d + 1 < t.dims; ++d) {
      t.size[d] = t.size[d + 1];
      t.stride[d] = t.stride[d + 1];
    }
    t.size[t.dims - 1] = t.stride[t.dims - 1] = 0;
    --t.dims;
    return t;
  }

  muster_tensor view{};

 private:
  std::size_t bytes() const { return dtype_ == MUSTER_F32 ? 4 : 2; }
  std::int64_t place(const Items& item, std::int64_t channel) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < dims_; ++d) at = at * box_.length[d] + item[d] - box_.offset[d];
    return at * channels_ + channel;
  }

  Box box_;
  std::size_t dims_;
  std::int64_t channels_, count_ = 0;
  muster_dtype dtype_;
  std::byte* data_ = nullptr;
};

inline Box line(std::int64_t length) {
  Box box;
  box.dims = 1;
  box.length[0] = length;
  return box;
}

// Visits the items of a box without its last dim, which is of channels.
template<class Visit>
void each_item(const Box& box, Visit visit) {
  Box spatial = box;
  --spatial.dims;
  if (spatial.elements() > 0) halo::test::each_of(spatial, visit);
}

inline std::int64_t flat(const Items& shape, const Items& at) {
  std::int64_t i = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) i = i * shape[d] + at[d];
  return i;
}
inline std::int64_t product(const Items& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

inline std::vector<double> values(Draw& draw, std::int64_t count, Numbers numbers) {
  std::vector<double> all(static_cast<std::size_t>(count));
  for (double& each : all) {
    each = static_cast<double>(draw.among(-4, 4));
    if (numbers == Numbers::kWhole) continue;
    each = static_cast<double>(draw.among(-1'000'000, 1'000'000)) / 500'000;
    each = numbers == Numbers::kFloats ? double{static_cast<float>(each)}
                                       : double{std::bit_cast<float>(std::uint32_t{half_of(each)} << 16)};
  }
  return all;
}

// How far values are from the right ones.
struct FieldErrors {
  double most = 0;  // of all, as a part of what the terms of a value add up to
  std::int64_t unequal = 0;
  void note(double is, double right, double scale) {
    if (is != right) ++unequal;
    most = std::max(most, std::isfinite(is) ? std::abs(is - right) / scale : 1e30);
  }
};

// Lets its rank be late by chance.
class Late {
 public:
  Late(std::uint64_t seed, int rank) : random_(seed * 64 + static_cast<std::uint64_t>(rank)) {}
  void maybe() {
    if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 400));
  }

 private:
  std::mt19937_64 random_;
};

struct HaloKernels {
  std::vector<muster_plan> interior, boundary;
};
// A halo, with its kernels and the arrays between which they run.
struct HaloParts {
  const Stencil& stencil;
  muster_corners corners;
  muster_halo_gradients how;
  muster_tensor held, gradients;
  HaloKernels forward, backward;
};

// Owns    a set of halos, until it goes.
// Thread  its session's.
// Bound   that of a set.
// Fails   a call that fails is a failure of the test.
class HaloSet {
 public:
  HaloSet(Member& member, muster_group group) : session_(member.session) {
    muster_halos_options set = MUSTER_HALOS_OPTIONS_INIT;
    set.group = group;
    ok(muster_halos_create(session_, &set, &halos_));
  }
  HaloSet(const HaloSet&) = delete;
  HaloSet& operator=(const HaloSet&) = delete;
  ~HaloSet() { ok(muster_halos_destroy(halos_)); }

  muster_halo add(const HaloParts& parts, const char* name = "field") {
    const muster_stencil cut{parts.stencil};
    muster_halo_options options = MUSTER_HALO_OPTIONS_INIT;
    options.name = name;
    options.stencil = &cut;
    options.corners = parts.corners;
    options.gradients = parts.how;
    options.held = parts.held;
    options.held_gradients = parts.gradients;
    const auto list = [](const HaloKernels& of) {
      return muster_halo_kernels{of.interior.data(), of.boundary.data(),
                                 static_cast<std::uint32_t>(of.interior.size()),
                                 static_cast<std::uint32_t>(of.boundary.size())};
    };
    options.forward = list(parts.forward);
    options.backward = list(parts.backward);
    muster_halo halo = 0;
    ok(muster_halo_create(halos_, &options, &halo));
    return halo;
  }
  muster_point start_forward(muster_halo halo, muster_point after = MUSTER_POINT_NONE) {
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_halo_forward(halos_, halo, after, &done));
    return done;
  }
  muster_point start_backward(muster_halo halo, muster_point after = MUSTER_POINT_NONE) {
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_halo_backward(halos_, halo, after, &done));
    return done;
  }
  void await(muster_point point) { ok(muster_point_wait(session_, point, -1)); }
  void forward(muster_halo halo = 0) { await(start_forward(halo)); }
  void backward(muster_halo halo = 0) { await(start_backward(halo)); }
  muster_halos* get() const { return halos_; }

 private:
  muster_session* session_;
  muster_halos* halos_ = nullptr;
};

inline void start(Member& member, muster_plan plan) {
  const muster_submit submit = MUSTER_SUBMIT_INIT;
  muster_point done = MUSTER_POINT_NONE;
  ok(muster_plan_start(member.session, plan, &submit, &done));
  ok(muster_point_wait(member.session, done, -1));
}
inline void start(Member& member, const muster_kernel& kernel) {
  muster_plan plan = 0;
  ok(muster_plan_kernel(member.session, &kernel, &plan));
  start(member, plan);
  ok(muster_plan_destroy(member.session, plan));
}
// Adds up `count` elements of all ranks of the group, in place.
inline void add_up(Member& member, muster_group group, const muster_tensor& addends, std::int64_t count) {
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  sum.op = MUSTER_ALL_REDUCE;
  sum.group = group;
  sum.dtype = addends.dtype;
  sum.redop = MUSTER_SUM;
  sum.source.buffer = sum.target.buffer = addends.buffer;
  sum.count = static_cast<std::uint64_t>(count);
  EXPECT_EQ(member.run(sum), MUSTER_OK) << member.error;
}
inline void add_up(Member& member, muster_group group, const FieldArray& addends) {
  add_up(member, group, addends.view, addends.count());
}
inline muster_group group_of(Member& member, std::int64_t ranks) {
  std::vector<std::int32_t> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  muster_group group = MUSTER_GROUP_SELF;
  ok(muster_group_make(member.session, world.data(), world.size(), "field", &group));
  return group;
}

// Ranks that use what one of them has made.
template<class Made>
class Fields : public RunningRanks {
 protected:
  // The rank that comes first makes it, for all. false, to all alike: the test has failed before that.
  template<class Make, class Use>
  bool share(Member& member, Make make, Use use) {
    int turn = 0;
    std::shared_ptr<const Made> made;
    {
      const std::lock_guard lock(mutex_);
      turn = turns_[member.rank]++;
      const auto [found, is_first] = made_.try_emplace(turn);
      if (is_first && !HasFailure()) found->second.made = std::make_shared<const Made>(make());
      made = found->second.made;
    }
    if (made == nullptr) return false;
    use(*made);
    await_all(member);
    const std::lock_guard lock(mutex_);
    if (++made_[turn].uses == member.world) made_.erase(turn);
    return true;
  }

 private:
  struct Shared {
    std::shared_ptr<const Made> made;
    int uses = 0;
  };
  std::mutex mutex_;
  std::map<int, int> turns_;    // by rank
  std::map<int, Shared> made_;  // by turn
};

}  // namespace muster::test
