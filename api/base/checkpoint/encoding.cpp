#include "api/base/checkpoint/encoding.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/checksum.hpp"
#include "api/base/dtype.hpp"
#include "api/base/utf8.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "muster-checkpoint";
constexpr std::uint64_t kFormatVersion = 1;
constexpr const char* kNotes = "notes";
constexpr int kDepthMax = 8;
constexpr std::string_view kChecksumBegin = "{\"checksum\":\"";
constexpr std::string_view kChecksumEnd = "\",\n\"metadata\":";
constexpr std::size_t kHexDigits = 32;

constexpr struct {
  muster_dtype dtype;
  std::string_view safetensors;
} kDtypes[] = {{MUSTER_F32, "F32"},        {MUSTER_BF16, "BF16"}, {MUSTER_F16, "F16"},
               {MUSTER_F64, "F64"},        {MUSTER_I32, "I32"},   {MUSTER_I64, "I64"},
               {MUSTER_U8, "U8"},          {MUSTER_I8, "I8"},     {MUSTER_F8_E4M3, "F8_E4M3"},
               {MUSTER_F8_E5M2, "F8_E5M2"}};

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template<class... Args>
tl::unexpected<Status> corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return fail(Code::kCorrupt, "the metadata are damaged: {}",
              fmt::format(format, std::forward<Args>(args)...));
}

// Null where the text is no JSON of a small depth.
std::optional<Json> parsed(std::string_view text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDepthMax) throw std::length_error("too deep");
    return true;
  };
  try {
    Json json = Json::parse(text, shallow, false);
    if (!json.is_discarded()) return json;
  } catch (const std::length_error&) {
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

// ---- fields, each checked -----------------------------------------------------------------------

Result<const Json*> member_of(const Json& object, const char* key) {
  if (object.is_object())
    if (const auto found = object.find(key); found != object.end()) return &*found;
  return corrupt("\"{}\" is missing", key);
}

Result<std::uint64_t> number_in(const Json& object, const char* key) {
  MUSTER_ASSIGN_OR_RETURN(const Json* value, member_of(object, key));
  if (!value->is_number_unsigned()) return corrupt("\"{}\" is not a whole number", key);
  return value->get<std::uint64_t>();
}

Result<std::string> text_in(const Json& object, const char* key) {
  MUSTER_ASSIGN_OR_RETURN(const Json* value, member_of(object, key));
  if (!value->is_string()) return corrupt("\"{}\" is not a text", key);
  return value->get<std::string>();
}

Result<const Json*> list_in(const Json& object, const char* key) {
  MUSTER_ASSIGN_OR_RETURN(const Json* value, member_of(object, key));
  if (!value->is_array()) return corrupt("\"{}\" is not a list", key);
  return value;
}

// At most MUSTER_TENSOR_DIMS_MAX lengths or offsets.
Result<std::size_t> index_in(const Json& object, const char* key, Index& into) {
  MUSTER_ASSIGN_OR_RETURN(const Json* values, list_in(object, key));
  if (values->size() > into.size()) return corrupt("\"{}\" has {} entries", key, values->size());
  for (std::size_t i = 0; i < values->size(); ++i) {
    const Json& value = (*values)[i];
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return corrupt("\"{}\" has an entry that is no length", key);
    into[i] = value.get<std::int64_t>();
  }
  return values->size();
}

// `key`: as the text names what is read.
Result<CheckpointRecord::Notes> notes_of(const Json& said, std::string_view key) {
  CheckpointRecord::Notes notes;
  if (!said.is_object()) return corrupt("\"{}\" is not an object of texts", key);
  for (const auto& [name, value] : said.items()) {
    if (!value.is_string())
      return corrupt("\"{}\" of \"{}\" is not a text", printable(name, Lines::kOne), key);
    notes.emplace(name, value.get_ref<const std::string&>());
  }
  return notes;
}

// ---- a checkpoint's record ----------------------------------------------------------------------

Result<std::vector<Hash128>> sums_of(const Json& said, const std::string& name, std::uint64_t bytes) {
  MUSTER_ASSIGN_OR_RETURN(const Json* values, list_in(said, "sums"));
  if (values->size() != chunks_of(bytes))
    return corrupt("a box of {} has {} checksums for {} bytes", tensor_text(name), values->size(), bytes);
  std::vector<Hash128> sums;
  for (const Json& value : *values) {
    const auto sum = value.is_string() ? hash_of_hex(value.get_ref<const std::string&>()) : std::nullopt;
    if (!sum) return corrupt("a checksum of {} is not 32 hex digits", tensor_text(name));
    sums.push_back(*sum);
  }
  return sums;
}

Result<SavedBox> box_of(const Json& said, const SavedTensor& tensor,
                        std::span<const CheckpointRecord::File> files) {
  SavedBox saved;
  MUSTER_ASSIGN_OR_RETURN(saved.box.dims, index_in(said, "offset", saved.box.offset));
  MUSTER_ASSIGN_OR_RETURN(const std::size_t lengths, index_in(said, "length", saved.box.length));
  if (saved.box.dims != tensor.dims || lengths != tensor.dims)
    return corrupt("a box of {} has not {} dims", tensor_text(tensor.name), tensor.dims);
  for (std::size_t dim = 0; dim < tensor.dims; ++dim)  // before anything is multiplied
    if (saved.box.length[dim] > tensor.shape[dim])
      return corrupt("a box of {} is longer than the tensor", tensor_text(tensor.name));
  MUSTER_ASSIGN_OR_RETURN(saved.file, number_in(said, "file"));
  MUSTER_ASSIGN_OR_RETURN(saved.at, number_in(said, "at"));
  const std::uint64_t bytes = bytes_of(saved.box, tensor.dtype);
  if (saved.file >= files.size() || saved.at > files[saved.file].bytes ||
      bytes > files[saved.file].bytes - saved.at)
    return corrupt("a box of {} is not in its file", tensor_text(tensor.name));
  MUSTER_ASSIGN_OR_RETURN(saved.sums, sums_of(said, tensor.name, bytes));
  return saved;
}

muster_dtype dtype_of(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kDtypes, [&](const auto& each) { return name == dtype_name(each.dtype); });
  return found == std::end(kDtypes) ? 0 : found->dtype;
}

