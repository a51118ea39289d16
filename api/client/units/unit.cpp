#include "api/client/units/unit.hpp"

#include "api/base/dtype.hpp"
#include "api/client/layout_handle.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <muster/kernels.h>

namespace muster::client {
namespace {

using shard::GatherFrom;
using shard::PointSet;
using shard::Reduced;
using shard::ShardedParameter;

bool is_float(muster_dtype dtype) {
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16 || dtype == MUSTER_F64;
}

bool is_scalable(muster_dtype dtype) {  // by muster_axpby
  return dtype == MUSTER_F32 || dtype == MUSTER_BF16 || dtype == MUSTER_F16;
}

std::uint64_t aligned(std::uint64_t at, std::uint64_t to) {
  return (at + to - 1) / to * to;
}

muster_tensor view_of(muster_buffer buffer, std::uint64_t offset_bytes, muster_dtype dtype,
                      const Index& shape, std::size_t dims) {
  muster_tensor view{};
  view.buffer = buffer;
  view.offset_bytes = offset_bytes;
  view.dtype = dtype;
  view.dims = static_cast<std::int32_t>(dims);
  std::int64_t stride = 1;
  for (std::size_t dim = dims; dim-- > 0;) {
    view.size[dim] = shape[dim];
    view.stride[dim] = stride;
    stride *= shape[dim];
  }
  return view;
}

void append(std::vector<muster_piece>& pieces, std::uint64_t offset, std::uint64_t count) {
  if (count == 0) return;
  if (!pieces.empty() && pieces.back().offset + pieces.back().count == offset)
    pieces.back().count += count;
  else
    pieces.push_back({offset, count});
}

// Blocks in the form of the C API. An empty block has one piece of nothing.
class Blocks {
 public:
  explicit Blocks(const std::vector<std::vector<muster_piece>>& pieces) {
    for (const std::vector<muster_piece>& block : pieces) {
      counts_.push_back(static_cast<std::uint32_t>(block.size()));
      pieces_.insert(pieces_.end(), block.begin(), block.end());
    }
    if (pieces_.empty()) {
      pieces_.push_back({0, 0});
      counts_.front() = 1;
    }
  }
  muster_blocks get() const { return {nullptr, nullptr, counts_.data(), pieces_.data()}; }

 private:
  std::vector<std::uint32_t> counts_;
  std::vector<muster_piece> pieces_;
};

}  // namespace

// ---- what a unit is ----------------------------------------------------------------------------

Result<std::unique_ptr<Unit>> Unit::make(muster_session* session, const muster_unit_options& options,
                                         bool accumulates) {
  std::unique_ptr<Unit> unit(new Unit(session));
  unit->name_ = options.name;
  unit->module_ = options.module == nullptr ? options.name : options.module;
  unit->root_ = (options.flags & MUSTER_UNIT_ROOT) != 0;
  unit->whole_in_backward_ = (options.flags & MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE) == 0;
  unit->parts_ = options.parts;
  unit->divisor_ = options.divisor;
  MUSTER_RETURN_IF_ERROR(unit->take_dims(options));
  MUSTER_RETURN_IF_ERROR(unit->take_parameters(options));
  unit->lay_out();
  MUSTER_RETURN_IF_ERROR(unit->take_gradients(options, accumulates));
  MUSTER_RETURN_IF_ERROR(unit->take_after_forward(options.after_forward));
  if (const Status allocated = unit->allocate(); !allocated.ok()) {
    (void)unit->release();
    return fail(allocated);
  }
  return unit;
}

Status Unit::take_dims(const muster_unit_options& options) {
  const auto dim = [&](const char* name, UnitDim& taken) -> Status {
    if (name == nullptr) return {};
    taken.name = name;
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session_, name, &taken.coordinate, &taken.ranks)));
    return status_of(muster_mesh_group(session_, name, &taken.group));
  };
  MUSTER_RETURN_IF_ERROR(dim(options.shard, shard_));
  return dim(options.replicate, replicate_);
}

