// Objects of oneDNN that own themselves, and its engine and stream of this thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <dnnl.h>

namespace muster::kernels::onednn {

struct DnnlDestroyed {
  void operator()(dnnl_memory_t memory) const { (void)dnnl_memory_destroy(memory); }
  void operator()(dnnl_primitive_t primitive) const { (void)dnnl_primitive_destroy(primitive); }
  void operator()(dnnl_primitive_desc_t descriptor) const { (void)dnnl_primitive_desc_destroy(descriptor); }
  void operator()(dnnl_primitive_attr_t attributes) const { (void)dnnl_primitive_attr_destroy(attributes); }
  void operator()(dnnl_post_ops_t operations) const { (void)dnnl_post_ops_destroy(operations); }
};
template<class Object>
using DnnlOwned = std::unique_ptr<Object, DnnlDestroyed>;

// The library's processor; the same object for all threads.
dnnl_engine_t engine();
// Memory whose address is set for each run.
DnnlOwned<dnnl_memory> memory_of(const dnnl_memory_desc_t& description);
// The work memory of a primitive is ours, so that a run allocates nothing. `accumulate`: the result is added
// to the destination, before the only rounding.
DnnlOwned<dnnl_primitive_attr> attributes_of(bool accumulate);

// A thread's stream, and work memory for its primitives.
//
// Owns    both. Thread  the one that it belongs to.
// Bound   the largest work memory that was asked for.  Fails  never.
class DnnlThread {
 public:
  DnnlThread();
  ~DnnlThread();
  DnnlThread(const DnnlThread&) = delete;
  DnnlThread& operator=(const DnnlThread&) = delete;

  dnnl_stream_t stream() const { return stream_; }
  // 64-byte aligned, which is faster for the generated code. Valid until the next call.
  void* work(std::size_t bytes);

 private:
  dnnl_stream_t stream_ = nullptr;
  std::vector<std::byte> work_;
};

}  // namespace muster::kernels::onednn