Result<SavedTensor> tensor_of(const Json& said, std::span<const CheckpointRecord::File> files) {
  SavedTensor tensor;
  MUSTER_ASSIGN_OR_RETURN(tensor.name, text_in(said, "name"));
  if (!tensor.name.empty())
    if (const Status status = check_tensor_name(tensor.name); !status.ok())
      return corrupt("{}", status.message());
  MUSTER_ASSIGN_OR_RETURN(const std::string dtype, text_in(said, "dtype"));
  tensor.dtype = dtype_of(dtype);
  MUSTER_ASSIGN_OR_RETURN(tensor.dims, index_in(said, "shape", tensor.shape));
  if (const auto bytes = bytes_of(tensor); !bytes) return corrupt("{}", bytes.error().message());
  if (tensor.name.empty() && (tensor.dims != 1 || tensor.dtype != MUSTER_U8))
    return corrupt("the user's state is not a list of bytes");
  MUSTER_ASSIGN_OR_RETURN(const Json* boxes, list_in(said, "boxes"));
  for (const Json& box : *boxes) {
    MUSTER_ASSIGN_OR_RETURN(SavedBox saved, box_of(box, tensor, files));
    tensor.boxes.push_back(std::move(saved));
  }
  if (const Status status = check_boxes(tensor); !status.ok()) return corrupt("{}", status.message());
  return tensor;
}

Result<std::vector<CheckpointRecord::File>> files_of(const Json& said) {
  MUSTER_ASSIGN_OR_RETURN(const Json* values, list_in(said, "files"));
  std::vector<CheckpointRecord::File> files;
  std::uint64_t bytes = 0;
  for (const Json& value : *values) {
    CheckpointRecord::File file;
    MUSTER_ASSIGN_OR_RETURN(file.name, text_in(value, "name"));
    MUSTER_ASSIGN_OR_RETURN(file.bytes, number_in(value, "bytes"));
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!is_rank_file_name(file.name) || file.bytes > kMost - bytes)
      return corrupt("\"{}\" of {} bytes is no file of a checkpoint", printable(file.name, Lines::kOne),
                     file.bytes);
    bytes += file.bytes;
    files.push_back(std::move(file));
  }
  return files;
}