// A rank's index in a layout: the row-major index of its coordinates along the axes.
Result<std::int64_t> Unit::rank_in(const Layout& layout) const {
  std::int64_t rank = 0;
  for (std::size_t i = 0; i < layout.axes().size(); ++i) {
    const MeshAxis& axis = layout.axes()[i];
    std::int32_t coordinate = 0;
    std::int32_t ranks = 0;
    if (axis.name.empty())
      return fail(Code::kBadArgument, "{} of its layout has no name; name the dim of the mesh",
                  layout.axis_text(i));
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session_, axis.name.c_str(), &coordinate, &ranks)));
    if (ranks != axis.ranks)
      return fail(Code::kBadArgument, "{} of its layout has {} ranks, but the mesh has {} there",
                  layout.axis_text(i), axis.ranks, ranks);
    rank = rank * axis.ranks + coordinate;
  }
  return rank;
}

Result<Unit::Parameter> Unit::parameter_of(const muster_unit_options& options, std::uint32_t i) const {
  const muster_parameter& said = options.parameters[i];
  if (said.name == nullptr || *said.name == '\0')
    return fail(Code::kBadArgument, "parameters[{}] has no name", i);
  if (said.layout == nullptr) return fail(Code::kBadArgument, "parameter \"{}\" has no layout", said.name);
  if (dtype_bytes(said.dtype) == 0)
    return fail(Code::kBadArgument, "parameter \"{}\" has dtype {}, which does not exist", said.name,
                said.dtype);
  if ((said.flags & ~std::uint32_t{MUSTER_PARAMETER_FROZEN}) != 0)
    return fail(Code::kBadArgument, "parameter \"{}\" has flags {}, of which some do not exist", said.name,
                said.flags);
  const bool trains = (said.flags & MUSTER_PARAMETER_FROZEN) == 0;
  if (trains && !is_float(said.dtype))
    return fail(Code::kBadArgument,
                "parameter \"{}\" has dtype {}, which has no gradients; give it MUSTER_PARAMETER_FROZEN",
                said.name, dtype_name(said.dtype));
  const Layout& layout = said.layout->layout;
  for (const MeshAxis& axis : layout.axes())
    if (axis.placement.kind == PlacementKind::kPartial)
      return fail(Code::kBadArgument,
                  "parameter \"{}\" is partial along {}; parameters are sharded or replicated", said.name,
                  axis.name);
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t rank, rank_in(layout));
  const auto along =
      std::ranges::find(layout.axes(), shard_.name, [](const MeshAxis& axis) { return axis.name; });
  const bool sharded = !shard_.name.empty() && along != layout.axes().end();
  if (!sharded && shard_.ranks > 1)
    return fail(Code::kBadArgument,
                "parameter \"{}\" has a layout without the axis \"{}\", over which its unit is sharded",
                said.name, shard_.name);
  auto places = ShardedParameter::make_whole(layout, rank);
  if (sharded) {
    auto made = ShardedParameter::make(layout, static_cast<std::size_t>(along - layout.axes().begin()), rank);
    if (!made) return fail(made.error().code(), "parameter \"{}\": {}", said.name, made.error().message());
    places = *std::move(made);
  }
  const bool casts = options.whole_dtype != 0 && is_float(said.dtype);
  return Parameter{.name = said.name,
                   .places = std::move(places),
                   .dtype = said.dtype,
                   .whole_dtype = casts ? options.whole_dtype : said.dtype,
                   .trains = trains};
}

Status Unit::take_parameters(const muster_unit_options& options) {
  for (std::uint32_t i = 0; i < options.parameter_count; ++i) {
    auto parameter = parameter_of(options, i);
    if (!parameter)
      return failure(parameter.error().code(), "unit \"{}\": {}", name_, parameter.error().message());
    if (has_parameter(parameter->name))
      return failure(Code::kBadArgument, "unit \"{}\" has two parameters \"{}\"", name_, parameter->name);
    parameters_.push_back(*std::move(parameter));
  }
  return {};
}

bool Unit::has_parameter(std::string_view name) const {
  return std::ranges::find(parameters_, name, &Parameter::name) != parameters_.end();
}

