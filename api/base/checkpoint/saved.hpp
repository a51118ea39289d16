// The contents of a checkpoint: tensors, the boxes in which they were saved, and where each box lies. Values
// alone.
#pragma once

#include "api/base/hash.hpp"
#include "api/base/layout/box.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::checkpoint {

// The bytes of a box under one checksum: to read a slice, a member need not read the whole box.
inline constexpr std::uint64_t kChunkBytes = 1 << 20;
inline constexpr std::size_t kBoxesMax = 1 << 16;  // of one tensor

// A block of a tensor, in row-major order without gaps.
struct SavedBox {
  Box box;
  std::size_t file = 0;       // its place in CheckpointRecord::files
  std::uint64_t at = 0;       // bytes of the file before it
  std::vector<Hash128> sums;  // of each kChunkBytes of it; the last chunk may be shorter
  friend bool operator==(const SavedBox&, const SavedBox&) = default;
};

struct SavedTensor {
  std::string name;  // empty: the user's state, which is bytes
  muster_dtype dtype = MUSTER_U8;
  std::size_t dims = 0;
  Index shape{};
  std::vector<SavedBox> boxes{};  // in rising order of their offsets
  std::span<const std::int64_t> extent() const { return std::span(shape).first(dims); }
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

// A whole checkpoint, as its metadata tells it.
struct CheckpointRecord {
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    friend bool operator==(const File&, const File&) = default;
  };

  // The free-text metadata of a file of tensors, such as its format: safetensors' __metadata__.
  using Notes = std::map<std::string, std::string>;

  std::uint64_t step = 0;
  Notes notes;  // of the files that it was imported from
  std::vector<File> files;
  std::vector<SavedTensor> tensors;  // in rising order of their names
  // Null if there is none.
  const SavedTensor* find(std::string_view name) const;
  std::uint64_t bytes() const;  // of all files
  friend bool operator==(const CheckpointRecord&, const CheckpointRecord&) = default;
};

// The tensor's bytes. Errors: kBadArgument (no dtype, more than 8 dims, a negative length, 2^63 bytes or
// more).
Result<std::uint64_t> bytes_of(const SavedTensor& tensor);
std::uint64_t bytes_of(const Box& box, muster_dtype dtype);  // a box of a tensor that bytes_of() passes
constexpr std::uint64_t chunks_of(std::uint64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

// Whether the boxes lie in the tensor, are not empty, do not overlap, and together are the whole tensor.
// Takes n log n steps for boxes that a mesh has cut. Errors: kBadArgument naming tensor and boxes; also for
// thousands of boxes that cannot be separated along the dims.
Status check_boxes(const SavedTensor& tensor);

}  // namespace muster::checkpoint