// The bytes of a file that a box of a tensor has.
struct BoxExtent {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  const std::string* tensor = nullptr;
};

// Else a short file could stand for a long tensor, whose parts all read the same bytes.
Status check_end_to_end(std::vector<BoxExtent> extents, std::uint64_t all, std::string_view file) {
  std::ranges::sort(extents, {}, &BoxExtent::at);
  std::uint64_t end = 0;
  for (const BoxExtent& extent : extents) {
    if (extent.at != end)
      return corrupt("{} begins at byte {} of {}, but what is before it ends at {}",
                     tensor_text(*extent.tensor), extent.at, file, end)
          .value();
    end += extent.bytes;
  }
  if (end == all) return {};
  return corrupt("the tensors have {} bytes of {}, which has {}", end, file, all).value();
}

Status check_files(const CheckpointRecord& record) {
  std::vector<std::vector<BoxExtent>> extents(record.files.size());
  for (const SavedTensor& tensor : record.tensors)
    for (const SavedBox& saved : tensor.boxes)
      extents[saved.file].push_back({saved.at, bytes_of(saved.box, tensor.dtype), &tensor.name});
  for (std::size_t i = 0; i < extents.size(); ++i)
    MUSTER_RETURN_IF_ERROR(
        check_end_to_end(std::move(extents[i]), record.files[i].bytes, record.files[i].name));
  return {};
}

// Each number in its decimal form, no blanks.
Json json_of(const CheckpointRecord& record) {
  Json files = Json::array();
  for (const CheckpointRecord::File& file : record.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  Json tensors = Json::array();
  for (const SavedTensor& tensor : record.tensors) {
    Json boxes = Json::array();
    for (const SavedBox& saved : tensor.boxes) {
      Json sums = Json::array();
      for (const Hash128& sum : saved.sums) sums.push_back(sum.hex());
      boxes.push_back({{"offset", std::span(saved.box.offset).first(tensor.dims)},
                       {"length", std::span(saved.box.length).first(tensor.dims)},
                       {"file", saved.file},
                       {"at", saved.at},
                       {"sums", std::move(sums)}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.extent()},
                       {"boxes", std::move(boxes)}});
  }
  Json json{{"format", kFormat},          {"version", kFormatVersion}, {"step", record.step},
            {"chunk_bytes", kChunkBytes}, {"files", std::move(files)}, {"tensors", std::move(tensors)}};
  if (!record.notes.empty()) json[kNotes] = record.notes;
  return json;
}

// The part of the text that the checksum covers.
Result<std::string_view> checked_text(std::string_view text) {
  if (text.size() > kRecordBytesMax)
    return corrupt("they have {} bytes; at most {} are possible", text.size(), kRecordBytesMax);
  const std::size_t begin = kChecksumBegin.size() + kHexDigits + kChecksumEnd.size();
  if (!text.starts_with(kChecksumBegin) || text.size() < begin + 2 ||
      text.substr(kChecksumBegin.size() + kHexDigits, kChecksumEnd.size()) != kChecksumEnd ||
      !text.ends_with("}\n"))
    return corrupt("they do not begin and end as metadata do");
  const std::string_view inner = text.substr(begin, text.size() - begin - 2);
  const auto sum = hash_of_hex(text.substr(kChecksumBegin.size(), kHexDigits));
  if (!sum || *sum != checksum(bytes_in(inner))) return corrupt("their checksum does not fit");
  return inner;
}

Status check_format(const Json& said) {
  MUSTER_ASSIGN_OR_RETURN(const std::string format, text_in(said, "format"));
  if (format != kFormat) return corrupt("their format is \"{}\"", printable(format, Lines::kOne)).value();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t version, number_in(said, "version"));
  if (version != kFormatVersion)
    return failure(Code::kVersion, "the checkpoint has format version {}; this program reads {}", version,
                   kFormatVersion);
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t chunk, number_in(said, "chunk_bytes"));
  if (chunk != kChunkBytes) return corrupt("a chunk has {} bytes, not {}", chunk, kChunkBytes).value();
  return {};
}

