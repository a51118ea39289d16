#include "tests/bench/sharding/measurements.hpp"
#include "tests/bench/sharding/unit_set.hpp"

#include <iostream>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::bench::sharding {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr int kStepsBefore = 2;

enum class Kind : std::uint8_t { kEmbedding, kBlock, kNorm, kOutput };

// A module of the model, and where its parameters are.
struct Module {
  Kind kind;
  std::string name;
  std::vector<Shape> shapes;
  muster_unit unit = 0;
  std::uint32_t first = 0;  // of its parameters, in the unit
  std::uint32_t part = 0;   // of the unit
};

std::vector<Module> modules_of(const WrappingOptions& o) {
  std::vector<Module> modules;
  modules.push_back({Kind::kEmbedding, "embedding", {{"embedding", o.vocabulary, o.width}}});
  for (std::int64_t i = 0; i < o.blocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    modules.push_back({Kind::kBlock,
                       name,
                       {{name + ".query", o.width, o.width},
                        {name + ".key", o.key_width, o.width},
                        {name + ".value", o.key_width, o.width},
                        {name + ".output", o.width, o.width},
                        {name + ".gate", o.hidden, o.width},
                        {name + ".up", o.hidden, o.width},
                        {name + ".down", o.width, o.hidden},
                        {name + ".attention_norm", o.width, 0},
                        {name + ".mlp_norm", o.width, 0}}});
  }
  modules.push_back({Kind::kNorm, "final_norm", {{"final_norm", o.width, 0}}});
  modules.push_back({Kind::kOutput, "output", {{"output", o.vocabulary, o.width}}});
  return modules;
}

// The kernels of a model of these shapes. Their results mean nothing. They take the real time, and read and
// write whole parameters and whole gradients.
class Work {
 public:
  Work(Rank& rank, const WrappingOptions& options) : rank_(rank), options_(options) {
    const std::int64_t widest = std::max({options.vocabulary, options.hidden, options.width});
    const auto bytes = static_cast<std::uint64_t>(options.tokens * widest) * sizeof(float);
    in_ = rank.allocate(bytes).buffer;
    out_ = rank.allocate(bytes).buffer;
    back_ = rank.allocate(bytes).buffer;
    ids_ = rank.allocate(bytes).buffer;
    scale_ = rank.allocate(bytes).buffer;
  }

  void plan(const UnitSet& set, const Module& module) {
    std::vector<muster_plan> forward, backward;
    for (std::size_t i = 0; i < module.shapes.size(); ++i) {
      const std::uint32_t parameter = module.first + static_cast<std::uint32_t>(i);
      const muster_tensor whole = set.view(module.unit, parameter, MUSTER_UNIT_WHOLE);
      const muster_tensor gradient = set.view(module.unit, parameter, MUSTER_UNIT_WHOLE_GRADIENT);
      if (module.kind == Kind::kEmbedding) {
        const muster_tensor ids = muster_view1(ids_, 0, MUSTER_I32, options_.tokens);
        forward.push_back(rank_.plan(muster_embedding_forward(ids, whole, matrix(in_, options_.width), 0)));
        backward.push_back(
            rank_.plan(muster_embedding_backward(ids, matrix(in_, options_.width), gradient, 0, 0)));
      } else if (module.shapes[i].columns == 0) {
        plan_norm(whole, gradient, forward, backward);
      } else {
        const muster_tensor x = matrix(in_, module.shapes[i].columns);
        const muster_tensor y = matrix(out_, module.shapes[i].rows);
        forward.push_back(rank_.plan(muster_linear_forward(x, whole, muster_none(), y)));
        backward.push_back(
            rank_.plan(muster_linear_dgrad(y, whole, matrix(back_, module.shapes[i].columns), 0)));
        backward.push_back(rank_.plan(muster_linear_wgrad(y, x, gradient, muster_none(), 0)));
      }
    }
    forward_.push_back(forward);
    backward_.push_back(backward);
  }

  // Returns the point of the last kernel. The first one waits for `ready`.
  muster_point forward(std::size_t module, std::span<const muster_point> ready) {
    return start(forward_[module], ready);
  }
  muster_point backward(std::size_t module, std::span<const muster_point> ready) {
    return start(backward_[module], ready);
  }

 private:
  muster_tensor matrix(muster_buffer buffer, std::int64_t columns) const {
    return muster_view2(buffer, 0, MUSTER_F32, options_.tokens, columns);
  }
  void plan_norm(const muster_tensor& whole, const muster_tensor& gradient, std::vector<muster_plan>& forward,
                 std::vector<muster_plan>& backward) {
    const muster_tensor x = matrix(in_, options_.width);
    const muster_tensor y = matrix(out_, options_.width);
    const muster_tensor scale = muster_view1(scale_, 0, MUSTER_F32, options_.tokens);
    forward.push_back(rank_.plan(muster_rms_norm_forward(x, whole, y, scale, kEpsilon)));
    backward.push_back(rank_.plan(
        muster_rms_norm_backward(y, x, whole, scale, matrix(back_, options_.width), gradient, 0, 0)));
  }
  muster_point start(const std::vector<muster_plan>& plans, std::span<const muster_point> ready) {
    muster_point last = MUSTER_POINT_NONE;
    for (const muster_plan plan : plans)
      last = rank_.start(plan, MUSTER_LANE_COMPUTE, std::exchange(ready, {}));
    return last;
  }

  Rank& rank_;
  const WrappingOptions& options_;
  muster_buffer in_ = 0, out_ = 0, back_ = 0, ids_ = 0, scale_ = 0;
  std::vector<std::vector<muster_plan>> forward_, backward_;  // as modules
};

