// Checkpoints on disk that a test makes by itself.
#pragma once

#include "api/base/checksum.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/staged_folder.hpp"
#include "tests/api/base/checkpoint/planned.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {

// A tensor of f32 whose elements are `base` plus their places, over some layout.
struct MadeTensor {
  std::string name;
  Layout layout;
  float base = 0;
};

inline float value_of(const MadeTensor& tensor, const Index& at) {
  return tensor.base + static_cast<float>(checkpoint::place_of(
                           tensor.layout.dims(), at,
                           checkpoint::dense_strides(tensor.layout.dims(), tensor.layout.shape())));
}

inline std::vector<std::byte> bytes_of_box(const MadeTensor& tensor, const Box& box) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(box.elements()) * 4);
  Index at{};
  for (std::size_t i = 0; i < bytes.size() / 4; ++i) {
    Index whole = box.offset;
    for (std::size_t dim = 0; dim < box.dims; ++dim) whole[dim] += at[dim];
    const float value = value_of(tensor, whole);
    std::memcpy(bytes.data() + i * 4, &value, 4);
    for (std::size_t dim = box.dims; dim-- > 0;) {
      if (++at[dim] < box.length[dim]) break;
      at[dim] = 0;
    }
  }
  return bytes;
}

// Writes FOLDER/NAME as the members of the layouts would.
inline Status make_checkpoint(
    const std::string& folder, const std::string& name, std::uint64_t step,
    const std::vector<MadeTensor>& tensors,
    store::StagedFolder::Existing existing = store::StagedFolder::Existing::kRefuse) {
  std::vector<std::vector<checkpoint::OwnTensor>> members;
  for (const MadeTensor& tensor : tensors)
    for (std::int64_t rank = 0; rank < tensor.layout.ranks(); ++rank) {
      if (members.size() <= static_cast<std::size_t>(rank)) members.emplace_back();
      members[static_cast<std::size_t>(rank)].push_back(own_tensor(tensor.name, tensor.layout, rank));
    }
  auto plan = checkpoint::plan_write(members, step);
  if (!plan) return plan.error();
  auto staged = store::StagedFolder::make(folder, name, step + 1, existing);
  if (!staged) return staged.error();
  for (std::size_t i = 0; i < plan->writers.size(); ++i) {
    auto file = store::DiskFile::create(staged->path() + "/" + plan->record.files[i].name);
    if (!file) return file.error();
    for (const checkpoint::WritePlan::BoxIndex& place : checkpoint::boxes_of(*plan, plan->writers[i])) {
      checkpoint::SavedTensor& saved = plan->record.tensors[place.tensor];
      const auto made = std::ranges::find(tensors, saved.name, &MadeTensor::name);
      const std::vector<std::byte> bytes = bytes_of_box(*made, saved.boxes[place.box].box);
      for (std::size_t at = 0; at < bytes.size(); at += checkpoint::kChunkBytes)
        saved.boxes[place.box].sums.push_back(checkpoint::checksum(
            std::span(bytes).subspan(at, std::min<std::size_t>(checkpoint::kChunkBytes, bytes.size() - at))));
      if (const Status status = file->write(bytes); !status.ok()) return status;
    }
  }
  return staged->commit(plan->record);
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.text();
}

}  // namespace muster::test
