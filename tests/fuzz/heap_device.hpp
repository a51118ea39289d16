// A device whose memory lies in the heap, so that AddressSanitizer guards it to the byte, and buffers with a
// poisoned gap behind each. It runs nothing.
#pragma once

#include "kernels/device/device.hpp"
#include "tests/fuzz/promise.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#define MUSTER_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MUSTER_FUZZ_ASAN 1
#endif
#endif
#if defined(MUSTER_FUZZ_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace muster::fuzz {

// From here on the bytes are nobody's; without AddressSanitizer nothing happens.
inline void poison([[maybe_unused]] const std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(MUSTER_FUZZ_ASAN)
  __asan_poison_memory_region(data, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(MUSTER_FUZZ_ASAN)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

class HeapMemory final : public device::Memory {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::byte kCanary{0xCA};
  explicit HeapMemory(std::size_t bytes)
      : bytes_((bytes + kAlignment - 1) / kAlignment * kAlignment),
        data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_ + 2 * kAlignment))) {
    std::fill_n(data_.get(), bytes_ + 2 * kAlignment, kCanary);
    std::fill_n(data(), bytes_, std::byte{0});
    poison(data_.get(), kAlignment);
    poison(data() + bytes_, kAlignment);
  }
  // The vector loops are built without instruments: what they write beside its memory shows here.
  ~HeapMemory() override {
    unpoison(data_.get(), bytes_ + 2 * kAlignment);
    for (std::size_t i = 0; i < kAlignment; ++i)
      MUSTER_PROMISE(data_.get()[i] == kCanary && data()[bytes_ + i] == kCanary);
  }
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  std::byte* data() const noexcept override { return data_.get() + kAlignment; }
  std::size_t bytes() const noexcept override { return bytes_; }
  int descriptor() const noexcept override { return -1; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

class HeapDevice final : public device::Device {
 public:
  const device::Device::Info& info() const noexcept override { return info_; }
  Result<std::unique_ptr<device::Stream>> open_stream(device::Priority) override {
    return fail(Code::kUnsupported, "this device runs nothing");
  }
  Result<std::unique_ptr<device::Event>> create_event() override {
    return fail(Code::kUnsupported, "this device runs nothing");
  }
  Result<std::unique_ptr<device::Memory>> allocate(std::size_t bytes) override {
    return std::make_unique<HeapMemory>(bytes);
  }
  Result<std::unique_ptr<device::Memory>> import(int, std::uint64_t, std::uint64_t) override {
    return fail(Code::kUnsupported, "this device imports nothing");
  }

 private:
  device::Device::Info info_;
};

}  // namespace muster::fuzz