// Gives each parameter its place in the shards, their copy and the whole unit.
void Unit::lay_out() {
  order_.resize(parameters_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Parameter& p = parameters_[i];
    return std::tuple(-static_cast<std::int64_t>(dtype_bytes(p.whole_dtype)),
                      -static_cast<std::int64_t>(dtype_bytes(p.dtype)), p.whole_dtype, p.dtype, !p.trains);
  };
  std::ranges::stable_sort(order_, {}, key);
  for (const std::size_t i : order_) {
    Parameter& p = parameters_[i];
    const auto elements = static_cast<std::uint64_t>(p.places.shard_elements());
    shards_bytes_ = aligned(shards_bytes_, dtype_bytes(p.dtype));
    p.shard_at = shards_bytes_;
    p.copy_at = copy_bytes_;
    p.whole_at = whole_bytes_;
    shards_bytes_ += elements * dtype_bytes(p.dtype);
    copy_bytes_ += elements * dtype_bytes(p.whole_dtype);
    whole_bytes_ += static_cast<std::uint64_t>(p.places.whole_elements()) * dtype_bytes(p.whole_dtype);
    copies_ = copies_ || p.whole_dtype != p.dtype;
    element_ = element_ == 0 || element_ == p.whole_dtype ? p.whole_dtype : MUSTER_U8;
    if (p.trains) trainable_.push_back(i);
  }
}

Status Unit::take_gradients(const muster_unit_options& options, bool accumulates) {
  for (const std::size_t i : trainable_) {
    Parameter& p = parameters_[i];
    const muster_dtype first = parameters_[trainable_.front()].dtype;
    if (p.dtype != first)
      return failure(Code::kBadArgument,
                     "unit \"{}\": trainable parameters have one dtype, but \"{}\" has {} and \"{}\" has {}",
                     name_, parameters_[trainable_.front()].name, dtype_name(first), p.name,
                     dtype_name(p.dtype));
    p.gradient_at = gradient_elements_;
    p.whole_gradient_at = whole_gradient_elements_;
    gradient_elements_ += static_cast<std::uint64_t>(p.places.shard_elements());
    whole_gradient_elements_ += static_cast<std::uint64_t>(p.places.whole_elements());
    dtype_ = p.dtype;
  }
  reduce_dtype_ = options.reduce_dtype == 0 ? dtype_ : options.reduce_dtype;
  if (trainable_.empty()) return {};
  division_ = shard::gradient_division(reduce_dtype_, shard_.ranks, replicate_.ranks, divisor_);
  keeps_sums_ = accumulates || reduce_dtype_ != dtype_ || division_.after != 1;
  if (keeps_sums_ && !(is_scalable(dtype_) && is_scalable(reduce_dtype_)))
    return failure(
        Code::kUnsupported,
        "unit \"{}\": gradients in {} cannot become those of parameters in {}; both must be f32, bf16 or "
        "f16, or equal and reduced once a step",
        name_, dtype_name(reduce_dtype_), dtype_name(dtype_));
  return {};
}

Result<shard::AfterForward> Unit::after_forward(std::int32_t said) const {
  if (said == MUSTER_RESHARD_DEFAULT) said = root_ ? MUSTER_RESHARD_NEVER : MUSTER_RESHARD_ALWAYS;
  if (said == MUSTER_RESHARD_NEVER || said == 1) return shard::AfterForward::kKeep;
  if (said == MUSTER_RESHARD_ALWAYS || said == shard_.ranks) return shard::AfterForward::kFree;
  if (said < 1 || said > shard_.ranks || shard_.ranks % said != 0)
    return fail(
        Code::kBadArgument,
        "unit \"{}\": after_forward is {}; possible are MUSTER_RESHARD_*, and a number that divides the {} "
        "ranks over which it is sharded",
        name_, said, shard_.ranks);
  return shard::AfterForward::kSlice;
}

