// SavedFolder: a complete checkpoint on disk, for reading. Nothing is given out before its checksum was
// right.
#pragma once

#include "api/base/checkpoint/read_plan.hpp"
#include "api/base/checkpoint/saved.hpp"
#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::store {

// Owns    the record, one open file at a time, one chunk.
// Thread  one at a time.
// Bound   kRecordBytesMax of metadata; one chunk of memory besides.
// Fails   kNotFound (no folder, or no metadata: then it is no checkpoint), kCorrupt naming file and tensor
// (also
//         where a file is missing), kVersion, kDenied, kNoResource.
class SavedFolder {
 public:
  // An array with strides in elements, of which `first` is the first byte.
  struct Target {
    std::byte* first = nullptr;
    Index strides{};
  };

  static Result<SavedFolder> open(const std::string& path);

  const checkpoint::CheckpointRecord& record() const { return record_; }
  const std::string& path() const { return path_; }
  Hash128 digest() const { return digest_; }  // of the metadata: equal for equal checkpoints

  // Reads the slices, of which each is in the plan of this tensor, into an array. Reads whole chunks, and
  // only those that have something of a slice. Pauses between two chunks, as do the others.
  Status read(const checkpoint::SavedTensor& tensor, std::span<const checkpoint::Slice> slices, Target target,
              const Pause& pause = Pause());
  // The whole tensor, row-major. Takes no memory for it before its files were there, with all their bytes.
  Result<std::vector<std::byte>> read_whole(const checkpoint::SavedTensor& tensor,
                                            const Pause& pause = Pause());
  // Reads every byte. The first thing that is wrong.
  Status verify(const Pause& pause = Pause());

 private:
  SavedFolder(std::string path, Hash128 digest, checkpoint::CheckpointRecord record)
      : path_(std::move(path)),
        digest_(digest),
        record_(std::move(record)),
        sound_files_(record_.files.size()) {}
  Status copy(const checkpoint::SavedTensor& tensor, const checkpoint::SavedBox& saved, std::uint64_t at,
              std::span<std::byte> into, const Pause& pause);
  Status load_chunk(const checkpoint::SavedTensor& tensor, const checkpoint::SavedBox& saved,
                    std::uint64_t chunk, const Pause& pause);
  Status use_file(std::size_t file);
  Status check_files(const checkpoint::SavedTensor& tensor);

  std::string path_;
  Hash128 digest_;
  checkpoint::CheckpointRecord record_;
  DiskFile file_;
  std::size_t file_index_ = 0;
  std::vector<bool> sound_files_;  // that were there, with all their bytes
  std::vector<std::byte> chunk_;
  const checkpoint::SavedBox* chunk_box_ = nullptr;  // whose chunk `chunk_` is
  std::uint64_t chunk_number_ = 0;
};

}  // namespace muster::store
