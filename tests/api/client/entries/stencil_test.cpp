// Stencils of the C API: what is refused, and that the lists are the planner's. The planner itself is tested
// in tests/api/base/halo.
#include <muster/halo.h>

#include "tests/api/client/ok.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::ok;
using ::testing::AllOf;
using ::testing::HasSubstr;

// 10 rows over 2 ranks, and 3 channels.
class Stencils : public ::testing::Test {
 protected:
  void SetUp() override {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 2;
    said.shape[0] = 10;
    said.shape[1] = 3;
    said.axis_count = 1;
    said.axes[0].name = "rows";
    said.axes[0].ranks = 2;
    said.axes[0].placement = MUSTER_SHARD;
    ok(muster_layout_create(nullptr, &said, &layout_));
    windows_[0].kind = MUSTER_WINDOW_CONVOLUTION;
    windows_[0].kernel = 3;
    windows_[0].stride = 2;
    windows_[0].before = windows_[0].after = 1;
    windows_[1].kind = MUSTER_WINDOW_WHOLE;
    windows_[1].length = 7;
    options_.layout = layout_;
    options_.windows = windows_;
  }
  void TearDown() override {
    ok(muster_stencil_destroy(stencil_));
    ok(muster_layout_destroy(layout_));
  }
  void expect_refused(const char* text, muster_status_t code = MUSTER_ERR_BAD_ARGUMENT) {
    EXPECT_EQ(muster_stencil_create(&options_, &stencil_), code);
    EXPECT_THAT(muster_last_error(), HasSubstr(text));
    EXPECT_EQ(stencil_, nullptr);
  }
  std::vector<muster_segment> segments(std::int32_t rank, std::int32_t gives) {
    std::size_t count = 0;
    ok(muster_stencil_segments(stencil_, rank, MUSTER_CORNERS_DIRECT, gives, nullptr, 0, &count));
    std::vector<muster_segment> all(count);
    ok(muster_stencil_segments(stencil_, rank, MUSTER_CORNERS_DIRECT, gives, all.data(), count, &count));
    return all;
  }

  muster_layout* layout_ = nullptr;
  muster_window windows_[2] = {MUSTER_WINDOW_INIT, MUSTER_WINDOW_INIT};
  muster_stencil_options options_ = MUSTER_STENCIL_OPTIONS_INIT;
  muster_stencil* stencil_ = nullptr;
};

TEST_F(Stencils, SayWhatARankReads) {
  ok(muster_stencil_create(&options_, &stencil_));
  muster_halo_info info = MUSTER_HALO_INFO_INIT;
  ok(muster_stencil_query(stencil_, 1, MUSTER_CORNERS_DIRECT, &info));
  EXPECT_EQ(info.dims, 2);
  EXPECT_EQ(info.own.offset[0], 5);
  EXPECT_EQ(info.results.offset[0], 3);
  EXPECT_EQ(info.results.length[0], 2);
  EXPECT_EQ(info.results.length[1], 7);
  EXPECT_EQ(info.held.length[0], 5);
  EXPECT_EQ(info.gives, 1U);
  EXPECT_EQ(info.gets, 0U);
  EXPECT_EQ(info.elements_out, 3);
  EXPECT_EQ(info.phases, 1U);
  ok(muster_stencil_query(stencil_, 0, MUSTER_CORNERS_DIRECT, &info));
  EXPECT_EQ(info.held.length[0], 6);
  EXPECT_EQ(info.interior.length[0], 2);
  EXPECT_EQ(info.elements_in, 3);

  const std::vector<muster_segment> gets = segments(0, 0), gives = segments(1, 1);
  ASSERT_EQ(gets.size(), 1U);
  ASSERT_EQ(gives.size(), 1U);
  EXPECT_EQ(gets[0].peer, 1);
  EXPECT_EQ(gives[0].peer, 0);
  EXPECT_EQ(gets[0].from[0], 0);
  EXPECT_EQ(gets[0].at[0], 5);
  EXPECT_EQ(gets[0].length[1], 3);

  std::size_t count = 0;
  muster_halo_box box;
  ok(muster_stencil_boxes(stencil_, 0, -1, &box, 1, &count));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(box.offset[0], 2);
  EXPECT_EQ(box.length[0], 1);

  muster_layout* result = nullptr;
  ok(muster_stencil_result(stencil_, &result));
  std::int64_t shape[MUSTER_TENSOR_DIMS_MAX];
  ok(muster_layout_local_shape(result, 0, shape));
  EXPECT_EQ(shape[0], 3);
  EXPECT_EQ(shape[1], 7);
  ok(muster_layout_destroy(result));

  muster_stencil* gradient = nullptr;
  ok(muster_stencil_gradient(stencil_, &gradient));
  ok(muster_stencil_query(gradient, 1, MUSTER_CORNERS_DIRECT, &info));
  EXPECT_EQ(info.own.length[1], 7);
  EXPECT_EQ(info.elements_in, 7);
  ok(muster_stencil_destroy(gradient));
}