Status Unit::take_after_forward(std::int32_t said) {
  MUSTER_ASSIGN_OR_RETURN(const shard::AfterForward after, after_forward(said));
  after_forward_ = said;
  if (after != shard::AfterForward::kSlice) return {};
  for (const Parameter& p : parameters_)
    if (p.places.has_other_shards())
      return failure(
          Code::kUnsupported,
          "unit \"{}\": after_forward is {}, but another axis shards \"{}\" too (tensor parallelism); "
          "use MUSTER_RESHARD_ALWAYS or _NEVER",
          name_, said, p.name);
  slice_ranks_ = said;
  const auto each = static_cast<std::size_t>(shard_.ranks / said);
  const auto first = static_cast<std::size_t>(shard_.coordinate % said) * each;
  for (const Parameter& p : parameters_)
    for (std::size_t member = first; member < first + each; ++member)
      for (const shard::Run& run : p.places.runs()[member])
        slice_bytes_ += static_cast<std::uint64_t>(run.count) * dtype_bytes(p.whole_dtype);
  slice_bytes_ = std::max<std::uint64_t>(slice_bytes_, 1);
  return {};
}

Status Unit::allocate(muster_buffer& buffer, std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  own_bytes_ += bytes;
  return status_of(muster_buffer_alloc(session_, bytes, &buffer, nullptr));
}

Status Unit::allocate() {
  MUSTER_RETURN_IF_ERROR(allocate(shards_, shards_bytes_));
  if (copies_) MUSTER_RETURN_IF_ERROR(allocate(copy_, copy_bytes_));
  if (trainable_.empty()) return {};
  MUSTER_RETURN_IF_ERROR(allocate(gradients_, gradient_elements_ * dtype_bytes(dtype_)));
  if (!keeps_sums_) return {};
  MUSTER_RETURN_IF_ERROR(allocate(sums_, gradient_elements_ * dtype_bytes(reduce_dtype_)));
  if (replicate_.ranks > 1)
    MUSTER_RETURN_IF_ERROR(allocate(partial_, gradient_elements_ * dtype_bytes(reduce_dtype_)));
  return {};
}

shard::ScheduledUnit Unit::scheduled() const {
  shard::ScheduledUnit unit;
  unit.name = name_;
  unit.bytes = shard_.ranks > 1 ? whole_bytes_ : 0;
  unit.slice_bytes = slice_bytes_;
  // What is neither sharded nor summed up elsewhere is its own gradient.
  unit.gradient_bytes =
      shard_.ranks > 1 || keeps_sums_ ? whole_gradient_elements_ * dtype_bytes(reduce_dtype_) : 0;
  unit.parts = parts_;
  unit.after_forward = *after_forward(after_forward_);
  unit.root = root_;
  unit.whole_in_backward = whole_in_backward_;
  unit.trains = !trainable_.empty();
  return unit;
}

std::string Unit::description() const {
  const auto dtype = [](muster_dtype each) { return each == 0 ? "none" : std::string(dtype_name(each)); };
  std::string text = fmt::format(
      "unit \"{}\": module \"{}\", shard \"{}\" ({}), replicate \"{}\" ({}), reduced in {}, after_forward "
      "{}, parts "
      "{}, divisor {}, root {}, whole in backward {}\n",
      name_, module_, shard_.name, shard_.ranks, replicate_.name, replicate_.ranks, dtype(reduce_dtype_),
      after_forward_, parts_, divisor_, root_, whole_in_backward_);
  for (const Parameter& p : parameters_) {
    const Layout& layout = p.places.layout();
    text += fmt::format("parameter \"{}\" of unit \"{}\": {}{} as {}, shape {}", p.name, name_,
                        p.trains ? "" : "frozen ", dtype(p.dtype), dtype(p.whole_dtype),
                        to_text(std::span(layout.shape()).first(layout.dims())));
    for (const MeshAxis& axis : layout.axes())
      text +=
          fmt::format(", {} ({}) {}", axis.name, axis.ranks,
                      axis.placement.kind == PlacementKind::kShard
                          ? fmt::format("shards dim {} {}", axis.placement.dim, axis.placement.split.name())
                          : "replicates");
    text += '\n';
  }
  return text;
}

// ---- plans -------------------------------------------------------------------------------------

