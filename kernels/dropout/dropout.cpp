#include "kernels/dropout/dropout.hpp"

#include "kernels/check.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

#include <bit>
#include <cmath>
#include <limits>

namespace muster::kernels::dropout {
namespace {

constexpr std::array<Operand, 2> kForward{{{"x", Operand::kRead}, {"y", Operand::kWrite}}};
constexpr std::array<Operand, 2> kBackward{{{"dy", Operand::kRead}, {"dx", Operand::kWrite}}};

// About 70 µs, most of it for the generator.
constexpr std::int64_t kElementsPerPart = 32 * 1024;
// Elements whose words are drawn at a time. Words and both buffers fit the first cache.
constexpr std::int64_t kChunk = 1024;
// A block of the generator is one call of it.
constexpr std::int64_t kWordsPerBlock = 4;

Status check(const char* kernel, std::span<const Operand> operands, const Args& args) {
  const Subject s{kernel, operands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {1}, 0));
  const double p = args.reals[0];
  if (!(p >= 0.0 && p < 1.0))  // a NaN too
    return failure(Code::kBadArgument, "{}: p is {}; it must be at least 0 and below 1", kernel, p);
  constexpr std::int64_t kIndexMax = std::numeric_limits<std::int64_t>::max();
  return expect_int(s, 1, "offset", 0, kIndexMax - args.tensors[0].count());
}

std::uint32_t parts(const Args& args) {
  return parts_of(args.tensors[0].count(), kElementsPerPart);
}

// Drops or scales elements by their index in the whole tensor.
//
// Owns    the words of one chunk. Thread  one. Bound  kChunk elements a call.  Fails  never.
class Dropper {
 public:
  Dropper(double p, std::uint64_t seed)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        threshold_(static_cast<std::uint64_t>(std::round(p * 0x1p32))),
        scale_(static_cast<float>(1.0 / (1.0 - p))) {}

  // y may be x.
  void apply(const float* x, float* y, std::int64_t index, std::int64_t n) {
    if (threshold_ > std::numeric_limits<std::uint32_t>::max()) {  // above each word
      std::fill(y, y + n, 0.0f);
      return;
    }
    const std::int64_t skipped = index % kWordsPerBlock;
    draw(static_cast<std::uint64_t>(index / kWordsPerBlock),
         (skipped + n + kWordsPerBlock - 1) / kWordsPerBlock);
    const std::uint32_t* words = words_.data() + skipped;
    const auto threshold = static_cast<std::uint32_t>(threshold_);
    const float scale = scale_;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {  // without a branch, which would keep it from being vectorised
      const std::uint32_t kept = words[i] >= threshold ? ~0u : 0u;
      y[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x[i] * scale) & kept);
    }
  }

 private:
  void draw(std::uint64_t first, std::int64_t blocks) {
    std::uint32_t* words = words_.data();
    const auto key = key_;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::uint64_t at = first + static_cast<std::uint64_t>(b);
      const auto block =
          philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), 0, 0}, key);
      std::copy(block.begin(), block.end(), words + b * kWordsPerBlock);
    }
  }

  std::array<std::uint32_t, 2> key_;
  std::uint64_t threshold_;
  float scale_;
  std::array<std::uint32_t, kChunk + kWordsPerBlock> words_{};  // a chunk may begin and end inside a block
};

struct DropoutScratch;

// Forward and backward alike: dy is dropped and scaled as x was.
void run(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& y = args.tensors[1];
  const Walk<2> walk({&x, &y});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  float* in = scratch<DropoutScratch>(2 * kChunk);
  float* out = in + kChunk;
  Dropper dropper(args.reals[0], static_cast<std::uint64_t>(args.ints[0]));
  wide([&] {
    std::int64_t index = args.ints[1] + range.begin;
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t length) {
      for (std::int64_t begin = 0; begin < length; begin += kChunk) {
        const std::int64_t n = std::min(kChunk, length - begin);
        const auto row = [&](const Tensor& t, std::size_t v) {
          return Row{t, at[v] + begin * walk.step()[v], walk.step()[v], n};
        };
        const Row to = row(y, 1);
        float* dropped = target(to, Write::kReplace, out);
        dropper.apply(read(row(x, 0), in), dropped, index, n);
        write(to, Write::kReplace, dropped);
        index += n;
      }
    });
  });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 2> kRows{{
      {MUSTER_KERNEL_DROPOUT_FORWARD, "dropout_forward", kForward, 2, 1,
       [](const Args& args) { return check("dropout_forward", kForward, args); }, parts,
       launchers(on_host<run>), 0},
      {MUSTER_KERNEL_DROPOUT_BACKWARD, "dropout_backward", kBackward, 2, 1,
       [](const Args& args) { return check("dropout_backward", kBackward, args); }, parts,
       launchers(on_host<run>), 0},
  }};
  return kRows;
}

}  // namespace muster::kernels::dropout
