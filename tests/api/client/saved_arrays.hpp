// Arrays of ranks that are saved and loaded: a layout, memory, and values that tell where an element belongs.
#pragma once

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <muster/checkpoint.h>

namespace muster::test {

inline muster_layout_axis axis(const char* name, std::int32_t ranks, std::int32_t dim) {
  muster_layout_axis made = MUSTER_LAYOUT_AXIS_INIT;
  made.name = name;
  made.ranks = ranks;
  if (dim < 0) return made;
  made.placement = MUSTER_SHARD;
  made.dim = dim;
  return made;
}

// One rank's part of a tensor of f32.
class SavedArray {
 public:
  // `gap`: elements between two rows that belong to nobody.
  SavedArray(muster_session* session, std::string name, std::vector<std::int64_t> shape,
             const std::vector<muster_layout_axis>& axes, std::int32_t rank, std::int64_t gap = 0)
      : name_(std::move(name)), shape_(std::move(shape)) {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = static_cast<std::int32_t>(shape_.size());
    std::copy(shape_.begin(), shape_.end(), said.shape);
    said.axis_count = static_cast<std::uint32_t>(axes.size());
    std::copy(axes.begin(), axes.end(), said.axes);
    muster_layout* layout = nullptr;
    ok(muster_layout_create(session, &said, &layout));
    layout_.reset(layout);
    std::int64_t local[MUSTER_TENSOR_DIMS_MAX];
    ok(muster_layout_local_shape(layout, rank, local));
    std::int64_t elements = 1;
    view_.dtype = MUSTER_F32;
    view_.dims = said.dims;
    for (std::int32_t dim = said.dims; dim-- > 0;) {
      view_.size[dim] = local[dim];
      view_.stride[dim] = elements;
      elements = elements * local[dim] + (dim + 1 == said.dims && dim > 0 ? gap : 0);
    }
    void* address = nullptr;
    const auto bytes = static_cast<std::uint64_t>(elements + 1) * sizeof(float);
    ok(muster_buffer_alloc(session, bytes, &view_.buffer, &address));
    data_ = static_cast<float*>(address);
    memory_ = static_cast<std::size_t>(elements);
    std::size_t count = 0;
    ok(muster_layout_boxes(layout, rank, nullptr, 0, &count));
    boxes_.resize(count);
    ok(muster_layout_boxes(layout, rank, boxes_.data(), count, &count));
  }

  muster_checkpoint_tensor tensor() const { return {name_.c_str(), layout_.get(), view_}; }
  muster_tensor& view() { return view_; }
  void set(float value) { std::fill_n(data_, memory_, value); }
  float* data() { return data_; }

  // The value of each element is its place in the whole tensor, plus `base`.
  void fill(float base) {
    each([&](float& element, std::int64_t place) { element = base + static_cast<float>(place); });
  }
  // The number of elements that differ from those of fill().
  int wrong(float base) {
    int count = 0;
    each([&](float& element, std::int64_t place) { count += element != base + static_cast<float>(place); });
    return count;
  }

 private:
  void each(const std::function<void(float&, std::int64_t)>& body) {
    for (const muster_box& box : boxes_) {
      std::vector<std::int64_t> at(shape_.size());
      std::int64_t elements = 1;
      for (std::size_t dim = 0; dim < shape_.size(); ++dim) elements *= box.length[dim];
      for (std::int64_t i = 0; i < elements; ++i) {
        std::int64_t place = 0, own = 0;
        for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
          place = place * shape_[dim] + box.offset[dim] + at[dim];
          own += (box.at[dim] + at[dim]) * view_.stride[dim];
        }
        body(data_[own], place);
        for (std::size_t dim = shape_.size(); dim-- > 0;) {
          if (++at[dim] < box.length[dim]) break;
          at[dim] = 0;
        }
      }
    }
  }

  struct Destroy {
    void operator()(muster_layout* layout) const { muster_layout_destroy(layout); }
  };
  std::string name_;
  std::vector<std::int64_t> shape_;
  std::unique_ptr<muster_layout, Destroy> layout_;
  std::vector<muster_box> boxes_;
  muster_tensor view_{};
  float* data_ = nullptr;
  std::size_t memory_ = 0;
};

// One rank's view of the folder of a run.
class RunFolder {
 public:
  RunFolder(const Member& member, const std::string& folder, std::uint32_t keep = 0) {
    muster_checkpoints_options options = MUSTER_CHECKPOINTS_OPTIONS_INIT;
    options.folder = folder.c_str();
    options.group = member.group;
    options.keep = keep;
    ok(muster_checkpoints_open(member.session, &options, &handle));
  }
  ~RunFolder() { ok(muster_checkpoints_close(handle)); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  muster_status_t save(std::uint64_t step, std::vector<muster_checkpoint_tensor> tensors,
                       const std::string& user = {}, std::uint32_t flags = 0) {
    return muster_checkpoint_save(handle, options(step, tensors, user, flags));
  }
  muster_status_t save_async(std::uint64_t step, std::vector<muster_checkpoint_tensor> tensors,
                             const std::string& user = {}, std::uint32_t flags = 0) {
    return muster_checkpoint_save_async(handle, options(step, tensors, user, flags));
  }
  muster_status_t load(std::vector<muster_checkpoint_tensor> tensors, std::uint32_t flags = 0,
                       const char* name = nullptr) {
    muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
    said.tensors = tensors.data();
    said.tensor_count = tensors.size();
    said.flags = flags;
    said.name = name;
    return muster_checkpoint_load(handle, &said, &info);
  }

  muster_checkpoints* handle = nullptr;
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;

 private:
  const muster_checkpoint_save_options* options(std::uint64_t step,
                                                const std::vector<muster_checkpoint_tensor>& tensors,
                                                const std::string& user, std::uint32_t flags) {
    said_ = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
    said_.step = step;
    said_.flags = flags;
    said_.tensors = tensors.data();
    said_.tensor_count = tensors.size();
    said_.user = user.data();
    said_.user_bytes = user.size();
    return &said_;
  }
  muster_checkpoint_save_options said_ = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
};

}  // namespace muster::test