Status Unit::prepare(const UnitPlaces& places) {
  places_ = places;
  if (shard_.ranks == 1) places_.whole = {copies_ ? copy_ : shards_, 0};
  if (scheduled().gradient_bytes == 0) places_.gradients = {gradients_, 0};
  if (copies_) MUSTER_RETURN_IF_ERROR(plan_copies());
  prepared_ = true;
  if (shard_.ranks == 1) return {};
  MUSTER_ASSIGN_OR_RETURN(gather_, plan_gather(shard_.group, {copies_ ? copy_ : shards_, 0}, whole_pieces()));
  return slice_ranks_ == 0 ? Status() : plan_slices();
}

// Where the shard of each member lies in the whole unit, in elements of a gather.
Unit::Pieces Unit::whole_pieces() const {
  Pieces pieces(static_cast<std::size_t>(shard_.ranks));
  for (const std::size_t i : order_) {
    const Parameter& p = parameters_[i];
    const std::uint64_t bytes = dtype_bytes(p.whole_dtype);
    const std::uint64_t element = dtype_bytes(element_);
    for (std::size_t member = 0; member < pieces.size(); ++member)
      for (const shard::Run& run : p.places.runs()[member])
        append(pieces[member], (p.whole_at + static_cast<std::uint64_t>(run.offset) * bytes) / element,
               static_cast<std::uint64_t>(run.count) * bytes / element);
  }
  return pieces;
}

Result<muster_plan> Unit::plan_gather(muster_group group, muster_range source, const Pieces& pieces) {
  const Blocks blocks(pieces);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_GATHER;
  c.group = group;
  c.dtype = element_;
  c.source = source;
  c.target = places_.whole;
  c.target_blocks = blocks.get();
  c.site = name_.c_str();
  muster_plan plan = 0;
  MUSTER_RETURN_IF_ERROR(status_of(muster_plan_collective(session_, &c, &plan)));
  return keep(plan);
}

Status Unit::plan_copies() {
  for (std::size_t k = 0; k < order_.size();) {
    const Parameter& first = parameters_[order_[k]];
    std::int64_t elements = 0;
    for (; k < order_.size() && parameters_[order_[k]].dtype == first.dtype &&
           parameters_[order_[k]].whole_dtype == first.whole_dtype;
         ++k)
      elements += parameters_[order_[k]].places.shard_elements();
    if (elements == 0) continue;
    const muster_kernel kernel = muster_copy(muster_view1(shards_, first.shard_at, first.dtype, elements),
                                             muster_view1(copy_, first.copy_at, first.whole_dtype, elements));
    muster_plan plan = 0;
    MUSTER_RETURN_IF_ERROR(status_of(muster_plan_kernel(session_, &kernel, &plan)));
    copy_plans_.push_back(keep(plan));
  }
  return {};
}

// A rank's slice is the shards of several consecutive members. It is taken by a reduction over this rank
// alone, which takes its block in pieces.
Status Unit::plan_slices() {
  const Pieces shards = whole_pieces();
  Pieces slices(static_cast<std::size_t>(slice_ranks_));
  const std::size_t each = shards.size() / slices.size();
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const muster_piece& piece : shards[i]) append(slices[i / each], piece.offset, piece.count);
  const auto own = static_cast<std::size_t>(shard_.coordinate) % slices.size();
  MUSTER_ASSIGN_OR_RETURN(gather_slices_, plan_gather(places_.slice_group, places_.slice, slices));
  const Blocks block(Pieces{slices[own]});
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_REDUCE_SCATTER;
  c.group = MUSTER_GROUP_SELF;
  c.dtype = element_;
  c.redop = MUSTER_SUM;
  c.source = places_.whole;
  c.source_blocks = block.get();
  c.target = places_.slice;
  c.site = name_.c_str();
  MUSTER_RETURN_IF_ERROR(status_of(muster_plan_collective(session_, &c, &slice_)));
  keep(slice_);
  return {};
}

Result<muster_plan> Unit::plan(Step step, Segment segment, bool direct) {
  const auto key = std::tuple(step, segment, direct);
  if (const auto made = reduce_plans_.find(key); made != reduce_plans_.end()) return made->second;
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, make_plan(step, segment, direct));
  reduce_plans_.emplace(key, plan);
  return keep(plan);
}

