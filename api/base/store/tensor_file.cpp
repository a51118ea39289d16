#include "api/base/store/tensor_file.hpp"
#include "api/base/pattern.hpp"

#include "api/base/checkpoint/checksum.hpp"
#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/staged_folder.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

namespace muster::store {

using checkpoint::CheckpointRecord;
using checkpoint::kChunkBytes;
using checkpoint::SavedTensor;

namespace {

std::array<std::byte, 8> little_endian(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

std::uint64_t number_of(const std::array<std::byte, 8>& bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) number |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return number;
}

Status write_tensors(SavedFolder& saved, const CheckpointRecord& chosen, const std::string& header,
                     DiskFile& out) {
  MUSTER_RETURN_IF_ERROR(out.write(little_endian(header.size())));
  MUSTER_RETURN_IF_ERROR(out.write(std::as_bytes(std::span(header.data(), header.size()))));
  for (const SavedTensor& tensor : chosen.tensors) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            saved.read_whole(*saved.record().find(tensor.name)));
    MUSTER_RETURN_IF_ERROR(out.write(bytes));
  }
  MUSTER_RETURN_IF_ERROR(out.sync());
  return out.close();
}

struct TensorSource {
  DiskFile file;
  CheckpointRecord record;
  std::uint64_t data_at = 0;
};

Result<TensorSource> open_source(const std::string& path) {
  TensorSource source;
  // Caches of models have links to files that are named by their hash.
  MUSTER_ASSIGN_OR_RETURN(source.file, DiskFile::read(path, DiskFile::LastLink::kFollow));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t bytes, source.file.bytes());
  std::array<std::byte, 8> length{};
  MUSTER_RETURN_IF_ERROR(source.file.read_at(0, length));
  const std::uint64_t header = number_of(length);
  if (header > checkpoint::kSafetensorsHeaderMax || header > bytes - length.size())
    return fail(Code::kCorrupt, "{} is no safetensors file: its header would have {} bytes", path, header);
  std::string text(header, '\0');
  MUSTER_RETURN_IF_ERROR(
      source.file.read_at(length.size(), std::as_writable_bytes(std::span(text.data(), text.size()))));
  source.data_at = length.size() + header;
  auto record = checkpoint::safetensors_record(text, bytes - source.data_at);
  if (!record) return fail(record.error().code(), "{}: {}", path, record.error().message());
  source.record = *std::move(record);
  return source;
}

// Copies each tensor's bytes, end to end, and notes where they lie and their checksums.
Status copy_tensors(TensorSource& source, DiskFile& out) {
  std::vector<std::byte> chunk(kChunkBytes);
  std::uint64_t at = 0;
  for (SavedTensor& tensor : source.record.tensors) {
    for (checkpoint::SavedBox& box : tensor.boxes) {
      const std::uint64_t from = source.data_at + std::exchange(box.at, at);
      const std::uint64_t bytes = checkpoint::bytes_of(box.box, tensor.dtype);
      for (std::uint64_t done = 0; done < bytes; done += kChunkBytes) {
        const std::span piece(chunk.data(), std::min(kChunkBytes, bytes - done));
        MUSTER_RETURN_IF_ERROR(source.file.read_at(from + done, piece));
        box.sums.push_back(checkpoint::checksum(piece));
        MUSTER_RETURN_IF_ERROR(out.write(piece));
      }
      at += bytes;
    }
  }
  MUSTER_RETURN_IF_ERROR(out.sync());
  if (at > 0) source.record.files.push_back({checkpoint::rank_file_name(0), at});
  return out.close();
}

}  // namespace

bool NameFilter::takes(std::string_view name) const {
  const auto any = [&](std::span<const std::string> patterns) {
    return std::ranges::any_of(patterns, [&](const std::string& each) { return fits_pattern(each, name); });
  };
  return (only.empty() || any(only)) && !any(exclude);
}

Status export_tensors(SavedFolder& saved, const std::string& file, const NameFilter& filter) {
  CheckpointRecord chosen = saved.record();
  std::erase_if(chosen.tensors,
                [&](const SavedTensor& tensor) { return tensor.name.empty() || !filter.takes(tensor.name); });
  if (chosen.tensors.empty())
    return failure(Code::kNotFound, "{} has no tensor of such a name", saved.path());
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return failure(Code::kDuplicate, "there is {} already", file);
  const std::string header = checkpoint::safetensors_header(chosen);
  if (header.size() > checkpoint::kSafetensorsHeaderMax)
    return failure(Code::kUnsupported,
                   "the header of {} would have {} bytes; at most {} are possible: export fewer tensors",
                   file, header.size(), checkpoint::kSafetensorsHeaderMax);
  const std::string unfinished = checkpoint::staged_name(file, fresh_nonce());
  MUSTER_ASSIGN_OR_RETURN(DiskFile out, DiskFile::create(unfinished));
  Status status = write_tensors(saved, chosen, header, out);
  if (status.ok()) status = rename_to_new(unfinished, file);
  if (!status.ok()) std::filesystem::remove(unfinished, ignored);
  return status;
}

Status import_tensors(const std::string& file, const std::string& folder, const std::string& name,
                      std::uint64_t step) {
  MUSTER_ASSIGN_OR_RETURN(TensorSource source, open_source(file));
  source.record.step = step;
  MUSTER_RETURN_IF_ERROR(checkpoint::check_size(source.record));
  MUSTER_ASSIGN_OR_RETURN(StagedFolder staged,
                          StagedFolder::make(folder, name, fresh_nonce(), Existing::kRefuse));
  if (std::ranges::any_of(source.record.tensors, [](const SavedTensor& t) { return !t.boxes.empty(); })) {
    MUSTER_ASSIGN_OR_RETURN(DiskFile out,
                            DiskFile::create(staged.path() + "/" + checkpoint::rank_file_name(0)));
    MUSTER_RETURN_IF_ERROR(copy_tensors(source, out));
  }
  return staged.commit(source.record);
}

}  // namespace muster::store
