#include "api/base/store/model_files.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/utf8.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace muster::store {

using checkpoint::PartIndex;
using checkpoint::SavedTensor;
using checkpoint::tensor_text;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileEnd = ".safetensors";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr std::size_t kDifferencesMax = 8;
constexpr std::size_t kValueShown = 40;  // characters

std::uint64_t number_of(const std::array<std::byte, 8>& bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) number |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return number;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// ---- which files -------------------------------------------------------------------------------

// The names in the folder that end so, in rising order.
Result<std::vector<std::string>> names_in(const std::string& folder, std::string_view end) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator each(folder, error); !error && each != fs::directory_iterator();
       each.increment(error))
    if (std::string name = each->path().filename().string(); name.ends_with(end))
      names.push_back(std::move(name));
  if (error) return fail(trouble("read", folder, error.value()));
  std::ranges::sort(names);
  return names;
}

// The index in a folder, or the only file of tensors.
Result<std::string> named_by(const std::string& folder) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> indices, names_in(folder, kIndexEnd));
  if (indices.size() == 1) return folder + "/" + indices.front();
  if (indices.size() > 1)
    return fail(Code::kBadArgument, "{} has {} indices, among them {} and {}; name one of them", folder,
                indices.size(), indices[0], indices[1]);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> files, names_in(folder, kFileEnd));
  if (files.size() == 1) return folder + "/" + files.front();
  if (files.empty())
    return fail(Code::kNotFound, "{} has no index of a model (*{}) and no safetensors file", folder,
                kIndexEnd);
  return fail(Code::kBadArgument, "{} has {} safetensors files and no index of them (*{}); name the files",
              folder, files.size(), kIndexEnd);
}

struct NamedFiles {
  std::vector<std::string> files{};
  std::string index_path{};  // empty: there is none
  PartIndex index{};
};

// The files of an index that have a tensor which the filter takes.
Result<NamedFiles> chosen_by_index(const std::string& path, const NameFilter& filter) {
  NamedFiles chosen{.index_path = path};
  MUSTER_ASSIGN_OR_RETURN(const std::string text,
                          read_text(path, checkpoint::kSafetensorsHeaderMax, DiskFile::LastLink::kFollow));
  auto index = checkpoint::part_index(text);
  if (!index) return fail(index.error().code(), "{}: {}", path, index.error().message());
  chosen.index = *std::move(index);
  std::set<std::string> wanted;
  for (const auto& [name, file] : chosen.index)
    if (filter.takes(name)) wanted.insert(file);
  const std::string folder = fs::path(path).parent_path().string();
  for (const std::string& file : wanted)
    chosen.files.push_back(folder.empty() ? file : (fs::path(folder) / file).string());
  return chosen;
}

Result<NamedFiles> chosen_by(std::span<const std::string> paths, const NameFilter& filter) {
  if (paths.size() == 1) {
    std::string path = paths.front();
    if (is_folder(path)) {
      MUSTER_ASSIGN_OR_RETURN(path, named_by(path));
    }
    if (path.ends_with(".json")) return chosen_by_index(path, filter);
    return NamedFiles{.files = {path}};
  }
  NamedFiles chosen;
  for (const std::string& path : paths) {
    if (is_folder(path) || path.ends_with(".json"))
      return fail(Code::kBadArgument,
                  "{} stands among several files, and is no safetensors file; name the files of the model "
                  "alone, or its index alone, or its folder alone",
                  path);
    if (std::ranges::find(chosen.files, path) != chosen.files.end())
      return fail(Code::kBadArgument, "{} is named twice; name each file once", path);
    chosen.files.push_back(path);
  }
  return chosen;
}

// ---- contents ----------------------------------------------------------------------------------

// As files are named in texts about several of them.
std::string name_of(const std::string& path) {
  return fs::path(path).filename().string();
}

Result<TensorSource> open_part(const std::string& path, const NamedFiles& chosen) {
  auto source = TensorSource::open(path);
  if (source || chosen.index_path.empty() || source.error().code() != Code::kNotFound) return source;
  return fail(Code::kNotFound, "{} names {}, which is missing ({}); put it beside the index",
              chosen.index_path, name_of(path), source.error().message());
}