// direct: the sums are the gradient.
Result<muster_plan> Unit::make_plan(Step step, Segment segment, bool direct) {
  const muster_tensor gradient = vector(gradients_, dtype_, segment);
  const muster_tensor sums = direct ? gradient : vector(sums_, reduce_dtype_, segment);
  const std::uint64_t whole_at = parameters_[trainable_[segment.first]].whole_gradient_at;
  const muster_range whole{places_.gradients.buffer,
                           places_.gradients.offset_bytes + whole_at * dtype_bytes(reduce_dtype_)};
  muster_plan plan = 0;
  if (step == Step::kScatter || step == Step::kReduce) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.dtype = reduce_dtype_;
    c.redop = step == Step::kScatter ? division_.scatter : division_.reduce;
    c.scale = c.redop == MUSTER_PREMUL_SUM ? division_.scale : 0;
    c.target = {sums.buffer, sums.offset_bytes};
    c.site = name_.c_str();
    Pieces pieces(static_cast<std::size_t>(shard_.ranks));
    for (std::size_t k = segment.first; k < segment.last; ++k) {
      const Parameter& p = parameters_[trainable_[k]];
      for (std::size_t member = 0; member < pieces.size(); ++member)
        for (const shard::Run& run : p.places.runs()[member])
          append(pieces[member], p.whole_gradient_at - whole_at + static_cast<std::uint64_t>(run.offset),
                 static_cast<std::uint64_t>(run.count));
    }
    const Blocks blocks(pieces);
    if (step == Step::kScatter) {
      c.op = MUSTER_REDUCE_SCATTER;
      c.group = shard_.group;
      c.source = whole;
      c.source_blocks = blocks.get();
    } else {
      c.op = MUSTER_ALL_REDUCE;
      c.group = replicate_.group;
      c.source = shard_.ranks > 1 ? c.target : whole;
      c.count = elements(segment);
    }
    MUSTER_RETURN_IF_ERROR(status_of(muster_plan_collective(session_, &c, &plan)));
    return plan;
  }
  // What is neither sharded nor replicated has its sums where its whole gradients are.
  const bool alone = shard_.ranks == 1 && replicate_.ranks == 1;
  const muster_tensor summed = alone ? muster_view1(whole.buffer, whole.offset_bytes, reduce_dtype_,
                                                    static_cast<std::int64_t>(elements(segment)))
                                     : sums;
  const muster_tensor partial = vector(partial_, reduce_dtype_, segment);
  const muster_kernel kernel = step == Step::kZero ? muster_fill(gradient, 0.0)
                               : step == Step::kFinish
                                   ? muster_axpby(1 / division_.after, summed, 0, gradient)
                               : step == Step::kAdd ? muster_axpby(1 / division_.after, summed, 1, gradient)
                               : step == Step::kKeepPartial ? muster_copy(sums, partial)
                                                            : muster_axpby(1, partial, 1, sums);
  MUSTER_RETURN_IF_ERROR(status_of(muster_plan_kernel(session_, &kernel, &plan)));
  return plan;
}

Status Unit::withdraw() {
  for (; !plans_.empty(); plans_.pop_back())
    MUSTER_RETURN_IF_ERROR(status_of(muster_plan_destroy(session_, plans_.back())));
  copy_plans_.clear();
  reduce_plans_.clear();
  gather_ = gather_slices_ = slice_ = 0;
  prepared_ = false;
  return {};
}

Status Unit::release() {
  MUSTER_RETURN_IF_ERROR(withdraw());
  for (muster_buffer* buffer : {&shards_, &copy_, &gradients_, &sums_, &partial_}) {
    if (*buffer == 0) continue;
    MUSTER_RETURN_IF_ERROR(status_of(muster_buffer_free(session_, *buffer)));
    *buffer = 0;
  }
  return {};
}

// ---- views -------------------------------------------------------------------------------------

std::uint64_t Unit::elements(Segment segment) const {
  std::uint64_t count = 0;
  for (std::size_t k = segment.first; k < segment.last; ++k)
    count += static_cast<std::uint64_t>(parameters_[trainable_[k]].places.shard_elements());
  return count;
}

