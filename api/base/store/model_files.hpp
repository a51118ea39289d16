// ModelFiles: the safetensors files of one model, with the contents of their headers, checked against each
// other.
//
// A model is one file, or several. Several are named one by one, by their index, or by the folder that holds
// the index. With an index, only the files with a wanted tensor are read.
#pragma once

#include "api/base/checkpoint/saved.hpp"
#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/name_filter.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::store {

// An open file and its header.
struct TensorSource {
  DiskFile file;
  checkpoint::CheckpointRecord record;  // with its step 0
  std::uint64_t data_at = 0;            // bytes of the file before those of its tensors
  // Errors: kCorrupt, kUnsupported, kNotFound, kDenied.
  static Result<TensorSource> open(const std::string& path);
};

struct ModelFiles {
  struct File {
    std::string path;
    std::uint64_t data_at = 0;
    std::vector<checkpoint::SavedTensor> tensors;  // those that the filter takes
  };

  std::vector<File> files;
  checkpoint::CheckpointRecord::Notes notes;  // of all files; of those that differ, the first file's
  std::vector<std::string> differences;       // a sentence for each note of which files differ, at most 8

  // `paths`: one file, index or folder, or several files. No file stays open. Errors: kBadArgument (paths
  // that do not go together), kNotFound (a file, a pattern), kCorrupt (a file, or files and index that do not
  // fit each other), kUnsupported (a dtype; too many notes).
  static Result<ModelFiles> open(std::span<const std::string> paths, const NameFilter& filter);
};

}  // namespace muster::store
