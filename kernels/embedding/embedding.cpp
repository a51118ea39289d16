#include "kernels/embedding/embedding.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

#include <cstring>
#include <limits>

namespace muster::kernels::embedding {
namespace {

constexpr std::array<Operand, 3> kForwardOperands{
    {{"ids", Operand::kRead}, {"table", Operand::kRead}, {"out", Operand::kWrite}}};
constexpr std::array<Operand, 3> kBackwardOperands{
    {{"ids", Operand::kRead}, {"dout", Operand::kRead}, {"dtable", Operand::kReadWrite}}};

constexpr std::int64_t kForwardElementsPerPart = 256 * 1024;
// A backward tile: 1 MiB of f32 at most.
constexpr std::int64_t kTileRows = 2048;
constexpr std::int64_t kTileColumns = 128;

// An id minus the offset must not overflow. Ids have 32 bits, so a larger offset is a mistake anyway.
Status expect_vocab_offset(const Subject& s) {
  return expect_int(s, 0, "vocab_offset", 0, std::numeric_limits<std::int32_t>::max());
}

Status check_forward(const Args& args) {
  const Subject s{"embedding_forward", kForwardOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_I32}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 2, 1));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 1, 2));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 2, 2));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 0, 0, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 1, 1, 1));
  return expect_vocab_offset(s);
}

std::int64_t tokens_per_part(const Args& args) {
  return std::max<std::int64_t>(1,
                                kForwardElementsPerPart / std::max<std::int64_t>(1, args.tensors[2].size[1]));
}

std::uint32_t parts_forward(const Args& args) {
  return parts_of(args.tensors[2].size[0], tokens_per_part(args));
}

template<class E>
void forward_range(const Args& args, Range tokens) {
  const Tensor& ids = args.tensors[0];
  const Tensor& table = args.tensors[1];
  const Tensor& out = args.tensors[2];
  const std::int64_t columns = out.size[1];
  const auto row_bytes = static_cast<std::size_t>(columns) * sizeof(E);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const std::int64_t row = load_index(elements<std::int32_t>(ids) + t * ids.stride[0]) - args.ints[0];
    E* target = elements<E>(out) + t * out.stride[0];
    if (row < 0 || row >= table.size[0]) {
      for (std::int64_t d = 0; d < columns; ++d) target[d * out.stride[1]] = E{};
      continue;
    }
    const E* source = elements<E>(table) + row * table.stride[0];
    if (table.stride[1] == 1 && out.stride[1] == 1)
      std::memcpy(target, source, row_bytes);
    else
      for (std::int64_t d = 0; d < columns; ++d) target[d * out.stride[1]] = source[d * table.stride[1]];
  }
}

void run_forward(const Args& args, std::uint32_t part) {
  const Range tokens = range_of(args.tensors[2].size[0], tokens_per_part(args), part);
  dispatch_float(args.tensors[1].dtype,
                 [&]<class E>(std::type_identity<E>) { forward_range<E>(args, tokens); });
}

Status check_backward(const Args& args) {
  const Subject s{"embedding_backward", kBackwardOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_I32}));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 1, {MUSTER_F32, MUSTER_BF16}));
  if (args.tensors[2].dtype != MUSTER_F32) MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 2, 1));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 1, 2));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 2, 2));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 1, 0, 0, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 2, 1, 1, 1));
  MUSTER_RETURN_IF_ERROR(expect_vocab_offset(s));
  return expect_int(s, 1, "accumulate", 0, 1);
}

std::uint32_t parts_backward(const Args& args) {
  const Tensor& dtable = args.tensors[2];
  return parts_of(dtable.size[0], kTileRows) * parts_of(dtable.size[1], kTileColumns);
}

// One tile of the table's gradient.
struct Tile {
  Range rows;
  Range columns;

  std::int64_t height() const { return rows.end - rows.begin; }
  std::int64_t width() const { return columns.end - columns.begin; }
};

Tile tile_of(const Tensor& dtable, std::uint32_t part) {
  const std::uint32_t across = parts_of(dtable.size[1], kTileColumns);
  return {range_of(dtable.size[0], kTileRows, part / across),
          range_of(dtable.size[1], kTileColumns, part % across)};
}

// The f32 memory in which a tile is summed: the table itself or scratch.
struct Sums {
  float* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  float* at(std::int64_t row) const { return data + row * row_stride; }
};

