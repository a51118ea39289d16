// Random layouts saved and loaded on other random layouts, in memory, against the tensor itself.
#include "tests/api/base/checkpoint/planned.hpp"
#include "tests/api/base/layout/drawn_layout.hpp"

#include <map>

#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using math::test::Random;
using test::drawn_layout;
using test::drawn_mesh;
using test::drawn_shape;

// An element's value is its place in the whole tensor.
std::int64_t value_at(const Index& at, const Layout& layout) {
  return 1 + place_of(layout.dims(), at, dense_strides(layout.dims(), layout.shape()));
}

// Calls body(index in the tensor, index in the rank's array) for each element of a piece.
template<class Body>
void each_element(const Layout::Piece& piece, Body body) {
  const Box& box = piece.box;
  const std::int64_t elements = box.elements();
  Index at{};
  for (std::int64_t i = 0; i < elements; ++i) {
    Index whole = box.offset, own = piece.at;
    for (std::size_t dim = 0; dim < box.dims; ++dim) {
      whole[dim] += at[dim];
      own[dim] += at[dim];
    }
    body(whole, own);
    for (std::size_t dim = box.dims; dim-- > 0;) {
      if (++at[dim] < box.length[dim]) break;
      at[dim] = 0;
    }
  }
}

std::vector<std::int64_t> array_of(const Layout& layout, std::int64_t rank) {
  std::vector<std::int64_t> array(static_cast<std::size_t>(layout.local_elements(rank)));
  const Index strides = dense_strides(layout.dims(), layout.local_shape(rank));
  for (const Layout::Piece& piece : layout.pieces(rank))
    each_element(piece, [&](const Index& whole, const Index& own) {
      array[static_cast<std::size_t>(place_of(layout.dims(), own, strides))] = value_at(whole, layout);
    });
  return array;
}

// The files, as the members write them: from their own arrays, by the plan.
std::vector<std::vector<std::int64_t>> files_of(const WritePlan& plan, const Layout& layout) {
  std::vector<std::vector<std::int64_t>> files;
  for (const CheckpointRecord::File& file : plan.record.files)
    files.emplace_back(file.bytes / sizeof(std::int64_t));
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    const std::vector<std::int64_t> array = array_of(layout, rank);
    const Index own = dense_strides(layout.dims(), layout.local_shape(rank));
    const auto pieces = layout.pieces(rank);
    for (const WritePlan::BoxIndex& place : boxes_of(plan, rank)) {
      const SavedBox& saved = plan.record.tensors[place.tensor].boxes[place.box];
      const auto piece = std::ranges::find(pieces, saved.box, &Layout::Piece::box);
      EXPECT_NE(piece, pieces.end()) << "a member writes what it does not have";
      const std::int64_t from = place_of(layout.dims(), piece->at, own);
      each_run(layout.dims(), saved.box.length, own, dense_strides(layout.dims(), saved.box.length),
               [&](std::int64_t taken, std::int64_t put, std::int64_t elements) {
                 for (std::int64_t i = 0; i < elements; ++i)
                   files[saved.file][saved.at / 8 + static_cast<std::size_t>(put + i)] =
                       array[static_cast<std::size_t>(from + taken + i)];
                 return true;
               });
    }
  }
  return files;
}

void load_and_compare(const SavedTensor& saved, const std::vector<std::vector<std::int64_t>>& files,
                      const Layout& layout) {
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    const std::vector<std::int64_t> expected = array_of(layout, rank);
    std::vector<std::int64_t> array(expected.size());
    const Index own = dense_strides(layout.dims(), layout.local_shape(rank));
    std::int64_t read = 0;
    for (const Slice& slice : plan_read(saved, layout.pieces(rank))) {
      const SavedBox& box = saved.boxes[slice.box];
      const Index strides = dense_strides(layout.dims(), box.box.length);
      const std::int64_t from = place_of(layout.dims(), slice.within, strides);
      const std::int64_t to = place_of(layout.dims(), slice.put, own);
      each_run(layout.dims(), slice.part.length, strides, own,
               [&](std::int64_t taken, std::int64_t put, std::int64_t elements) {
                 for (std::int64_t i = 0; i < elements; ++i)
                   array[static_cast<std::size_t>(to + put + i)] =
                       files[box.file][box.at / 8 + static_cast<std::size_t>(from + taken + i)];
                 read += elements;
                 return true;
               });
    }
    ASSERT_EQ(array, expected) << "rank " << rank;
    ASSERT_EQ(read, static_cast<std::int64_t>(expected.size())) << "each element is read once";
  }
}

// Goal:   case C3 (ours): any layout of any ranks loads what any other one has saved, each element once.
TEST(CheckpointProperty, AnyLayoutLoadsWhatAnyOtherHasSaved) {
  constexpr int kRounds = 4000;
  int saved_empty = 0, strided = 0;
  for (int seed = 0; seed < kRounds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const test::Items shape = drawn_shape(random);
    const auto from = drawn_layout(random, shape, drawn_mesh(random, 16), test::Partials::kNone).make();
    const auto to = drawn_layout(random, shape, drawn_mesh(random, 16), test::Partials::kNone).make();
    ASSERT_TRUE(from && to);
    auto members = test::members_of("t", *from);
    for (auto& own : members) own[0].dtype = MUSTER_I64;
    const auto plan = plan_write(members, 0);
    ASSERT_TRUE(plan) << plan.error().message();
    const std::vector<std::vector<std::int64_t>> files = files_of(*plan, *from);
    for (const auto& file : files)
      ASSERT_EQ(std::ranges::count(file, 0), 0) << "a byte of a file that nobody writes";
    load_and_compare(plan->record.tensors[0], files, *to);
    load_and_compare(plan->record.tensors[0], files, *from);
    if (HasFatalFailure()) return;
    for (std::int64_t rank = 0; rank < from->ranks(); ++rank) saved_empty += from->local_elements(rank) == 0;
    strided += from->axes().size() > 1;
  }
  EXPECT_GT(saved_empty, 500);
  EXPECT_GT(strided, 500);
}

// Goal:   no replica writes much more than the others.
// Method: many tensors of drawn sizes on replicas; the most that one writes is at most the mean and one
//         tensor.
TEST(CheckpointProperty, ReplicasWriteAboutEqually) {
  for (int seed = 0; seed < 200; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const auto ranks = static_cast<std::int64_t>(1 + random.below(8));
    std::vector<std::vector<OwnTensor>> members(static_cast<std::size_t>(ranks));
    std::uint64_t all = 0, largest = 0;
    for (int t = 0; t < 40; ++t) {
      const auto elements = static_cast<std::int64_t>(1 + random.below(1000));
      const Layout layout = *Layout::make(std::vector<std::int64_t>{elements},
                                          {Layout::Axis{"r", ranks, Placement::replicate()}});
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        members[static_cast<std::size_t>(rank)].push_back(
            test::own_tensor("t" + std::to_string(t), layout, rank, MUSTER_U8));
      all += static_cast<std::uint64_t>(elements);
      largest = std::max(largest, static_cast<std::uint64_t>(elements));
    }
    const auto plan = plan_write(members, 0);
    ASSERT_TRUE(plan);
    for (const CheckpointRecord::File& file : plan->record.files)
      EXPECT_LE(file.bytes, all / static_cast<std::uint64_t>(ranks) + largest);
  }
}

}  // namespace
}  // namespace muster::checkpoint
