#include "kernels/onednn/convolution.hpp"

#include "kernels/onednn/objects.hpp"
#include "kernels/onednn/this_thread.hpp"

#include "api/base/assert.hpp"

#include <deque>
#include <span>
#include <utility>

namespace muster::kernels::onednn {
namespace {

// Problems that a thread remembers: a U-Net has some ten layers, each with interior and boundaries.
constexpr std::size_t kRememberedMax = 256;

struct Strided {
  dnnl_dims_t sizes{};
  dnnl_dims_t strides{};
  int dims = 0;
  void add(std::int64_t size, std::int64_t stride) {
    sizes[dims] = size;
    strides[dims++] = stride;
  }
  dnnl_memory_desc_t as_it_is() const {
    dnnl_memory_desc_t d;
    MUSTER_ASSERT(dnnl_memory_desc_init_by_strides(&d, dims, sizes, dnnl_f32, strides) == dnnl_success);
    return d;
  }
  // In the order that the library likes best.
  dnnl_memory_desc_t any() const {
    dnnl_memory_desc_t d;
    MUSTER_ASSERT(dnnl_memory_desc_init_by_tag(&d, dims, sizes, dnnl_f32, dnnl_format_tag_any) ==
                  dnnl_success);
    return d;
  }
};

// [1, channels, items...] of an array whose channels are last.
Strided of_array(std::size_t dims, const Convolution::Spatial& items, std::int64_t channels) {
  std::array<std::int64_t, 3> strides{};
  std::int64_t stride = channels;
  for (std::size_t d = dims; d-- > 0; stride *= items[d]) strides[d] = stride;
  Strided all;
  all.add(1, stride);
  all.add(channels, 1);
  for (std::size_t d = 0; d < dims; ++d) all.add(items[d], strides[d]);
  return all;
}

// [(groups,) outputs, channels, kernel...] of the weights.
Strided of_weights(const Convolution& c) {
  const std::int64_t inputs = c.channels / c.groups;
  std::array<std::int64_t, 3> strides{};
  std::int64_t stride = inputs;
  for (std::size_t d = c.dims; d-- > 0; stride *= c.kernel[d]) strides[d] = stride;
  Strided all;
  if (c.groups > 1) all.add(c.groups, c.outputs / c.groups * stride);
  all.add(c.outputs / c.groups, stride);
  all.add(inputs, 1);
  for (std::size_t d = 0; d < c.dims; ++d) all.add(c.kernel[d], strides[d]);
  return all;
}

DnnlOwned<dnnl_primitive> primitive_of(dnnl_primitive_desc_t descriptor) {
  dnnl_primitive_t primitive = nullptr;
  MUSTER_ASSERT(dnnl_primitive_create(&primitive, descriptor) == dnnl_success);
  return DnnlOwned<dnnl_primitive>(primitive);
}

// A generated convolution, with the change of its weights to the library's own order and back.
//
// Owns    the library's objects; the operands' memory is set for each run. Thread  one.
// Bound   -.  Fails  never: the library has code for every problem.
struct GeneratedConvolution {
  Convolution problem;
  Pass pass;
  DnnlOwned<dnnl_primitive> primitive, reorder;  // reorder: null if the weights are used as they are
  DnnlOwned<dnnl_memory> source, weights, given, bias, result, scratchpad, reorder_scratchpad;
  std::size_t weight_bytes = 0, scratchpad_bytes = 0, reorder_bytes = 0;