// That the file has what the index says of it, and nothing else that is wanted.
Status check_against_index(const ModelFiles::File& file, const NamedFiles& chosen, const NameFilter& filter) {
  if (chosen.index_path.empty()) return {};
  const std::string own = name_of(file.path);
  for (const SavedTensor& tensor : file.tensors) {
    const auto place = chosen.index.find(tensor.name);
    if (place == chosen.index.end())
      return failure(Code::kCorrupt,
                     "{} has {}, which {} does not know; leave it out with --exclude, or name the files and "
                     "not their index",
                     file.path, tensor_text(tensor.name), chosen.index_path);
    if (place->second != own)
      return failure(Code::kCorrupt, "{} is in {}, but {} places it in {}", tensor_text(tensor.name),
                     file.path, chosen.index_path, place->second);
  }
  for (const auto& [name, place] : chosen.index)
    if (place == own && filter.takes(name) &&
        !std::ranges::binary_search(file.tensors, name, {}, &SavedTensor::name))
      return failure(Code::kCorrupt, "{} places {} in {}, which does not have it", chosen.index_path,
                     tensor_text(name), own);
  return {};
}

std::string clipped(const std::string& value) {
  const std::string text = printable(value, Lines::kOne);
  const std::size_t end = utf8_offset(text, kValueShown);
  return end < text.size() ? text.substr(0, end) + "…" : text;
}

// Notes of one file beside those of the files before it.
class NoteMerge {
 public:
  explicit NoteMerge(ModelFiles& model) : model_(model) {}

  void add(const checkpoint::CheckpointRecord::Notes& notes, const std::string& path) {
    for (const auto& [key, value] : notes) {
      const auto [place, is_new] = model_.notes.emplace(key, value);
      if (is_new)
        from_.emplace(key, path);
      else if (place->second != value && told_.insert(key).second &&
               model_.differences.size() < kDifferencesMax)
        model_.differences.push_back(
            fmt::format("\"{}\" of {} is \"{}\" in {} and \"{}\" in {}; kept is the first", clipped(key),
                        checkpoint::kNotesName, clipped(place->second), name_of(from_.at(key)),
                        clipped(value), name_of(path)));
    }
  }

 private:
  ModelFiles& model_;
  std::map<std::string, std::string> from_;  // by key: the first file that has it
  std::set<std::string> told_;
};

Status check_each_once(const std::vector<ModelFiles::File>& files) {
  std::map<std::string_view, const std::string*> places;
  for (const ModelFiles::File& file : files)
    for (const SavedTensor& tensor : file.tensors)
      if (const auto [place, is_new] = places.emplace(tensor.name, &file.path); !is_new)
        return failure(Code::kCorrupt, "{} is in {} and in {}; a model has each tensor once",
                       tensor_text(tensor.name), *place->second, file.path);
  return {};
}

// Names of the tensors in the index and in all files that were read.
std::vector<std::string> names_of(const std::vector<ModelFiles::File>& files, const PartIndex& index) {
  std::set<std::string> names;
  for (const auto& [name, file] : index) names.insert(name);
  for (const ModelFiles::File& file : files)
    for (const SavedTensor& tensor : file.tensors) names.insert(tensor.name);
  return {names.begin(), names.end()};
}

}  // namespace

Result<TensorSource> TensorSource::open(const std::string& path) {
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

Result<ModelFiles> ModelFiles::open(std::span<const std::string> paths, const NameFilter& filter) {
  MUSTER_ASSIGN_OR_RETURN(const NamedFiles chosen, chosen_by(paths, filter));
  ModelFiles model;
  NoteMerge notes(model);
  for (const std::string& path : chosen.files) {
    MUSTER_ASSIGN_OR_RETURN(TensorSource source, open_part(path, chosen));
    notes.add(source.record.notes, path);
    model.files.push_back({path, source.data_at, std::move(source.record.tensors)});
  }
  MUSTER_RETURN_IF_ERROR(checkpoint::check_notes(model.notes));
  MUSTER_RETURN_IF_ERROR(
      filter.check(names_of(model.files, chosen.index), paths.size() == 1 ? paths.front() : "these files"));
  for (File& file : model.files) {
    std::erase_if(file.tensors, [&](const SavedTensor& tensor) { return !filter.takes(tensor.name); });
    MUSTER_RETURN_IF_ERROR(check_against_index(file, chosen, filter));
  }
  MUSTER_RETURN_IF_ERROR(check_each_once(model.files));
  return model;
}

}  // namespace muster::store
