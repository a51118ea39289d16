#include "kernels/onednn/objects.hpp"

#include "api/base/assert.hpp"

namespace muster::kernels::onednn {

dnnl_engine_t engine() {
  static const dnnl_engine_t cpu = [] {
    dnnl_engine_t e = nullptr;
    MUSTER_ASSERT(dnnl_engine_create(&e, dnnl_cpu, 0) == dnnl_success);
    return e;
  }();
  return cpu;
}

DnnlOwned<dnnl_memory> memory_of(const dnnl_memory_desc_t& description) {
  dnnl_memory_t m = nullptr;
  MUSTER_ASSERT(dnnl_memory_create(&m, &description, engine(), DNNL_MEMORY_NONE) == dnnl_success);
  return DnnlOwned<dnnl_memory>(m);
}

DnnlOwned<dnnl_primitive_attr> attributes_of(bool accumulate) {
  dnnl_primitive_attr_t attributes = nullptr;
  MUSTER_ASSERT(dnnl_primitive_attr_create(&attributes) == dnnl_success);
  DnnlOwned<dnnl_primitive_attr> owned(attributes);
  MUSTER_ASSERT(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) ==
                dnnl_success);
  if (accumulate) {
    dnnl_post_ops_t operations = nullptr;
    MUSTER_ASSERT(dnnl_post_ops_create(&operations) == dnnl_success);
    const DnnlOwned<dnnl_post_ops> owned_operations(operations);
    MUSTER_ASSERT(dnnl_post_ops_append_sum(operations, 1.0f) == dnnl_success);
    MUSTER_ASSERT(dnnl_primitive_attr_set_post_ops(attributes, operations) == dnnl_success);
  }
  return owned;
}

DnnlThread::DnnlThread() {
  MUSTER_ASSERT(dnnl_stream_create(&stream_, engine(), dnnl_stream_default_flags) == dnnl_success);
}
DnnlThread::~DnnlThread() {
  (void)dnnl_stream_destroy(stream_);
}

void* DnnlThread::work(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  if (bytes + kAlignment > work_.size()) work_.resize(bytes + kAlignment);
  void* start = work_.data();
  std::size_t space = work_.size();
  return std::align(kAlignment, bytes, start, space);
}

}  // namespace muster::kernels::onednn