  GeneratedConvolution(const Convolution& c, Pass which) : problem(c), pass(which) {
    const dnnl_memory_desc_t x = of_array(c.dims, c.source, c.channels).as_it_is();
    const dnnl_memory_desc_t y = of_array(c.dims, c.result, c.outputs).as_it_is();
    const dnnl_memory_desc_t w = of_weights(c).any(), w_given = of_weights(c).as_it_is();
    Strided outputs;
    outputs.add(c.outputs, 1);
    const dnnl_memory_desc_t b = outputs.as_it_is();
    dnnl_dims_t strides{}, dilates{}, before{}, after{};
    for (std::size_t d = 0; d < c.dims; ++d) {
      strides[d] = c.stride[d];
      dilates[d] = c.dilation[d] - 1;
      before[d] = c.before[d];
      after[d] = c.after[d];
    }
    dnnl_convolution_desc_t operation;
    dnnl_status_t made = dnnl_success;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    if (pass == Pass::kForward)
      made = dnnl_dilated_convolution_forward_desc_init(&operation, dnnl_forward_inference, direct, &x, &w,
                                                        c.has_bias ? &b : nullptr, &y, strides, dilates,
                                                        before, after);
    else if (pass == Pass::kBack)
      made = dnnl_dilated_convolution_backward_data_desc_init(&operation, direct, &x, &w, &y, strides,
                                                              dilates, before, after);
    else
      made = dnnl_dilated_convolution_backward_weights_desc_init(&operation, direct, &x, &w, nullptr, &y,
                                                                 strides, dilates, before, after);
    MUSTER_ASSERT(made == dnnl_success);
    // A backward pass needs the forward one that it is of, as a hint.
    DnnlOwned<dnnl_primitive_desc> hint;
    if (pass != Pass::kForward) {
      dnnl_convolution_desc_t forward;
      MUSTER_ASSERT(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training, direct, &x,
                                                               &w, nullptr, &y, strides, dilates, before,
                                                               after) == dnnl_success);
      dnnl_primitive_desc_t descriptor = nullptr;
      MUSTER_ASSERT(dnnl_primitive_desc_create(&descriptor, &forward, nullptr, engine(), nullptr) ==
                    dnnl_success);
      hint.reset(descriptor);
    }
    const DnnlOwned<dnnl_primitive_attr> attributes = attributes_of(false);
    dnnl_primitive_desc_t created = nullptr;
    MUSTER_ASSERT(dnnl_primitive_desc_create(&created, &operation, attributes.get(), engine(), hint.get()) ==
                  dnnl_success);
    const DnnlOwned<dnnl_primitive_desc> descriptor(created);
    primitive = primitive_of(created);
    const dnnl_memory_desc_t& w_used = *dnnl_primitive_desc_query_md(
        created, pass == Pass::kWeigh ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    source = memory_of(x);
    result = memory_of(y);
    weights = memory_of(w_used);
    given = memory_of(w_given);
    if (c.has_bias) bias = memory_of(b);
    const dnnl_memory_desc_t& work = *dnnl_primitive_desc_query_md(created, dnnl_query_scratchpad_md, 0);
    scratchpad = memory_of(work);
    scratchpad_bytes = dnnl_memory_desc_get_size(&work);
    weight_bytes = dnnl_memory_desc_get_size(&w_used);
    if (dnnl_memory_desc_equal(&w_used, &w_given) != 0) return;
    dnnl_primitive_desc_t change = nullptr;
    const bool back = pass == Pass::kWeigh;
    MUSTER_ASSERT(dnnl_reorder_primitive_desc_create(&change, back ? &w_used : &w_given, engine(),
                                                     back ? &w_given : &w_used, engine(),
                                                     attributes.get()) == dnnl_success);
    const DnnlOwned<dnnl_primitive_desc> owned(change);
    reorder = primitive_of(change);
    const dnnl_memory_desc_t& room = *dnnl_primitive_desc_query_md(change, dnnl_query_scratchpad_md, 0);
    reorder_scratchpad = memory_of(room);
    reorder_bytes = dnnl_memory_desc_get_size(&room);
  }
};

// The convolutions that a thread used last.
//
// Owns    them, and memory for weights in the library's order. Thread  the one that it belongs to.
// Bound   kRememberedMax; the oldest makes room.  Fails  never.
class ConvolutionCache {
 public:
  GeneratedConvolution& find(const Convolution& problem, Pass pass) {
    for (GeneratedConvolution& each : all_)
      if (each.pass == pass && each.problem == problem) return each;
    if (all_.size() == kRememberedMax) all_.pop_front();
    return all_.emplace_back(problem, pass);
  }
  DnnlThread& thread() { return thread_; }
  float* weights(std::size_t bytes) { return static_cast<float*>(weights_.work(bytes)); }