// The shards of a segment in a buffer that has one element for each of the gradient shard.
muster_tensor Unit::vector(muster_buffer buffer, muster_dtype dtype, Segment segment) const {
  const std::uint64_t at = parameters_[trainable_[segment.first]].gradient_at;
  return muster_view1(buffer, at * dtype_bytes(dtype), dtype, static_cast<std::int64_t>(elements(segment)));
}

Result<muster_tensor> Unit::tensor(std::uint32_t parameter, std::int32_t which) const {
  if (parameter >= parameters_.size())
    return fail(Code::kBadArgument, "unit \"{}\" has parameters 0..{}, and no {}", name_,
                static_cast<std::int64_t>(parameters_.size()) - 1, parameter);
  const Parameter& p = parameters_[parameter];
  const std::size_t dims = p.places.layout().dims();
  if (which < MUSTER_UNIT_SHARD || which > MUSTER_UNIT_WHOLE_GRADIENT)
    return fail(Code::kBadArgument, "which is {}, which is none of MUSTER_UNIT_SHARD..WHOLE_GRADIENT", which);
  if (!p.trains && (which == MUSTER_UNIT_GRADIENT_SHARD || which == MUSTER_UNIT_WHOLE_GRADIENT))
    return fail(Code::kState, "parameter \"{}\" of unit \"{}\" is frozen and has no gradient", p.name, name_);
  if (!prepared_ && (which == MUSTER_UNIT_WHOLE || which == MUSTER_UNIT_WHOLE_GRADIENT))
    return fail(Code::kState,
                "unit \"{}\" has no place yet; whole parameters and gradients exist from the first "
                "muster_step_begin on",
                name_);
  switch (which) {
    case MUSTER_UNIT_SHARD:
      return view_of(shards_, p.shard_at, p.dtype, p.places.shard_shape(), dims);
    case MUSTER_UNIT_GRADIENT_SHARD:
      return view_of(gradients_, p.gradient_at * dtype_bytes(p.dtype), p.dtype, p.places.shard_shape(), dims);
    case MUSTER_UNIT_WHOLE:
      return view_of(places_.whole.buffer, places_.whole.offset_bytes + p.whole_at, p.whole_dtype,
                     p.places.whole_shape(), dims);
    default:
      return view_of(places_.gradients.buffer,
                     places_.gradients.offset_bytes + p.whole_gradient_at * dtype_bytes(reduce_dtype_),
                     reduce_dtype_, p.places.whole_shape(), dims);
  }
}

Result<std::vector<Layout::Piece>> Unit::pieces(std::uint32_t parameter, std::int32_t which) const {
  MUSTER_RETURN_IF_ERROR([&]() -> Status {
    const auto view = tensor(parameter, MUSTER_UNIT_SHARD);
    if (!view) return view.error();
    if (which == MUSTER_UNIT_SHARD || which == MUSTER_UNIT_WHOLE) return {};
    return failure(Code::kBadArgument, "which is {}; MUSTER_UNIT_SHARD and _WHOLE have blocks", which);
  }());
  const ShardedParameter& places = parameters_[parameter].places;
  return (which == MUSTER_UNIT_SHARD ? places.layout() : places.whole()).pieces(places.rank());
}

Status Unit::set_unused(std::uint32_t parameter) {
  const auto view = tensor(parameter, MUSTER_UNIT_GRADIENT_SHARD);
  if (!view) return view.error();
  parameters_[parameter].unused = true;
  return {};
}

// ---- operations --------------------------------------------------------------------------------

Result<muster_point> Unit::gather(UnitLanes& lanes, GatherFrom from, std::span<const muster_point> waits) {
  if (from == GatherFrom::kSlices) return lanes.start(gather_slices_, UnitLane::kGather, waits);
  std::vector<muster_point> before(waits.begin(), waits.end());
  if (from == GatherFrom::kChangedShards)
    for (const muster_plan copy : copy_plans_) {
      MUSTER_ASSIGN_OR_RETURN(const muster_point copied, lanes.start(copy, UnitLane::kGather, before));
      before = {copied};
    }
  if (gather_ == 0) return lanes.join(UnitLane::kGather, before);
  return lanes.start(gather_, UnitLane::kGather, before);
}

