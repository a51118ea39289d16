// Any text as the metadata of a checkpoint, or any numbers in metadata that are else as they should be; any
// text as the header of a safetensors file, or as the index of several. The checksum fits, because an
// attacker can compute it too.
//
// Accepted metadata keeps within its files and tensors, has each element once, and can be read in slices. It
// is written as it was read. Each refusal has a text.
#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/read_plan.hpp"
#include "api/base/checksum.hpp"
#include "api/base/dtype.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace muster::checkpoint {
namespace {

using fuzz::Bytes;

constexpr std::int64_t kElementsMax = 4096;  // of tensors whose elements are counted one by one
constexpr std::uint64_t kBytesMax = std::numeric_limits<std::int64_t>::max();

// Calls body(place of the element in the tensor, index in the box) for each element of a box.
template<class Body>
void each_element(const SavedTensor& tensor, const Box& box, Body body) {
  for (std::int64_t i = 0; i < box.elements(); ++i) {
    std::int64_t left = i, place = 0, stride = 1;
    Index index{};
    for (std::size_t dim = tensor.dims; dim-- > 0;) {
      index[dim] = left % box.length[dim];
      left /= box.length[dim];
      place += (box.offset[dim] + index[dim]) * stride;
      stride *= tensor.shape[dim];
    }
    body(static_cast<std::size_t>(place), index);
  }
}

std::int64_t elements_of(const SavedTensor& tensor) {
  return Box{tensor.dims, {}, tensor.shape}.elements();
}

void check_box(const SavedTensor& tensor, const SavedBox& saved,
               const std::vector<CheckpointRecord::File>& files) {
  MUSTER_PROMISE(saved.box.dims == tensor.dims && saved.file < files.size());
  std::uint64_t bytes = dtype_bytes(tensor.dtype);
  for (std::size_t dim = 0; dim < tensor.dims; ++dim) {
    const std::int64_t length = saved.box.length[dim];
    MUSTER_PROMISE(saved.box.offset[dim] >= 0 && length >= 1 && length <= tensor.shape[dim]);
    MUSTER_PROMISE(saved.box.offset[dim] <= tensor.shape[dim] - length);
    MUSTER_PROMISE(bytes <= kBytesMax / static_cast<std::uint64_t>(length));
    bytes *= static_cast<std::uint64_t>(length);
  }
  MUSTER_PROMISE(saved.at <= files[saved.file].bytes && bytes <= files[saved.file].bytes - saved.at);
  MUSTER_PROMISE(saved.sums.size() == chunks_of(bytes));
}

// Each element of a drawn block is read once, from where it lies.
void check_slices(const SavedTensor& tensor, Bytes& bytes) {
  Layout::Piece piece{{tensor.dims, {}, {}}, {}};
  for (std::size_t dim = 0; dim < tensor.dims; ++dim) {
    const auto all = static_cast<std::uint64_t>(tensor.shape[dim]);
    piece.box.length[dim] = static_cast<std::int64_t>(1 + bytes.below(all));
    piece.box.offset[dim] =
        static_cast<std::int64_t>(bytes.below(all - static_cast<std::uint64_t>(piece.box.length[dim]) + 1));
  }
  std::vector<int> read(static_cast<std::size_t>(elements_of(tensor)));
  for (const Slice& slice : plan_read(tensor, std::span(&piece, 1))) {
    MUSTER_PROMISE(slice.box < tensor.boxes.size());
    const Box& saved = tensor.boxes[slice.box].box;
    for (std::size_t dim = 0; dim < tensor.dims; ++dim) {
      MUSTER_PROMISE(slice.within[dim] == slice.part.offset[dim] - saved.offset[dim]);
      MUSTER_PROMISE(slice.within[dim] >= 0 &&
                     slice.part.length[dim] <= saved.length[dim] - slice.within[dim]);
      MUSTER_PROMISE(slice.put[dim] == slice.part.offset[dim] - piece.box.offset[dim]);
    }
    each_element(tensor, slice.part, [&](std::size_t place, const Index&) { ++read.at(place); });
  }
  each_element(tensor, piece.box, [&](std::size_t place, const Index&) { --read.at(place); });
  for (const int times : read) MUSTER_PROMISE(times == 0);
}

void check_tensor(const SavedTensor& tensor, const CheckpointRecord& record, Bytes& bytes) {
  MUSTER_PROMISE(tensor.name.empty() || check_tensor_name(tensor.name).ok());
  MUSTER_PROMISE(bytes_of(tensor) && tensor.boxes.size() <= kBoxesMax);
  for (const SavedBox& saved : tensor.boxes) check_box(tensor, saved, record.files);
  if (elements_of(tensor) > kElementsMax) return;
  std::vector<int> there(static_cast<std::size_t>(elements_of(tensor)));
  for (const SavedBox& saved : tensor.boxes)
    each_element(tensor, saved.box, [&](std::size_t place, const Index&) { ++there.at(place); });
  for (const int times : there) MUSTER_PROMISE(times == 1);
  if (!there.empty()) check_slices(tensor, bytes);
}

void check_record(const std::string& text, Bytes& bytes) {
  const auto record = record_of(text);
  if (!record) {
    MUSTER_PROMISE(record.error().code() == Code::kCorrupt || record.error().code() == Code::kVersion);
    MUSTER_PROMISE(!record.error().message().empty());
    return;
  }
  std::uint64_t all = 0;
  for (const CheckpointRecord::File& file : record->files) {
    MUSTER_PROMISE(is_rank_file_name(file.name) && file.bytes <= kBytesMax - all);
    MUSTER_PROMISE(file.name.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
                   file.name.front() != '.');
    all += file.bytes;
  }
  MUSTER_PROMISE(record->bytes() == all);
  const SavedTensor* before = nullptr;
  for (const SavedTensor& tensor : record->tensors) {
    MUSTER_PROMISE(before == nullptr || before->name < tensor.name);
    MUSTER_PROMISE(record->find(tensor.name) == &tensor);
    check_tensor(tensor, *record, bytes);
    before = &tensor;
  }
  const auto again = record_of(text_of(*record));
  MUSTER_PROMISE(again && *again == *record);
}

// Ranges of a safetensors file may lie on each other; what is written has them end to end.
void check_safetensors(const std::string& text, std::uint64_t data_bytes) {
  const auto record = safetensors_record(text, data_bytes);
  if (!record) {
    MUSTER_PROMISE(!record.error().message().empty());
    return;
  }
  std::uint64_t all = 0;
  for (const SavedTensor& tensor : record->tensors) {
    const auto bytes = bytes_of(tensor);
    MUSTER_PROMISE(bytes && check_tensor_name(tensor.name).ok());
    MUSTER_PROMISE(tensor.boxes.size() == (*bytes > 0 ? 1U : 0U));
    for (const SavedBox& saved : tensor.boxes)
      MUSTER_PROMISE(saved.at <= data_bytes && *bytes <= data_bytes - saved.at);
    if (*bytes > kBytesMax - all) return;
    all += *bytes;
  }
  MUSTER_PROMISE(check_notes(record->notes).ok());
  const std::string header = safetensors_header(*record);
  const auto again = safetensors_record(header, all);
  MUSTER_PROMISE(header.size() % 8 == 0 && again && again->tensors.size() == record->tensors.size());
  MUSTER_PROMISE(again->notes == record->notes);
  for (std::size_t i = 0; i < again->tensors.size(); ++i) {
    const SavedTensor& a = again->tensors[i];
    const SavedTensor& b = record->tensors[i];
    MUSTER_PROMISE(a.name == b.name && a.dtype == b.dtype && a.dims == b.dims && a.shape == b.shape);
  }
}

// No file of an index lies elsewhere.
void check_index(const std::string& text) {
  const auto index = part_index(text);
  if (!index) {
    MUSTER_PROMISE(index.error().code() == Code::kCorrupt && !index.error().message().empty());
    return;
  }
  for (const auto& [name, file] : *index) {
    MUSTER_PROMISE(check_tensor_name(name).ok());
    MUSTER_PROMISE(!file.empty() && file != "." && file != "..");
    MUSTER_PROMISE(file.find_first_of(std::string_view("/\0", 2)) == std::string::npos);
  }
}

// Small numbers for what must agree, and any number now and then.
std::string numbers(Bytes& bytes, std::uint64_t count, std::uint64_t bound) {
  std::vector<std::uint64_t> drawn;
  for (std::uint64_t i = 0; i < count; ++i)
    drawn.push_back(bytes.below(8) == 0 ? bytes.number() : bytes.below(bound));
  return fmt::format("{}", fmt::join(drawn, ","));
}

std::string drawn_box(Bytes& bytes, std::uint64_t dims) {
  const std::string offset = numbers(bytes, dims, 4), length = numbers(bytes, dims, 5);
  const std::string file = numbers(bytes, 1, 2);
  const std::uint64_t at = bytes.number();
  std::string sums;
  for (auto more = bytes.below(8) == 0 ? bytes.below(3) : 1; more > 0; --more)
    sums += fmt::format("{}\"{:032x}\"", sums.empty() ? "" : ",", 1);
  return fmt::format(R"({{"offset":[{}],"length":[{}],"file":{},"at":{},"sums":[{}]}})", offset, length, file,
                     at, sums);
}

// Metadata with everything in its place, whatever the numbers are.
std::string drawn_metadata(Bytes& bytes) {
  std::string files, tensors;
  for (std::uint64_t i = bytes.below(3); i > 0; --i)
    files +=
        fmt::format(R"({}{{"name":"rank-{}.bin","bytes":{}}})", files.empty() ? "" : ",", i, bytes.number());
  const auto last = static_cast<char>('a' + bytes.below(3));
  for (char name = 'a'; name < last; ++name) {
    const std::uint64_t dims = bytes.below(4);
    const std::string shape = numbers(bytes, dims, 5);
    std::string boxes;
    for (auto more = bytes.below(4); more > 0; --more)
      boxes += (boxes.empty() ? "" : ",") + drawn_box(bytes, dims);
    tensors += fmt::format(R"({}{{"name":"{}","dtype":"{}","shape":[{}],"boxes":[{}]}})",
                           tensors.empty() ? "" : ",", name, bytes.flag() ? "f32" : "u8", shape, boxes);
  }
  return fmt::format(R"({{"format":"muster-checkpoint","version":1,"step":7,"chunk_bytes":{},"files":[{}],)"
                     R"("tensors":[{}]}})",
                     kChunkBytes, files, tensors);
}

void check(Bytes bytes) {
  const auto what = bytes.below(4);
  const auto drawn = bytes.some(16);
  Bytes blocks(drawn.data(), drawn.size());
  const std::uint64_t data_bytes = bytes.number();
  const std::string text = what == 3 ? drawn_metadata(bytes) : bytes.rest_as_text();
  if (what == 2) {
    check_index(text);
    return check_safetensors(text, data_bytes);
  }
  if (what == 1) return check_record(text, blocks);
  const std::string sum = checksum(std::as_bytes(std::span(text))).hex();
  check_record("{\"checksum\":\"" + sum + "\",\n\"metadata\":" + text + "}\n", blocks);
}

}  // namespace
}  // namespace muster::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::checkpoint::check(muster::fuzz::Bytes(data, size));
  return 0;
}