// ---- safetensors --------------------------------------------------------------------------------

Result<SavedTensor> tensor_in(const std::string& name, const Json& said, std::uint64_t data_bytes) {
  if (const Status status = check_tensor_name(name); !status.ok())
    return fail(Code::kUnsupported, "{}", status.message());
  SavedTensor tensor{name};
  MUSTER_ASSIGN_OR_RETURN(const std::string dtype, text_in(said, "dtype"));
  const auto* found =
      std::ranges::find_if(kDtypes, [&](const auto& each) { return each.safetensors == dtype; });
  if (found == std::end(kDtypes))
    return fail(Code::kUnsupported, "{} has dtype {}, which Muster does not have", tensor_text(name),
                printable(dtype, Lines::kOne));
  tensor.dtype = found->dtype;
  MUSTER_ASSIGN_OR_RETURN(tensor.dims, index_in(said, "shape", tensor.shape));
  Index range{};
  MUSTER_ASSIGN_OR_RETURN(const std::size_t ends, index_in(said, "data_offsets", range));
  const auto bytes = bytes_of(tensor);
  if (!bytes) return corrupt("{}", bytes.error().message());
  if (ends != 2 || range[0] > range[1] || static_cast<std::uint64_t>(range[1]) > data_bytes ||
      static_cast<std::uint64_t>(range[1] - range[0]) != *bytes)
    return corrupt("{} has {} bytes, and not those between its data_offsets", tensor_text(name), *bytes);
  if (*bytes > 0)
    tensor.boxes.push_back({{tensor.dims, {}, tensor.shape}, 0, static_cast<std::uint64_t>(range[0]), {}});
  return tensor;
}

std::uint64_t digits_of(std::uint64_t number) {
  std::uint64_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

std::uint64_t least_bytes_of(const SavedTensor& tensor, const SavedBox& saved) {
  constexpr std::string_view kBox = R"({"at":,"file":,"length":[],"offset":[],"sums":[]},)";
  std::uint64_t bytes = kBox.size() + digits_of(saved.at) + digits_of(saved.file);
  for (std::size_t dim = 0; dim < tensor.dims; ++dim)
    bytes += digits_of(static_cast<std::uint64_t>(saved.box.offset[dim])) +
             digits_of(static_cast<std::uint64_t>(saved.box.length[dim])) + (dim > 0 ? 2 : 0);
  return bytes + chunks_of(bytes_of(saved.box, tensor.dtype)) * (kHexDigits + 3) - 1;
}

}  // namespace

Status check_size(const CheckpointRecord& record) {
  std::uint64_t bytes = 0;
  for (const auto& [key, value] : record.notes) bytes += key.size() + value.size();
  for (const SavedTensor& tensor : record.tensors) {
    bytes += tensor.name.size();
    for (const SavedBox& saved : tensor.boxes) bytes += least_bytes_of(tensor, saved);
  }
  if (bytes <= kRecordBytesMax) return {};
  return failure(
      Code::kBadArgument,
      "the metadata would have {} bytes or more; at most {} are possible: save less in one checkpoint", bytes,
      kRecordBytesMax);
}

std::string text_of(const CheckpointRecord& record) {
  const std::string inner = json_of(record).dump();
  std::string text(kChecksumBegin);
  text += checksum(bytes_in(inner)).hex();
  text += kChecksumEnd;
  text += inner;
  return text + "}\n";
}

