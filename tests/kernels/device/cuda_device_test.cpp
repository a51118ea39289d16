#include "kernels/device/cuda/device.hpp"

#include "kernels/device/cuda/memory.hpp"
#include "kernels/device/cuda/stream.hpp"
#include "tests/kernels/device/device_conformance.hpp"

#include <utility>

namespace muster::device::test {
namespace {

// Owns    the device. Thread  the test's.  Bound  one GPU.  Fails  as the stream does.
class CudaRig final : public Rig {
 public:
  explicit CudaRig(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  Status call(Stream& stream, void (*function)(void*), void* context) override {
    cuda::Launch launch(stream);
    if (!launch.status().ok()) return launch.status();
    (void)cudaLaunchHostFunc(launch.native(), function, context);
    return launch.finish("cudaLaunchHostFunc");
  }
  std::vector<std::byte> read(const std::byte* address, std::size_t bytes) override {
    std::vector<std::byte> copy(bytes);
    EXPECT_EQ(cudaMemcpy(copy.data(), address, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return copy;
  }
  void write(std::byte* address, const std::vector<std::byte>& bytes) override {
    EXPECT_EQ(cudaMemcpy(address, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<std::byte> read_through(int descriptor, std::size_t granted, std::size_t bytes) override {
    auto other = device_->import(descriptor, 0, granted);
    EXPECT_TRUE(other.has_value()) << other.error().text();
    return other ? read((*other)->data(), bytes) : std::vector<std::byte>{};
  }
  // CUDA may run the host functions of all streams on one thread: while one blocks, no other need run.
  std::uint32_t blockable() const override { return 1; }

 private:
  std::unique_ptr<Device> device_;
};

std::unique_ptr<Rig> open_cuda(std::string* why_not) {
  auto device = cuda::open_device(0, 64);
  if (device) return std::make_unique<CudaRig>(std::move(*device));
  *why_not = device.error().text();
  return nullptr;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance, testing::Values(Backend{"cuda", open_cuda}),
                         [](const auto& chosen) { return chosen.param.name; });

TEST(CudaDevice, SaysWhyThereIsNoneOrHowManyThereAre) {
  const auto count = cuda::device_count();
  if (count) {
    EXPECT_GT(*count, 0u);
    auto beyond = cuda::open_device(*count);
    ASSERT_FALSE(beyond.has_value());
    EXPECT_EQ(beyond.error().code(), Code::kBadArgument) << beyond.error().text();
  } else {
    EXPECT_EQ(count.error().code(), Code::kUnsupported) << count.error().text();
    EXPECT_THAT(count.error().message(), testing::HasSubstr("devices of kind host"));
  }
}

TEST(CudaDevice, ChecksItsOptionsBeforeTheDriver) {
  EXPECT_EQ(cuda::open_device(0, 0).error().code(), Code::kBadArgument);
}

TEST(CudaStatus, SortsErrorsByWhatWasLost) {
  EXPECT_TRUE(cuda::cuda_status(cudaSuccess, "x").ok());
  EXPECT_EQ(cuda::cuda_status(cudaErrorMemoryAllocation, "x").code(), Code::kNoResource);
  EXPECT_EQ(cuda::cuda_status(CUDA_ERROR_OUT_OF_MEMORY, "x").code(), Code::kNoResource);
  EXPECT_EQ(cuda::cuda_status(cudaErrorInsufficientDriver, "x").code(), Code::kUnsupported);
  EXPECT_EQ(cuda::cuda_status(cudaErrorNoDevice, "x").code(), Code::kUnsupported);
  const Status fault = cuda::cuda_status(cudaErrorIllegalAddress, "my_kernel");
  EXPECT_EQ(fault.code(), Code::kDevice);
  EXPECT_THAT(fault.message(), testing::HasSubstr("my_kernel: cudaErrorIllegalAddress (700)"));
}

}  // namespace
}  // namespace muster::device::test
