#include "daemon/engine/session/resolve.hpp"

#include "daemon/engine/session/session.hpp"

#include "kernels/device/registry.hpp"

#include <muster/kernels.h>

#include <memory>
#include <string>

#include <gmock/gmock.h>

namespace muster::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kEpoch = 77;
constexpr std::uint64_t kBytes = 160'000;  // 40,000 floats

// One session with a buffer, alone in its job.
class ResolvedKernel : public ::testing::Test {
 protected:
  ResolvedKernel()
      : pool_(device::Pool::open_manual({})),
        device_(*device::open({}, *pool_)),
        arena_(*device_, {std::uint64_t{1} << 20, std::uint64_t{1} << 20}) {
    shm::Headroom room = shm::memory_headroom();
    const SessionOptions options{Rank(0), 1, SessionId(1), 1, 2, 4, std::chrono::seconds(1), &table_};
    session_ = std::make_unique<Session>(options, *shm::SubmissionView::create(room),
                                         *shm::CompletionView::create(1, kEpoch, room), arena_);
    Buffer buffer;
    buffer.grant = *arena_.allocate(kBytes);
    buffer.bytes = kBytes;
    buffer_ = session_->buffers().add(std::move(buffer))->bits;
  }

  muster_tensor view(std::initializer_list<std::int64_t> size, std::initializer_list<std::int64_t> stride) {
    // Not by the builder, which multiplies: these sizes are an enemy's.
    muster_tensor t = muster_view1(buffer_, 0, MUSTER_F32, 0);
    t.dims = static_cast<std::int32_t>(size.size());
    std::copy(size.begin(), size.end(), t.size);
    std::copy(stride.begin(), stride.end(), t.stride);
    return t;
  }
  // "" or why it is refused.
  std::string refusal(const muster_kernel& kernel) {
    const auto plan = resolve_kernel(session_->scope(groups_), kernel);
    if (plan) return "";
    EXPECT_EQ(plan.error().code(), Code::kBadArgument);
    return plan.error().message();
  }
  std::string refusal_of_sum(std::initializer_list<std::int64_t> size,
                             std::initializer_list<std::int64_t> stride) {
    const muster_tensor out = muster_view1(buffer_, kBytes - sizeof(float), MUSTER_F32, 1);
    return refusal(muster_sum(view(size, stride), out, 1.0, 0));
  }

  std::unique_ptr<device::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  Arena arena_;
  GroupTable table_{{1, 2, 0}, kEpoch};
  std::vector<scheduler::Group> groups_;
  std::unique_ptr<Session> session_;
  std::uint64_t buffer_ = 0;
};

// Goal:   a kernel's work is bounded by the memory it names: every worker that it kept would be missed by all
//         ranks of the job.
TEST_F(ResolvedKernel, SeesNoElementOverAndOver) {
  EXPECT_THAT(refusal_of_sum({10'000, 10'000, 10'000, 10'000}, {1, 1, 1, 1}),
              HasSubstr("sum: x: 10000000000000000 elements are seen in a range of 39997"));
  EXPECT_THAT(refusal_of_sum({4, 3}, {2, 1}), HasSubstr("12 elements are seen in a range of 9"));
  EXPECT_THAT(refusal_of_sum({4, 3}, {0, 1}), HasSubstr("stride 0"));
  EXPECT_EQ(refusal_of_sum({39'999}, {1}), "") << "the result is the last element";
  EXPECT_EQ(refusal_of_sum({4, 3}, {3, 1}), "");
  EXPECT_EQ(refusal_of_sum({3, 4}, {1, 3}), "");
  EXPECT_EQ(refusal_of_sum({4, 3}, {100, 2}), "");
  EXPECT_EQ(refusal_of_sum({1, 3}, {0, 1}), "");
}

// Goal:   sizes beside a 0 are no memory, but loops.
TEST_F(ResolvedKernel, BoundsTheSizesOfAViewOfNothing) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  EXPECT_EQ(refusal_of_sum({0, kMost}, {1, 1}), "");
  EXPECT_THAT(refusal_of_sum({0, kMost + 1}, {1, 1}), HasSubstr("multiply to 2147483649; 2147483648 is"));
  EXPECT_THAT(refusal_of_sum({INT64_MAX, INT64_MAX, INT64_MAX, 0}, {1, 1, 1, 1}), HasSubstr("empty view"));
  const muster_tensor q = view({1, 1, 1, 0}, {1, 1, 1, 1});
  const muster_tensor key = view({1, kMost, 1, 0}, {1, 1, 1, 1});
  const muster_tensor lse = muster_view3(buffer_, 0, MUSTER_F32, 1, 1, 1);
  EXPECT_THAT(refusal(muster_attention_forward(q, key, key, q, lse, 1.0, 0, 0, 0)),
              HasSubstr("its fourth size must lie in 1..4096"));
}

}  // namespace
}  // namespace muster::engine