// Adds the gradients of the tokens in the tile's rows, in token order.
template<class E>
void add_tokens(const Args& args, const Tile& tile, const Sums& sums) {
  const Tensor& ids = args.tensors[0];
  const Tensor& dout = args.tensors[1];
  const std::int64_t first = args.ints[0] + tile.rows.begin;
  const std::int64_t step = dout.stride[1];
  for (std::int64_t t = 0; t < ids.size[0]; ++t) {
    const std::int64_t row = load_index(elements<std::int32_t>(ids) + t * ids.stride[0]) - first;
    if (row < 0 || row >= tile.height()) continue;
    const E* source = elements<E>(dout) + t * dout.stride[0] + tile.columns.begin * step;
    float* target = sums.at(row);
    if (step == 1 && sums.column_stride == 1)
      for (std::int64_t d = 0; d < tile.width(); ++d) target[d] += load(source + d);
    else
      for (std::int64_t d = 0; d < tile.width(); ++d)
        target[d * sums.column_stride] += load(source + d * step);
  }
}

bool any_token(const Args& args, const Tile& tile) {
  const Tensor& ids = args.tensors[0];
  const std::int64_t first = args.ints[0] + tile.rows.begin;
  for (std::int64_t t = 0; t < ids.size[0]; ++t) {
    const std::int64_t row = load_index(elements<std::int32_t>(ids) + t * ids.stride[0]) - first;
    if (row >= 0 && row < tile.height()) return true;
  }
  return false;
}

// A table in f32 is summed in place.
template<class E>
void backward_in_place(const Args& args, const Tile& tile) {
  const Tensor& dtable = args.tensors[2];
  const Sums sums{
      elements<float>(dtable) + tile.rows.begin * dtable.stride[0] + tile.columns.begin * dtable.stride[1],
      dtable.stride[0], dtable.stride[1]};
  for (std::int64_t r = 0; args.ints[1] == 0 && r < tile.height(); ++r) {
    if (sums.column_stride == 1)
      std::fill_n(sums.at(r), tile.width(), 0.0f);
    else
      for (std::int64_t d = 0; d < tile.width(); ++d) sums.at(r)[d * sums.column_stride] = 0.0f;
  }
  wide([&] { add_tokens<E>(args, tile, sums); });
}

struct TileScratch;

// A table in bf16 is summed in f32 scratch and rounded once.
void backward_rounded(const Args& args, const Tile& tile) {
  const bool accumulate = args.ints[1] != 0;
  if (accumulate && !any_token(args, tile)) return;
  const Tensor& dtable = args.tensors[2];
  const Sums sums{scratch<TileScratch>(kTileRows * kTileColumns), tile.width(), 1};
  Bf16* table =
      elements<Bf16>(dtable) + tile.rows.begin * dtable.stride[0] + tile.columns.begin * dtable.stride[1];
  const auto row = [&](std::int64_t r) { return table + r * dtable.stride[0]; };
  const std::int64_t step = dtable.stride[1];
  wide([&] {
    for (std::int64_t r = 0; r < tile.height(); ++r) {
      if (!accumulate)
        std::fill_n(sums.at(r), tile.width(), 0.0f);
      else
        for (std::int64_t d = 0; d < tile.width(); ++d) sums.at(r)[d] = load(row(r) + d * step);
    }
    add_tokens<Bf16>(args, tile, sums);
    for (std::int64_t r = 0; r < tile.height(); ++r) {
      if (step == 1)
        for (std::int64_t d = 0; d < tile.width(); ++d) store(row(r) + d, sums.at(r)[d]);
      else
        for (std::int64_t d = 0; d < tile.width(); ++d) store(row(r) + d * step, sums.at(r)[d]);
    }
  });
}

void run_backward(const Args& args, std::uint32_t part) {
  const Tile tile = tile_of(args.tensors[2], part);
  if (args.tensors[2].dtype == MUSTER_BF16) {
    backward_rounded(args, tile);
    return;
  }
  dispatch_float(args.tensors[1].dtype,
                 [&]<class E>(std::type_identity<E>) { backward_in_place<E>(args, tile); });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 2> kRows{{
      {MUSTER_KERNEL_EMBEDDING_FORWARD, "embedding_forward", kForwardOperands, 1, 0, check_forward,
       parts_forward, launchers(on_host<run_forward>)},
      {MUSTER_KERNEL_EMBEDDING_BACKWARD, "embedding_backward", kBackwardOperands, 2, 0, check_backward,
       parts_backward, launchers(on_host<run_backward>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::embedding
