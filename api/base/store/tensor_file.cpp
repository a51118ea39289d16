#include "api/base/store/tensor_file.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/checksum.hpp"
#include "api/base/named_path.hpp"
#include "api/base/store/disk_file.hpp"
#include "api/base/store/model_files.hpp"
#include "api/base/store/staged_folder.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

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

std::vector<std::string> names_of(const CheckpointRecord& record) {
  std::vector<std::string> names;
  for (const SavedTensor& tensor : record.tensors) names.push_back(tensor.name);
  return names;
}

// Copies each tensor's bytes, end to end behind `at`, and notes where they lie and their checksums.
Status copy_tensors(const TensorSource& source, std::vector<SavedTensor>& tensors, std::uint64_t& at,
                    DiskFile& out) {
  std::vector<std::byte> chunk(kChunkBytes);
  for (SavedTensor& tensor : tensors) {
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
  return {};
}

// A file may have been changed since its header was read.
Status copy_file(ModelFiles::File& file, std::uint64_t& at, DiskFile& out) {
  MUSTER_ASSIGN_OR_RETURN(const TensorSource source, TensorSource::open(file.path));
  const bool is_same =
      source.data_at == file.data_at && std::ranges::all_of(file.tensors, [&](const SavedTensor& tensor) {
        const SavedTensor* found = source.record.find(tensor.name);
        return found != nullptr && *found == tensor;
      });
  if (!is_same)
    return failure(Code::kCorrupt, "{} was changed while it was read; import it again", file.path);
  return copy_tensors(source, file.tensors, at, out);
}

// The future record of the checkpoint, without checksums and places.
CheckpointRecord planned(const ModelFiles& model, std::uint64_t step) {
  CheckpointRecord record;
  record.step = step;
  record.notes = model.notes;
  for (const ModelFiles::File& file : model.files)
    std::ranges::copy(file.tensors, std::back_inserter(record.tensors));
  std::ranges::sort(record.tensors, {}, &SavedTensor::name);
  return record;
}

// All files' tensors into one file of the checkpoint, file by file.
Status copy_model(ModelFiles& model, const StagedFolder& staged, CheckpointRecord& record) {
  const auto has_bytes = [](const SavedTensor& tensor) { return !tensor.boxes.empty(); };
  if (std::ranges::none_of(record.tensors, has_bytes)) return {};
  const std::string name = checkpoint::rank_file_name(0);
  MUSTER_ASSIGN_OR_RETURN(DiskFile out, DiskFile::create(staged.path() + "/" + name));
  std::uint64_t at = 0;
  record.tensors.clear();
  for (ModelFiles::File& file : model.files) {
    MUSTER_RETURN_IF_ERROR(copy_file(file, at, out));
    std::ranges::move(file.tensors, std::back_inserter(record.tensors));
  }
  std::ranges::sort(record.tensors, {}, &SavedTensor::name);
  record.files.push_back({name, at});
  MUSTER_RETURN_IF_ERROR(out.sync());
  return out.close();
}

}  // namespace

Status export_tensors(SavedFolder& saved, const std::string& file, const NameFilter& filter) {
  CheckpointRecord chosen = saved.record();
  std::erase_if(chosen.tensors, [](const SavedTensor& tensor) { return tensor.name.empty(); });
  MUSTER_RETURN_IF_ERROR(filter.check(names_of(chosen), saved.path()));
  std::erase_if(chosen.tensors, [&](const SavedTensor& tensor) { return !filter.takes(tensor.name); });
  for (const SavedTensor& tensor : chosen.tensors)
    MUSTER_RETURN_IF_ERROR(checkpoint::check_exported_name(tensor.name));
  std::error_code ignored;
  if (const std::string fault = fault_of_new_file(file); !fault.empty())
    return failure(Code::kNoResource, "{}", fault);
  if (std::filesystem::exists(file, ignored))
    return failure(Code::kDuplicate, "there is {} already; name another file, or remove it", file);
  const std::string header = checkpoint::safetensors_header(chosen);
  if (header.size() > checkpoint::kSafetensorsHeaderMax)
    return failure(Code::kUnsupported,
                   "the header of {} would have {} bytes; at most {} are possible: export fewer tensors",
                   file, header.size(), checkpoint::kSafetensorsHeaderMax);
  const std::string unfinished = checkpoint::staged_name(file, fresh_nonce());
  MUSTER_ASSIGN_OR_RETURN(DiskFile out, DiskFile::create(unfinished, file));
  Status status = write_tensors(saved, chosen, header, out);
  if (status.ok()) status = rename_to_new(unfinished, file);
  if (!status.ok()) std::filesystem::remove(unfinished, ignored);
  return status;
}

Result<Imported> import_tensors(std::span<const std::string> files, const std::string& folder,
                                const std::string& name, std::uint64_t step, const NameFilter& filter) {
  MUSTER_ASSIGN_OR_RETURN(ModelFiles model, ModelFiles::open(files, filter));
  CheckpointRecord record = planned(model, step);
  MUSTER_RETURN_IF_ERROR(checkpoint::check_size(record));
  MUSTER_ASSIGN_OR_RETURN(StagedFolder staged,
                          StagedFolder::make(folder, name, fresh_nonce(), StagedFolder::Existing::kRefuse));
  MUSTER_RETURN_IF_ERROR(copy_model(model, staged, record));
  MUSTER_RETURN_IF_ERROR(staged.commit(record));
  return Imported{record.tensors.size(), model.files.size(), record.bytes(), std::move(model.differences)};
}

}  // namespace muster::store
