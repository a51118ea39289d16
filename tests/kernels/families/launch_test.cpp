#include "kernels/table.hpp"

#include "kernels/check.hpp"
#include "kernels/device/registry.hpp"
#include "tests/kernels/families/tensor_fixture.hpp"

#include <memory>

#include <muster/kernels.h>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

// A host device without threads of its own, and one stream of it.
class Launch : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(host_) << host_.error().text();
    stream_ = (*host_)->open_stream(device::Priority::kNormal);
    ASSERT_TRUE(stream_);
  }
  // Whether what lies on the stream comes to its end.
  bool completes() {
    const auto done = (*host_)->create_event();
    if (!done || !(*stream_)->record(**done).ok()) return false;
    for (int turn = 0; turn < 1000 && !(*done)->query(); ++turn) pool_->run_once();
    return (*done)->query();
  }

  std::unique_ptr<device::Pool> pool_ = device::Pool::open_manual({});
  Result<std::unique_ptr<device::Device>> host_ = device::open({}, *pool_);
  Result<std::unique_ptr<device::Stream>> stream_ = fail(Code::kState, "not open yet");
};

// Goal:   a launch runs every part of the right row with the given arguments, in the order of its stream.
// Method: a pool without threads; fill, then scale the filled vector in place; both span three parts.
TEST_F(Launch, RunsTheRowsInStreamOrderOnAHostDevice) {
  constexpr std::int64_t kCount = 300'000;
  OwnedTensor x(MUSTER_F32, {kCount});
  const Args fill = args_of({x.view()}, {}, {3.0});
  const Args scale = args_of({x.view(), x.view()}, {}, {2.0, 1.0});
  ASSERT_GT(find(MUSTER_KERNEL_FILL)->parts(fill), 1u);
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_FILL), fill).ok());
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_AXPBY), scale).ok());
  ASSERT_TRUE(completes());
  EXPECT_EQ(x.values(), Values(kCount, 9.0));
}

// Goal:   a reduction of many parts is whole before the next work of its stream begins.
// Method: sum what is filled before, fill it with something else behind.
TEST_F(Launch, FoldsTheSumsOfAllPartsInStreamOrder) {
  constexpr std::int64_t kCount = 300'000;
  OwnedTensor x(MUSTER_F32, {kCount});
  OwnedTensor out(MUSTER_F64, {1});
  OwnedTensor twice(MUSTER_F64, {1});
  const Args fill = args_of({x.view()}, {}, {3.0});
  const Args fill_again = args_of({x.view()}, {}, {5.0});
  Args sum = args_of({x.view(), out.view()}, {0}, {1.0});
  prepare(*find(MUSTER_KERNEL_SUM), sum);
  const Args copy = args_of({out.view(), twice.view()});
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_FILL), fill).ok());
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_SUM), sum).ok());
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_COPY), copy).ok());
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_FILL), fill_again).ok());
  ASSERT_TRUE((*stream_)->synchronize().ok());
  EXPECT_EQ(out.values(), Values{3.0 * kCount});
  EXPECT_EQ(twice.values(), out.values());
  EXPECT_EQ(x.values(), Values(kCount, 5.0));
}

// Goal: a kernel over no elements is legal work that completes.
TEST_F(Launch, CompletesAKernelWithoutParts) {
  OwnedTensor x(MUSTER_F32, {0});
  const Args fill = args_of({x.view()}, {}, {3.0});
  ASSERT_TRUE(launch(**stream_, *find(MUSTER_KERNEL_FILL), fill).ok());
  EXPECT_TRUE(completes());
}

// Goal:   sizes of an output without elements are no work, as large as they may be.
// Method: 2^31 sequences of nothing; each would be a part.
TEST_F(Launch, HasNoPartWhereNothingIsWritten) {
  OwnedTensor nothing(MUSTER_F32, {0, 0, 1, 1});
  Tensor heads = nothing.view();
  heads.size[0] = std::int64_t{1} << 31;
  Tensor lse = heads;
  lse.dims = 3;
  lse.size[1] = 1;
  lse.size[2] = 0;
  const Args args = args_of({heads, heads, heads, heads, heads, lse, heads, heads, heads}, {0, 0, 0}, {1.0});
  const Kernel& backward = *find(MUSTER_KERNEL_ATTENTION_BACKWARD);
  ASSERT_TRUE(validate(backward, args).ok()) << validate(backward, args).text();
  ASSERT_GT(backward.parts(args), 0u);
  ASSERT_TRUE(launch(**stream_, backward, args).ok());
  EXPECT_TRUE(completes());
}

// A device of a kind that has no row of ours yet.
class OtherStream final : public device::Stream {
 public:
  device::Kind kind() const noexcept override { return device::Kind::kCuda; }
  Status record(device::Event&) override { return {}; }
  Status wait(const device::Event&) override { return {}; }
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }
};

TEST_F(Launch, SaysUnsupportedWhereTheDeviceKindHasNoImplementation) {
  OtherStream stream;
  OwnedTensor x(MUSTER_F32, {3});
  const Args fill = args_of({x.view()}, {}, {3.0});
  const Status status = launch(stream, *find(MUSTER_KERNEL_FILL), fill);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("fill: this build has no implementation of it for a cuda device"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace muster::kernels::test
