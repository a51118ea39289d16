#include "kernels/math/sum.hpp"
#include "kernels/norm/shape.hpp"
#include "kernels/wide.hpp"

namespace muster::kernels::norm {
namespace {

struct RowScratch;
struct ColumnScratch;

// Rows whose products are added in a block before the block joins the column's total. So the rounding of a
// long column stays near that of its blocks.
constexpr std::int64_t kRowsPerBlock = 64;

// With n = (x - mean)·rstd and g = dy·weight: dx = rstd·(g - mean of g - n·(mean of g·n)); kRms has no mean,
// and so no mean of g.
void gradient_rows(const Backward& b, Range rows) {
  const std::int64_t features = b.x.size[1];
  const double terms = static_cast<double>(std::max<std::int64_t>(1, features));
  float* buffer = scratch<RowScratch>(4 * features);
  const float* weight = read(whole(b.weight), buffer);
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* dy = read(row_of(b.dy, i), buffer + features);
    const float* x = read(row_of(b.x, i), buffer + 2 * features);
    const Row out = row_of(b.dx, i);
    float* dx = target(out, b.write_dx, buffer + 3 * features);
    const float rstd = statistic(b.rstd, i);
    const float mean = b.mean != nullptr ? statistic(*b.mean, i) : 0.0f;
    const double along =
        math::sum_of(features, [=](std::int64_t k) { return dy[k] * weight[k] * ((x[k] - mean) * rstd); });
    const double level =
        b.mean != nullptr ? math::sum_of(features, [=](std::int64_t k) { return dy[k] * weight[k]; }) : 0.0;
    const auto along_mean = static_cast<float>(along / terms);
    const auto level_mean = static_cast<float>(level / terms);
    for (std::int64_t k = 0; k < features; ++k)
      dx[k] = rstd * ((dy[k] * weight[k] - level_mean) - (x[k] - mean) * rstd * along_mean);
    write(out, b.write_dx, dx);
  }
}

void gradient_columns(const Backward& b, Range columns) {
  const std::int64_t width = columns.end - columns.begin;
  float* buffer = scratch<ColumnScratch>(6 * width);
  float* dweight = buffer + 2 * width;
  float* dbias = buffer + 3 * width;
  float* block_weight = buffer + 4 * width;
  float* block_bias = buffer + 5 * width;
  std::fill(dweight, block_weight, 0.0f);
  for (std::int64_t begin = 0; begin < b.x.size[0]; begin += kRowsPerBlock) {
    const std::int64_t end = std::min(b.x.size[0], begin + kRowsPerBlock);
    std::fill(block_weight, block_bias + width, 0.0f);
    for (std::int64_t i = begin; i < end; ++i) {
      const float* dy = read(row_of(b.dy, i, columns), buffer);
      const float* x = read(row_of(b.x, i, columns), buffer + width);
      const float rstd = statistic(b.rstd, i);
      const float mean = b.mean != nullptr ? statistic(*b.mean, i) : 0.0f;
      for (std::int64_t k = 0; k < width; ++k) block_weight[k] += dy[k] * ((x[k] - mean) * rstd);
      if (b.dbias != nullptr)
        for (std::int64_t k = 0; k < width; ++k) block_bias[k] += dy[k];
    }
    for (std::int64_t k = 0; k < width; ++k) dweight[k] += block_weight[k];
    for (std::int64_t k = 0; k < width; ++k) dbias[k] += block_bias[k];
  }
  write(piece_of(b.dweight, columns), b.write_dweight, dweight);
  if (b.dbias != nullptr) write(piece_of(*b.dbias, columns), b.write_dweight, dbias);
}

}  // namespace

void backward_rows(const Backward& b, Range rows) {
  wide([&] { gradient_rows(b, rows); });
}
void backward_columns(const Backward& b, Range columns) {
  wide([&] { gradient_columns(b, columns); });
}

}  // namespace muster::kernels::norm