 private:
  DnnlThread thread_, weights_;
  std::deque<GeneratedConvolution> all_;
};

void set(const DnnlOwned<dnnl_memory>& memory, const void* address) {
  MUSTER_ASSERT(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(address)) == dnnl_success);
}

void execute(const DnnlOwned<dnnl_primitive>& primitive, DnnlThread& thread,
             std::span<const dnnl_exec_arg_t> args) {
  MUSTER_ASSERT(dnnl_primitive_execute(primitive.get(), thread.stream(), static_cast<int>(args.size()),
                                       args.data()) == dnnl_success);
  MUSTER_ASSERT(dnnl_stream_wait(thread.stream()) == dnnl_success);
}

ConvolutionCache& remembered() {
  stay_on_this_thread();
  thread_local ConvolutionCache cache;
  return cache;
}

void reorder(GeneratedConvolution& g, ConvolutionCache& cache, const DnnlOwned<dnnl_memory>& from,
             const DnnlOwned<dnnl_memory>& to) {
  set(g.reorder_scratchpad, cache.thread().work(g.reorder_bytes));
  const std::array<dnnl_exec_arg_t, 3> args{{{DNNL_ARG_FROM, from.get()},
                                             {DNNL_ARG_TO, to.get()},
                                             {DNNL_ARG_SCRATCHPAD, g.reorder_scratchpad.get()}}};
  execute(g.reorder, cache.thread(), args);
}

// The weights as the primitive takes them.
void use_weights(GeneratedConvolution& g, ConvolutionCache& cache, const float* weights) {
  set(g.given, weights);
  set(g.weights, g.reorder == nullptr ? weights : cache.weights(g.weight_bytes));
  if (g.reorder != nullptr) reorder(g, cache, g.given, g.weights);
}

}  // namespace

// The library keeps the code of the primitives that were made last, by the number of the thread's threads
// too.
void prepare(const Convolution& c, Pass pass) {
  stay_on_this_thread();
  static_cast<void>(GeneratedConvolution(c, pass));
}

void convolve(const Convolution& c, const float* source, const float* weights, const float* bias,
              float* result) {
  ConvolutionCache& cache = remembered();
  GeneratedConvolution& g = cache.find(c, Pass::kForward);
  use_weights(g, cache, weights);
  set(g.source, source);
  set(g.result, result);
  if (c.has_bias) set(g.bias, bias);
  set(g.scratchpad, cache.thread().work(g.scratchpad_bytes));
  const std::array<dnnl_exec_arg_t, 5> args{{{DNNL_ARG_SRC, g.source.get()},
                                             {DNNL_ARG_WEIGHTS, g.weights.get()},
                                             {DNNL_ARG_DST, g.result.get()},
                                             {DNNL_ARG_SCRATCHPAD, g.scratchpad.get()},
                                             {DNNL_ARG_BIAS, g.bias.get()}}};
  execute(g.primitive, cache.thread(), std::span(args).first(c.has_bias ? 5 : 4));
}

void convolve_back(const Convolution& c, const float* gradients, const float* weights,
                   float* source_gradients) {
  ConvolutionCache& cache = remembered();
  GeneratedConvolution& g = cache.find(c, Pass::kBack);
  use_weights(g, cache, weights);
  set(g.source, source_gradients);
  set(g.result, gradients);
  set(g.scratchpad, cache.thread().work(g.scratchpad_bytes));
  const std::array<dnnl_exec_arg_t, 4> args{{{DNNL_ARG_DIFF_DST, g.result.get()},
                                             {DNNL_ARG_WEIGHTS, g.weights.get()},
                                             {DNNL_ARG_DIFF_SRC, g.source.get()},
                                             {DNNL_ARG_SCRATCHPAD, g.scratchpad.get()}}};
  execute(g.primitive, cache.thread(), args);
}

void weigh(const Convolution& c, const float* source, const float* gradients, float* weight_gradients) {
  ConvolutionCache& cache = remembered();
  GeneratedConvolution& g = cache.find(c, Pass::kWeigh);
  set(g.source, source);
  set(g.result, gradients);
  set(g.given, weight_gradients);
  set(g.weights, g.reorder == nullptr ? weight_gradients : cache.weights(g.weight_bytes));
  set(g.scratchpad, cache.thread().work(g.scratchpad_bytes));
  const std::array<dnnl_exec_arg_t, 4> args{{{DNNL_ARG_SRC, g.source.get()},
                                             {DNNL_ARG_DIFF_DST, g.result.get()},
                                             {DNNL_ARG_DIFF_WEIGHTS, g.weights.get()},
                                             {DNNL_ARG_SCRATCHPAD, g.scratchpad.get()}}};
  execute(g.primitive, cache.thread(), args);
  if (g.reorder != nullptr) reorder(g, cache, g.weights, g.given);
}

}  // namespace muster::kernels::onednn
