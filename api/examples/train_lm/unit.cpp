#include "api/examples/train_lm/unit.hpp"

#include "api/examples/train_lm/random.hpp"

#include <algorithm>
#include <utility>

namespace train_lm {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kAdamEpsilon = 1e-8;
constexpr double kWeightDecay = 0.1;  // of matrices; norms do not decay

muster_tensor run_of(const Buffer& buffer, muster_dtype dtype, std::int64_t begin, std::int64_t end) {
  const std::uint64_t offset = static_cast<std::uint64_t>(begin) * muster_dtype_bytes(dtype);
  return muster_view1(buffer.handle, offset, dtype, end - begin);
}

}  // namespace

Unit::Unit(Runtime& runtime, const Layout& layout, std::vector<Parameter> parameters, std::size_t index,
           Workspace& workspace, muster_dtype dtype)
    : dp_replicate_(layout.dp_replicate),
      dp_shard_(layout.dp_shard),
      tp_(layout.tp),
      parameters_(std::move(parameters)),
      layout_(parameters_, layout),
      index_(index),
      workspace_(workspace),
      dtype_(dtype) {
  const auto elements = static_cast<std::uint64_t>(std::max<std::int64_t>(1, layout_.shard_elements));
  for (Buffer* buffer : {&master_, &gradient_, &first_moment_, &second_moment_})
    *buffer = runtime.allocate(elements * sizeof(float));
  if (dtype_ != MUSTER_F32) low_ = runtime.allocate(elements * muster_dtype_bytes(dtype_));
}

void Unit::initialise(std::uint64_t seed) {
  const std::span<float> master = master_.as<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const Box& box = layout_.places[i].owned;
    const CounterRandom random(seed, parameter.name);
    std::size_t at = static_cast<std::size_t>(layout_.places[i].shard_offset);
    for (std::int64_t row = box.rows.begin; row < box.rows.begin + box.rows.count; ++row)
      for (std::int64_t column = box.columns.begin; column < box.columns.begin + box.columns.count;
           ++column) {
        const auto position = static_cast<std::uint64_t>(row * parameter.columns + column);
        master[at++] =
            parameter.is_norm() ? 1.0F : static_cast<float>(parameter.deviation * random.normal(position));
      }
  }
}

muster_tensor Unit::rows_of(const Buffer& buffer, muster_dtype dtype, std::size_t first,
                            std::size_t count) const {
  const Place& place = layout_.places[first];
  std::int64_t rows = 0;
  for (std::size_t i = first; i < first + count; ++i) rows += layout_.places[i].gathered.rows.count;
  const std::uint64_t offset = static_cast<std::uint64_t>(place.gathered_offset) * muster_dtype_bytes(dtype);
  if (parameters_[first].is_norm()) return muster_view1(buffer.handle, offset, dtype, rows);
  return muster_view2(buffer.handle, offset, dtype, rows, place.gathered.columns.count);
}

muster_tensor Unit::weight(std::size_t first, std::size_t count) const {
  return rows_of(sharded() ? workspace_.place(index_).gathered : rounded(), dtype_, first, count);
}

muster_tensor Unit::gradient(std::size_t first, std::size_t count) const {
  return rows_of(sharded() ? workspace_.outbox(index_).gradients : gradient_, MUSTER_F32, first, count);
}

muster_tensor Unit::shard(const Buffer& buffer, muster_dtype dtype) const {
  return run_of(buffer, dtype, 0, layout_.shard_elements);
}

void Unit::prefetch(Program& program) {
  if (!sharded() || !workspace_.take(index_)) return;
  Workspace::Place& place = workspace_.place(index_);
  place.arrived = program.collective(
      MUSTER_LANE_GATHER,
      all_gather(dp_shard_.group, shard(rounded(), dtype_), {place.gathered.handle, 0}, layout_.blocks()));
}

void Unit::unshard(Program& program) {
  prefetch(program);
  if (sharded()) program.join(workspace_.place(index_).arrived);
}

void Unit::begin_gradients(Program& program) {
  if (sharded()) program.join(workspace_.outbox(index_).sent);
}

void Unit::reduce(Program& program) {
  Mark scattered;
  if (sharded()) {
    Workspace::Outbox& outbox = workspace_.outbox(index_);
    scattered = program.collective(MUSTER_LANE_REDUCE,
                                   reduce_scatter_average(dp_shard_.group, {outbox.gradients.handle, 0},
                                                          layout_.blocks(), shard(gradient_, MUSTER_F32)));
    outbox.sent = scattered;
  }
  reduced_ = program.collective(MUSTER_LANE_ALLREDUCE,
                                all_reduce(dp_replicate_.group, MUSTER_AVG, shard(gradient_, MUSTER_F32)),
                                scattered);
}

void Unit::square_sum(Program& program, const muster_tensor& sum, bool first) {
  program.kernel(
      muster_sum_squares(run_of(gradient_, MUSTER_F32, 0, layout_.matrix_elements), sum, 1.0, first ? 0 : 1));
  // All tp ranks have the same norm weights; one of them counts.
  if (tp_.coordinate == 0 && layout_.matrix_elements != layout_.shard_elements)
    program.kernel(muster_sum_squares(
        run_of(gradient_, MUSTER_F32, layout_.matrix_elements, layout_.shard_elements), sum, 1.0, 1));
}

void Unit::update(Program& program, const muster_tensor& state, double learning_rate) {
  const auto adamw = [&](std::int64_t begin, std::int64_t end, double decay) {
    const auto part = [&](const Buffer& buffer) { return run_of(buffer, MUSTER_F32, begin, end); };
    program.kernel(muster_adamw(part(master_), part(gradient_), part(first_moment_), part(second_moment_),
                                state, {learning_rate, kBeta1, kBeta2, kAdamEpsilon, decay}));
  };
  adamw(0, layout_.matrix_elements, kWeightDecay);
  if (layout_.matrix_elements != layout_.shard_elements)
    adamw(layout_.matrix_elements, layout_.shard_elements, 0.0);
  round_weights(program);
}

void Unit::round_weights(Program& program) {
  if (dtype_ != MUSTER_F32) program.kernel(muster_copy(shard(master_, MUSTER_F32), shard(low_, dtype_)));
}

}  // namespace train_lm