TEST_F(Stencils, ShareDeepHalos) {
  muster_window layers[4] = {windows_[0], MUSTER_WINDOW_INIT, windows_[0], MUSTER_WINDOW_INIT};
  layers[0].stride = layers[2].stride = 1;
  options_.layers = 2;
  options_.windows = layers;
  ok(muster_stencil_create(&options_, &stencil_));
  muster_halo_info info = MUSTER_HALO_INFO_INIT;
  ok(muster_stencil_query(stencil_, 0, MUSTER_CORNERS_DIRECT, &info));
  EXPECT_EQ(info.held.length[0], 7);
  std::size_t count = 0;
  muster_halo_box box;
  ok(muster_stencil_boxes(stencil_, 0, 0, &box, 1, &count));
  EXPECT_EQ(box.length[0], 6);
  EXPECT_EQ(muster_stencil_boxes(stencil_, 0, 1, &box, 1, &count), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("layer 1 is not one of the 1 between"));
}

TEST_F(Stencils, RefuseByDimAndField) {
  options_.size = 3;
  expect_refused("muster_stencil_options has size 3");
  options_ = MUSTER_STENCIL_OPTIONS_INIT;
  expect_refused("layout must not be NULL");
  options_.layout = layout_;
  expect_refused("windows must not be NULL");
  options_.windows = windows_;
  options_.layers = 65;
  expect_refused("layers is 65; 1 to 64");
  options_.layers = 1;
  windows_[0].kind = 11;
  expect_refused("windows[0]: kind is 11");
  windows_[0].kind = MUSTER_WINDOW_CONVOLUTION;
  windows_[0].pad = 4;
  expect_refused("windows[0]: pad is 4");
  windows_[0].pad = MUSTER_PAD_ZEROS;
  windows_[0].scale = 2;
  expect_refused("windows[0]: scale is given, but a window of this kind does not use it");
  windows_[0].scale = 0;
  windows_[0].kernel = 0;
  expect_refused("dim 0: kernel is 0");
  windows_[0].kernel = 3;
  windows_[1].kernel = 3;
  expect_refused("windows[1]: kernel is given");
  windows_[1].kernel = 1;
  const std::int64_t lengths[] = {3, 3};
  windows_[0].lengths = lengths;
  windows_[0].length_count = 2;
  expect_refused("dim 0: the lengths of the result do not add up to its 5 items");
  windows_[0].lengths = nullptr;
  expect_refused("windows[0]: lengths is NULL, but it has 2 entries");
  windows_[0].length_count = 0;
  windows_[0].kind = MUSTER_WINDOW_WHOLE;
  windows_[0].kernel = windows_[0].stride = 1;
  windows_[0].before = windows_[0].after = 0;
  expect_refused("dim 0: axis 0 (rows) cuts it, but each result reads all of it", MUSTER_ERR_UNSUPPORTED);
}

TEST_F(Stencils, RefuseQuestionsThatMakeNoSense) {
  ok(muster_stencil_create(&options_, &stencil_));
  muster_halo_info info = MUSTER_HALO_INFO_INIT;
  EXPECT_EQ(muster_stencil_query(stencil_, 2, MUSTER_CORNERS_DIRECT, &info), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("rank 2 is not in the layout's 0..1"));
  EXPECT_EQ(muster_stencil_query(stencil_, 0, 2, &info), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("corners is 2"));
  EXPECT_EQ(muster_stencil_query(nullptr, 0, 0, &info), MUSTER_ERR_BAD_ARGUMENT);
  info.size = 4;
  EXPECT_EQ(muster_stencil_query(stencil_, 0, 0, &info), MUSTER_ERR_BAD_ARGUMENT);
  std::size_t count = 0;
  EXPECT_EQ(muster_stencil_boxes(stencil_, 0, -1, nullptr, 1, &count), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_stencil_segments(stencil_, 0, 0, 0, nullptr, 0, nullptr), MUSTER_ERR_BAD_ARGUMENT);
}

}  // namespace