// The model, wrapped.
class Wrapped {
 public:
  Wrapped(Rank& rank, const WrappingOptions& options)
      : rank_(rank),
        set_(rank, "wrapped"),
        work_(rank, options),
        modules_(modules_of(options)),
        has_root_(options.wrapping == Wrapping::kRoot) {
    switch (options.wrapping) {
      case Wrapping::kRoot:
        wrap({0, modules_.size() - 2, modules_.size() - 1}, MUSTER_UNIT_ROOT, MUSTER_RESHARD_DEFAULT, 1);
        break;
      case Wrapping::kAlone:
      case Wrapping::kList:
        wrap({0}, MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE, MUSTER_RESHARD_DEFAULT, 1);
    }
    for (std::size_t i = 1; i + 2 < modules_.size(); ++i) wrap({i}, 0, MUSTER_RESHARD_DEFAULT, 1);
    if (options.wrapping == Wrapping::kAlone) {
      wrap({modules_.size() - 2}, 0, MUSTER_RESHARD_DEFAULT, 1);
      wrap({modules_.size() - 1}, 0, MUSTER_RESHARD_NEVER, 1);
    }
    if (options.wrapping == Wrapping::kList)
      wrap({modules_.size() - 2, modules_.size() - 1}, 0, MUSTER_RESHARD_NEVER, 2);
  }

  void step() {
    set_.begin_step();
    if (!planned_)
      for (const Module& module : modules_) work_.plan(set_, module);
    planned_ = true;
    for (std::size_t i = 0; i < modules_.size(); ++i) forward(i);
    muster_point last = MUSTER_POINT_NONE;
    for (std::size_t i = modules_.size(); i-- > 0;) last = backward(i);
    for (const muster_point point : set_.end_step(last)) rank_.wait(point);
  }

  muster_units_info info() const { return set_.info(); }
  std::uint64_t whole_in_blocks() const { return whole_in_blocks_; }

 private:
  void wrap(const std::vector<std::size_t>& members, std::uint32_t flags, std::int32_t after_forward,
            std::uint32_t parts) {
    std::vector<Shape> shapes;
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.flags = flags;
    options.after_forward = after_forward;
    options.parts = parts;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Module& module = modules_[members[i]];
      module.first = static_cast<std::uint32_t>(shapes.size());
      module.part = parts == 1 ? 0 : static_cast<std::uint32_t>(i);
      module.unit = units_;
      shapes.insert(shapes.end(), module.shapes.begin(), module.shapes.end());
    }
    set_.add(members.size() == 1 ? modules_[members.front()].name : (has_root_ ? "root" : "norm and output"),
             shapes, options);
    ++units_;
  }
  // The unit is in use already: it is the root, or another module of the list has begun.
  bool is_first(std::size_t module, bool backward) const {
    if (has_root_ && modules_[module].unit == 0) return module == (backward ? modules_.size() - 1 : 0);
    if (backward) return module + 1 == modules_.size() || modules_[module + 1].unit != modules_[module].unit;
    return module == 0 || modules_[module - 1].unit != modules_[module].unit;
  }
  // A root stays in use until the last of its modules. Each part of a list ends by itself.
  bool ends(std::size_t module, bool backward) const {
    if (has_root_ && modules_[module].unit == 0) return module == (backward ? 0 : modules_.size() - 1);
    return true;
  }
  void forward(std::size_t i) {
    const Module& module = modules_[i];
    muster_point ready = MUSTER_POINT_NONE;
    if (is_first(i, false)) ready = set_.begin_forward(module.unit);
    if (module.kind == Kind::kBlock) whole_in_blocks_ = std::max(whole_in_blocks_, set_.info().whole_bytes);
    const muster_point last = work_.forward(i, {&ready, 1});
    if (ends(i, false)) set_.end_forward(module.unit, module.part, last);
  }
  muster_point backward(std::size_t i) {
    const Module& module = modules_[i];
    std::array<muster_point, 2> ready{};
    if (is_first(i, true)) ready = set_.begin_backward(module.unit);
    const muster_point last = work_.backward(i, ready);
    if (ends(i, true)) set_.end_backward(module.unit, module.part, last);
    return last;
  }

  Rank& rank_;
  UnitSet set_;
  Work work_;
  std::vector<Module> modules_;
  bool has_root_;
  bool planned_ = false;
  muster_unit units_ = 0;
  std::uint64_t whole_in_blocks_ = 0;
};

}  // namespace

void measure_wrapping(Rank& rank, const WrappingOptions& options) {
  Wrapped model(rank, options);
  std::vector<double> seconds;
  for (int i = 0; i < kStepsBefore; ++i) model.step();
  const muster_units_info before = model.info();
  for (int i = 0; i < options.steps; ++i) {
    rank.meet();
    const auto begin = std::chrono::steady_clock::now();
    model.step();
    seconds.push_back(seconds_since(begin));
  }
  const double step_seconds = rank.largest(median(seconds));
  const muster_units_info info = model.info();
  if (rank.rank() != 0) return;
  const nlohmann::ordered_json row = {
      {"ranks", rank.ranks()},
      {"units", info.units},
      {"step_seconds", step_seconds},
      {"gathers_per_step", static_cast<double>(info.gathers - before.gathers) / options.steps},
      {"reductions_per_step", static_cast<double>(info.reductions - before.reductions) / options.steps},
      {"whole_bytes_peak", info.whole_bytes_peak},
      {"whole_bytes_in_blocks", model.whole_in_blocks()},
      {"place_bytes", info.place_bytes},
      {"gradient_bytes", info.gradient_bytes},
      {"shard_bytes", info.shard_bytes}};
  std::cout << row.dump() << std::endl;
}

}  // namespace muster::bench::sharding
