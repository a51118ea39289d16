#include "api/base/store/saved_folder.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/checksum.hpp"
#include "api/base/dtype.hpp"
#include "api/base/named_path.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::store {

using checkpoint::kChunkBytes;
using checkpoint::SavedBox;
using checkpoint::SavedTensor;
using checkpoint::Slice;

Result<SavedFolder> SavedFolder::open(const std::string& path) {
  const std::string file = path + "/" + checkpoint::kRecordFile;
  auto text = read_text(file, checkpoint::kRecordBytesMax);
  if (!text)
    if (const std::string fault = fault_of_folder(path, checkpoint::kFolderText); !fault.empty())
      return fail(text.error().code(), "{}", fault);
  if (!text && text.error().code() == Code::kNotFound)
    return fail(Code::kNotFound, "{} is no checkpoint: it has no {}", path, checkpoint::kRecordFile);
  if (!text) return fail(std::move(text).error());
  auto record = checkpoint::record_of(*text);
  if (!record) return fail(record.error().code(), "{}: {}", file, record.error().message());
  const Hash128 digest = checkpoint::checksum(std::as_bytes(std::span(text->data(), text->size())));
  return SavedFolder(path, digest, *std::move(record));
}

Status SavedFolder::use_file(std::size_t file) {
  if (file_.valid() && file_index_ == file) return {};
  auto opened = DiskFile::read(path_ + "/" + record_.files[file].name);
  if (!opened && opened.error().code() == Code::kNotFound)  // the metadata are there, so it is a checkpoint
    return failure(Code::kCorrupt, "{}", opened.error().message());
  if (!opened) return std::move(opened).error();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t bytes, opened->bytes());
  if (bytes != record_.files[file].bytes)
    return failure(Code::kCorrupt, "{} has {} bytes, but the metadata say {}", opened->path(), bytes,
                   record_.files[file].bytes);
  file_ = *std::move(opened);
  file_index_ = file;
  sound_files_[file] = true;
  return {};
}

Status SavedFolder::check_files(const SavedTensor& tensor) {
  for (const SavedBox& saved : tensor.boxes) {
    if (sound_files_[saved.file]) continue;
    if (const Status status = use_file(saved.file); !status.ok())
      return failure(status.code(), "{}: {}", checkpoint::tensor_text(tensor.name), status.message());
  }
  return {};
}

// Leaves chunk `chunk` of the box in `chunk_`.
Status SavedFolder::load_chunk(const SavedTensor& tensor, const SavedBox& saved, std::uint64_t chunk,
                               const Pause& pause) {
  if (chunk_box_ == &saved && chunk_number_ == chunk) return {};
  MUSTER_RETURN_IF_ERROR(ask(pause));
  chunk_box_ = nullptr;
  if (Status status = use_file(saved.file); !status.ok())
    return failure(status.code(), "{}: {}", checkpoint::tensor_text(tensor.name), status.message());
  const std::uint64_t before = chunk * kChunkBytes;
  chunk_.resize(std::min(kChunkBytes, checkpoint::bytes_of(saved.box, tensor.dtype) - before));
  MUSTER_RETURN_IF_ERROR(file_.read_at(saved.at + before, chunk_));
  if (checkpoint::checksum(chunk_) != saved.sums[chunk])
    return failure(Code::kCorrupt, "{}: {} is damaged between bytes {} and {}: their checksum does not fit",
                   file_.path(), checkpoint::tensor_text(tensor.name), saved.at + before,
                   saved.at + before + chunk_.size());
  chunk_box_ = &saved;
  chunk_number_ = chunk;
  return {};
}

// Bytes [at, at + into.size()) of the box.
Status SavedFolder::copy(const SavedTensor& tensor, const SavedBox& saved, std::uint64_t at,
                         std::span<std::byte> into, const Pause& pause) {
  while (!into.empty()) {
    MUSTER_RETURN_IF_ERROR(load_chunk(tensor, saved, at / kChunkBytes, pause));
    const std::uint64_t inside = at % kChunkBytes;
    const std::size_t bytes = std::min<std::size_t>(into.size(), chunk_.size() - inside);
    std::memcpy(into.data(), chunk_.data() + inside, bytes);
    into = into.subspan(bytes);
    at += bytes;
  }
  return {};
}

Status SavedFolder::read(const SavedTensor& tensor, std::span<const Slice> slices, Target target,
                         const Pause& pause) {
  const std::size_t element = dtype_bytes(tensor.dtype);
  for (const Slice& slice : slices) {
    const SavedBox& saved = tensor.boxes[slice.box];
    const Index strides = checkpoint::dense_strides(tensor.dims, saved.box.length);
    const std::int64_t from = checkpoint::place_of(tensor.dims, slice.within, strides);
    const std::int64_t to = checkpoint::place_of(tensor.dims, slice.put, target.strides);
    Status status;
    checkpoint::each_run(tensor.dims, slice.part.length, strides, target.strides,
                         [&](std::int64_t taken, std::int64_t put, std::int64_t elements) {
                           std::byte* first = target.first + static_cast<std::size_t>(to + put) * element;
                           status =
                               copy(tensor, saved, static_cast<std::uint64_t>(from + taken) * element,
                                    std::span(first, static_cast<std::size_t>(elements) * element), pause);
                           return status.ok();
                         });
    MUSTER_RETURN_IF_ERROR(std::move(status));
  }
  return {};
}

Result<std::vector<std::byte>> SavedFolder::read_whole(const SavedTensor& tensor, const Pause& pause) {
  MUSTER_RETURN_IF_ERROR(check_files(tensor));
  const Box whole{tensor.dims, {}, tensor.shape};
  std::vector<std::byte> bytes(checkpoint::bytes_of(whole, tensor.dtype));
  const Layout::Piece piece{whole, {}};
  const std::vector<Slice> slices = checkpoint::plan_read(tensor, std::span(&piece, 1));
  MUSTER_RETURN_IF_ERROR(
      read(tensor, slices, {bytes.data(), checkpoint::dense_strides(tensor.dims, tensor.shape)}, pause));
  return bytes;
}

Status SavedFolder::verify(const Pause& pause) {
  for (const SavedTensor& tensor : record_.tensors)
    for (const SavedBox& saved : tensor.boxes)
      for (std::uint64_t chunk = 0; chunk < saved.sums.size(); ++chunk)
        MUSTER_RETURN_IF_ERROR(load_chunk(tensor, saved, chunk, pause));
  return {};
}

}  // namespace muster::store
