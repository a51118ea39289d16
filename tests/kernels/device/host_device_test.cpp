#include "kernels/device/host/device.hpp"
#include "kernels/device/pool.hpp"

#include "tests/kernels/device/device_conformance.hpp"

#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::device::test {
namespace {

// Owns    pool and device; calls in flight are kept alive by their slots.
// Thread  the test's. Bound  kCallsMax calls in a test.  Fails  as the stream does.
class HostRig final : public Rig {
 public:
  explicit HostRig(std::uint32_t workers) {
    PoolOptions options;
    options.workers = workers;
    workers_ = workers;
    auto pool = Pool::start(options);
    EXPECT_TRUE(pool.has_value());
    pool_ = std::move(*pool);
    device_ = host::open_device(pool_->crew(), 0);
  }
  Device& device() override { return *device_; }
  Status call(Stream& stream, void (*function)(void*), void* context) override {
    calls_.push_back(std::make_unique<Call>(Call{function, context}));
    return host::enqueue(stream, {&Call::run, calls_.back().get(), 1});
  }
  std::vector<std::byte> read(const std::byte* address, std::size_t bytes) override {
    return {address, address + bytes};
  }
  void write(std::byte* address, const std::vector<std::byte>& bytes) override {
    std::memcpy(address, bytes.data(), bytes.size());
  }
  std::vector<std::byte> read_through(int descriptor, std::size_t granted, std::size_t bytes) override {
    void* other = ::mmap(nullptr, granted, PROT_READ, MAP_SHARED, descriptor, 0);
    if (other == MAP_FAILED) return {};
    auto seen = read(static_cast<const std::byte*>(other), bytes);
    ::munmap(other, granted);
    return seen;
  }
  std::uint32_t blockable() const override { return workers_ - 1; }

 private:
  struct Call {
    void (*function)(void*);
    void* context;
    static void run(const void* self, std::uint32_t) {
      const auto* call = static_cast<const Call*>(self);
      call->function(call->context);
    }
  };
  std::uint32_t workers_ = 0;
  std::vector<std::unique_ptr<Call>> calls_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Device> device_;
};

INSTANTIATE_TEST_SUITE_P(
    Host, DeviceConformance,
    testing::Values(
        Backend{"host3", [](std::string*) -> std::unique_ptr<Rig> { return std::make_unique<HostRig>(3); }},
        Backend{"host8", [](std::string*) -> std::unique_ptr<Rig> { return std::make_unique<HostRig>(8); }}),
    [](const auto& chosen) { return chosen.param.name; });

TEST(HostMemory, IsSealedSoThatNobodyCanShrinkIt) {
  HostRig rig(1);
  auto memory = rig.device().allocate(5 << 20).value();
  EXPECT_EQ(memory->bytes(), std::size_t{6} << 20) << "large requests are granted in huge pages";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % (2u << 20), 0u);
  const int seals = ::fcntl(memory->descriptor(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(memory->descriptor(), 4096), 0);
  EXPECT_NE(::ftruncate(memory->descriptor(), 8 << 20), 0);
  EXPECT_NE(::fcntl(memory->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(HostMemory, NamesNeedLimitAndRemedyWhenTheNodeIsTooSmall) {
  HostRig rig(1);
  const std::uint64_t total = rig.device().info().memory_bytes;
  auto memory = rig.device().allocate(total + (1 << 20));
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), Code::kNoResource);
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("are needed"));
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("free"));
}

}  // namespace
}  // namespace muster::device::test