Result<CheckpointRecord> record_of(std::string_view text) {
  MUSTER_ASSIGN_OR_RETURN(const std::string_view inner, checked_text(text));
  const std::optional<Json> said = parsed(inner);
  if (!said) return corrupt("they are no JSON");
  MUSTER_RETURN_IF_ERROR(check_format(*said));
  CheckpointRecord record;
  MUSTER_ASSIGN_OR_RETURN(record.step, number_in(*said, "step"));
  MUSTER_ASSIGN_OR_RETURN(record.files, files_of(*said));
  MUSTER_ASSIGN_OR_RETURN(const Json* tensors, list_in(*said, "tensors"));
  for (const Json& each : *tensors) {
    MUSTER_ASSIGN_OR_RETURN(SavedTensor tensor, tensor_of(each, record.files));
    if (!record.tensors.empty() && record.tensors.back().name >= tensor.name)
      return corrupt("{} is not behind {}", tensor_text(tensor.name),
                     tensor_text(record.tensors.back().name));
    record.tensors.push_back(std::move(tensor));
  }
  MUSTER_RETURN_IF_ERROR(check_files(record));
  if (const auto notes = said->find(kNotes); notes != said->end()) {
    MUSTER_ASSIGN_OR_RETURN(record.notes, notes_of(*notes, kNotes));
    if (const Status status = check_notes(record.notes); !status.ok()) return corrupt("{}", status.message());
  }
  return record;
}

Status check_notes(const CheckpointRecord::Notes& notes) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : notes) bytes += key.size() + value.size();
  if (bytes <= kNotesBytesMax) return {};
  return failure(Code::kUnsupported, "{} has {} bytes; at most {} are possible", kNotesName, bytes,
                 kNotesBytesMax);
}

std::string safetensors_header(const CheckpointRecord& record) {
  Json header = Json::object();
  if (!record.notes.empty()) header[kNotesName] = record.notes;
  std::uint64_t at = 0;
  for (const SavedTensor& tensor : record.tensors) {
    if (tensor.name.empty()) continue;
    const std::uint64_t bytes = bytes_of(Box{tensor.dims, {}, tensor.shape}, tensor.dtype);
    const auto* dtype =
        std::ranges::find_if(kDtypes, [&](const auto& each) { return each.dtype == tensor.dtype; });
    header[tensor.name] = {{"dtype", dtype->safetensors},
                           {"shape", tensor.extent()},
                           {"data_offsets", std::array{at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Result<CheckpointRecord> safetensors_record(std::string_view text, std::uint64_t data_bytes) {
  const std::optional<Json> said = text.size() > kSafetensorsHeaderMax ? std::nullopt : parsed(text);
  if (!said || !said->is_object()) return corrupt("the header is no JSON object");
  CheckpointRecord record;
  for (const auto& [name, value] : said->items()) {  // in rising order
    if (name == kNotesName) {
      if (value.is_null()) continue;  // as the public reader has it
      MUSTER_ASSIGN_OR_RETURN(record.notes, notes_of(value, kNotesName));
      MUSTER_RETURN_IF_ERROR(check_notes(record.notes));
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(SavedTensor tensor, tensor_in(name, value, data_bytes));
    record.tensors.push_back(std::move(tensor));
  }
  std::vector<BoxExtent> extents;
  for (const SavedTensor& tensor : record.tensors)
    for (const SavedBox& saved : tensor.boxes)
      extents.push_back({saved.at, bytes_of(saved.box, tensor.dtype), &tensor.name});
  MUSTER_RETURN_IF_ERROR(check_end_to_end(std::move(extents), data_bytes, "the data"));
  return record;
}

Result<PartIndex> part_index(std::string_view text) {
  constexpr const char* kMap = "weight_map";
  const std::optional<Json> said = text.size() > kSafetensorsHeaderMax ? std::nullopt : parsed(text);
  const Json* map = nullptr;
  if (said && said->is_object())
    if (const auto found = said->find(kMap); found != said->end() && found->is_object()) map = &*found;
  if (map == nullptr)
    return fail(Code::kCorrupt, "it is no index of safetensors files: it has no object \"{}\"", kMap);
  PartIndex index;
  for (const auto& [name, value] : map->items()) {
    if (const Status status = check_tensor_name(name); !status.ok())
      return fail(Code::kCorrupt, "{}", status.message());
    if (!value.is_string())
      return fail(Code::kCorrupt, "{} is in no file: what \"{}\" says is not a text", tensor_text(name),
                  kMap);
    const std::string& file = value.get_ref<const std::string&>();
    if (!is_part_name(file))
      return fail(Code::kCorrupt, "{} is in \"{}\", which is no name of a file beside the index",
                  tensor_text(name), printable(file, Lines::kOne));
    index.emplace(name, file);
  }
  return index;
}

}  // namespace muster::checkpoint