Result<muster_point> Unit::slice(UnitLanes& lanes, std::span<const muster_point> waits) {
  return lanes.start(slice_, UnitLane::kGather, waits);
}

std::vector<Unit::Segment> Unit::used_segments() const {
  std::vector<Segment> segments;
  for (std::size_t k = 0; k < trainable_.size(); ++k) {
    if (parameters_[trainable_[k]].unused) continue;
    if (!segments.empty() && segments.back().last == k)
      segments.back().last = k + 1;
    else
      segments.push_back({k, k + 1});
  }
  return segments;
}

Result<Reduced> Unit::reduce(UnitLanes& lanes, shard::UnitReduction how,
                             std::span<const muster_point> waits) {
  if ((how.add || how.add_partial || !how.all_reduce) && !keeps_sums_)
    return fail(Code::kState,
                "unit \"{}\" is reduced twice in a step; make the set with MUSTER_UNITS_ACCUMULATE", name_);
  PointSet before;
  before.add(waits);
  before.add(summed_);
  Reduced points;
  const std::vector<Segment> segments = used_segments();
  for (std::size_t k = 0; k < trainable_.size(); ++k) {
    if (!std::exchange(parameters_[trainable_[k]].unused, false) || how.add) continue;
    if (elements({k, k + 1}) == 0) continue;
    MUSTER_ASSIGN_OR_RETURN(const muster_plan zero, plan(Step::kZero, {k, k + 1}, true));
    MUSTER_ASSIGN_OR_RETURN(points.sent, lanes.start(zero, UnitLane::kReduce, before.points()));
  }
  for (const Segment segment : segments) {
    MUSTER_ASSIGN_OR_RETURN(points, reduce(lanes, how, segment, before.points()));
  }
  summed_ = points.ready == MUSTER_POINT_NONE ? points.sent : points.ready;
  return points;
}

// Scatter and reduce where there are several ranks, then make gradients of the sums.
Result<Reduced> Unit::reduce(UnitLanes& lanes, shard::UnitReduction how, Segment segment,
                             std::span<const muster_point> waits) {
  const bool direct = !keeps_sums_;
  std::vector<muster_point> before(waits.begin(), waits.end());
  const auto start = [&](Step step, UnitLane lane) -> Status {
    auto made = plan(step, segment, direct);
    if (!made) return std::move(made).error();
    auto point = lanes.start(*made, lane, before);
    if (!point) return std::move(point).error();
    before = {*point};
    return {};
  };
  Reduced points;
  if (shard_.ranks > 1) {
    MUSTER_RETURN_IF_ERROR(start(Step::kScatter, UnitLane::kReduce));
    points.sent = before.front();
  }
  if (how.add_partial) MUSTER_RETURN_IF_ERROR(start(Step::kAddPartial, UnitLane::kReduce));
  if (!how.all_reduce) {
    MUSTER_RETURN_IF_ERROR(start(Step::kKeepPartial, UnitLane::kReduce));
    return Reduced{points.sent, MUSTER_POINT_NONE};
  }
  // Whole gradients of all units are sent on one lane, so an all-reduce that reads them runs there.
  UnitLane last = UnitLane::kReduce;
  if (replicate_.ranks > 1) {
    if (shard_.ranks > 1) last = UnitLane::kAllReduce;
    MUSTER_RETURN_IF_ERROR(start(Step::kReduce, last));
  }
  if (!direct)
    MUSTER_RETURN_IF_ERROR(start(how.add ? Step::kAdd : Step::kFinish, last));
  else if (shard_.ranks == 1 && replicate_.ranks == 1) {
    MUSTER_ASSIGN_OR_RETURN(const muster_point joined, lanes.join(UnitLane::kReduce, before));
    before = {joined};
  }
  points.ready = before.front();
  if (shard_.ranks == 1) points.sent = points.ready;
  return points;
}

void Unit::reset() {
  summed_ = MUSTER_POINT_NONE;
  for (Parameter& parameter : parameters_) parameter.unused = false;
}

}  // namespace muster::client
