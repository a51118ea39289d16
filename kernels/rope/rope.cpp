#include "kernels/rope/rope.hpp"

#include "kernels/check.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

#include <cmath>

namespace muster::kernels::rope {
namespace {

constexpr std::array<Operand, 2> kOperands{{{"x", Operand::kRead}, {"y", Operand::kReadWrite}}};

// About 10 µs of rotation.
constexpr std::int64_t kElementsPerPart = 32 * 1024;

// Spacing of the positions whose angles are computed anew; a rotation in double gives those between.
constexpr std::int64_t kAnchorSpacing = 32;

// Above this, position times frequency loses the accuracy of a float even in double.
constexpr std::int64_t kPositionMax = std::int64_t{1} << 40;

Status check(const Args& args) {
  const Subject s{"rope", kOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, 4));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {1}, 0));
  const Tensor& x = args.tensors[0];
  if (x.size[3] % 2 != 0)
    return failure(Code::kBadArgument,
                   "rope: x is {}; its fourth size must be even, as features turn in pairs", shape_text(x));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, 0, 3, 0, kRowElementsMax));
  MUSTER_RETURN_IF_ERROR(expect_int(s, 0, "position", 0, kPositionMax));
  if (args.ints[1] != 1 && args.ints[1] != -1)
    return failure(Code::kBadArgument, "rope: direction is {}; it must be 1 (forward) or -1 (backward)",
                   args.ints[1]);
  MUSTER_RETURN_IF_ERROR(expect_finite(s, 0, "theta"));
  if (args.reals[0] <= 0.0)
    return failure(Code::kBadArgument, "rope: theta is {}; it must be positive", args.reals[0]);
  return {};
}

// How [B, S] is cut: a function of the shape alone.
struct Cut {
  std::int64_t batch_per_part;
  std::int64_t positions_per_part;
  std::uint32_t batch_parts;
  std::uint32_t position_parts;
};

Cut cut_of(const Tensor& x) {
  const auto at_least_one = [](std::int64_t n) { return std::max<std::int64_t>(1, n); };
  const std::int64_t token = at_least_one(x.size[2] * x.size[3]);
  Cut cut{};
  cut.batch_per_part = std::min(at_least_one(x.size[0]), at_least_one(kElementsPerPart / token));
  cut.positions_per_part = at_least_one(kElementsPerPart / (token * cut.batch_per_part));
  cut.batch_parts = parts_of(x.size[0], cut.batch_per_part);
  cut.position_parts = parts_of(x.size[1], cut.positions_per_part);
  return cut;
}

std::uint32_t parts(const Args& args) {
  const Cut cut = cut_of(args.tensors[0]);
  return cut.batch_parts * cut.position_parts;
}

// The angles of all pairs at one position, as cosine and sine, moved along the sequence.
//
// Owns    nothing: its tables are the thread's scratch. Thread  one. Bound  by the pairs.  Fails  never.
class Angles {
 public:
  Angles(std::int64_t pairs, double theta, double* tables) : pairs_(pairs), tables_(tables) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
      row(kFrequency)[i] = frequency;
      row(kStepCosine)[i] = std::cos(frequency);
      row(kStepSine)[i] = std::sin(frequency);
    }
  }
  static constexpr std::int64_t tables_size(std::int64_t pairs) { return kRows * pairs; }

  // Anchors lie at multiples of kAnchorSpacing, so that a position has the same bits in every range.
  void start(std::int64_t position) {
    const std::int64_t anchor = position / kAnchorSpacing * kAnchorSpacing;
    set(anchor);
    for (position_ = anchor; position_ < position;) advance();
  }
  void advance() {
    if (++position_ % kAnchorSpacing == 0) return set(position_);
    double* cosine = row(kCosine);
    double* sine = row(kSine);
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double c = cosine[i] * row(kStepCosine)[i] - sine[i] * row(kStepSine)[i];
      sine[i] = sine[i] * row(kStepCosine)[i] + cosine[i] * row(kStepSine)[i];
      cosine[i] = c;
    }
  }
  const double* cosine() const { return row(kCosine); }
  const double* sine() const { return row(kSine); }

 private:
  enum Table : std::int64_t { kFrequency, kStepCosine, kStepSine, kCosine, kSine, kRows };
  double* row(Table table) const { return tables_ + table * pairs_; }
  void set(std::int64_t position) {
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double angle = static_cast<double>(position) * row(kFrequency)[i];
      row(kCosine)[i] = std::cos(angle);
      row(kSine)[i] = std::sin(angle);
    }
  }

  std::int64_t pairs_;
  double* tables_;
  std::int64_t position_ = 0;
};

// Rotates one head of one token. y may be x, because each pair is read before it is written.
void rotate(const float* x, float* y, const float* cosine, const float* sine, std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float first = x[i];
    const float second = x[i + pairs];
    y[i] = first * cosine[i] - second * sine[i];
    y[i + pairs] = second * cosine[i] + first * sine[i];
  }
}

struct RotationScratch;

void turn(const Args& args, Range batch, Range positions) {
  const Tensor& x = args.tensors[0];
  const Tensor& y = args.tensors[1];
  const std::int64_t features = x.size[3];
  const std::int64_t pairs = features / 2;
  thread_local std::vector<double> tables;
  const auto tables_size = static_cast<std::size_t>(Angles::tables_size(pairs));
  if (tables.size() < tables_size) tables.resize(tables_size);
  float* cosine = scratch<RotationScratch>(3 * features);
  float* sine = cosine + pairs;
  float* in = cosine + features;
  float* out = in + features;

  Angles angles(pairs, args.reals[0], tables.data());
  angles.start(args.ints[0] + positions.begin);
  const auto direction = static_cast<float>(args.ints[1]);
  for (std::int64_t s = positions.begin; s < positions.end; ++s, angles.advance()) {
    for (std::int64_t i = 0; i < pairs; ++i) cosine[i] = static_cast<float>(angles.cosine()[i]);
    for (std::int64_t i = 0; i < pairs; ++i) sine[i] = direction * static_cast<float>(angles.sine()[i]);
    for (std::int64_t b = batch.begin; b < batch.end; ++b) {
      for (std::int64_t h = 0; h < x.size[2]; ++h) {
        const auto row_at = [=](const Tensor& t) {
          return Row{t, b * t.stride[0] + s * t.stride[1] + h * t.stride[2], t.stride[3], features};
        };
        const Row to = row_at(y);
        float* turned = target(to, Write::kReplace, out);
        rotate(read(row_at(x), in), turned, cosine, sine, pairs);
        write(to, Write::kReplace, turned);
      }
    }
  }
}

void run(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Cut cut = cut_of(x);
  const Range batch = range_of(x.size[0], cut.batch_per_part, part / cut.position_parts);
  const Range positions = range_of(x.size[1], cut.positions_per_part, part % cut.position_parts);
  wide([&] { turn(args, batch, positions); });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 1> kRows{
      {{MUSTER_KERNEL_ROPE, "rope", kOperands, 2, 1, check, parts, launchers(on_host<run>), 0}}};
  return kRows;
}

}  // namespace muster::kernels::rope
