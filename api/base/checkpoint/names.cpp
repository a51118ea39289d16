#include "api/base/checkpoint/names.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>

namespace muster::checkpoint {
namespace {

constexpr std::string_view kStaged = ".partial-";

Status check_text(const char* what, std::string_view name, std::size_t most) {
  if (name.empty()) return failure(Code::kBadArgument, "{} has no name", what);
  if (name.size() > most)
    return failure(Code::kBadArgument, "{} has a name of {} bytes; at most {} are possible", what,
                   name.size(), most);
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t bytes = utf8_length(name, i);
    if (bytes == 0 || control_bytes(name, i) != 0)
      return failure(Code::kBadArgument, "{} \"{}\" has a name that is not UTF-8, or has control characters",
                     what, printable(name, Lines::kOne));
    i += bytes;
  }
  return {};
}

}  // namespace

Status check_tensor_name(std::string_view name) {
  return check_text("a tensor", name, kTensorNameMax);
}

Status check_exported_name(std::string_view name) {
  if (name != kNotesName) return {};
  return failure(
      Code::kBadArgument,
      "a tensor cannot be named \"{}\": safetensors keeps that name for a file's own notes, and no "
      "program could read the file; choose another name, or leave it out with --exclude",
      name);
}

Status check_folder_name(std::string_view name) {
  MUSTER_RETURN_IF_ERROR(check_text("the checkpoint", name, kFolderNameMax));
  if (name.find('/') != std::string_view::npos || name.front() == '.' || is_staged_name(name))
    return failure(
        Code::kBadArgument,
        "the checkpoint is named \"{}\"; a name has no '/' and no \"{}\", and does not begin with '.'", name,
        kStaged);
  if (name == kRecordFile || is_rank_file_name(name))
    return failure(Code::kBadArgument,
                   "the checkpoint is named \"{}\", but \"{}\" is a file of a checkpoint; choose another "
                   "name",
                   name, name);
  return {};
}

std::string step_name(std::uint64_t step) {
  return fmt::format("step-{:012}", step);
}

std::string rank_file_name(std::int64_t member) {
  return fmt::format("rank-{}.bin", member);
}

bool is_rank_file_name(std::string_view name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".bin";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() > 32) return false;
  const std::string_view number = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return !number.empty() && std::ranges::all_of(number, is_digit);
}

bool is_part_name(std::string_view name) {
  constexpr std::size_t kFileNameMax = 255;
  return check_text("a file", name, kFileNameMax).ok() && name.find('/') == std::string_view::npos &&
         name != "." && name != "..";
}

std::string staged_name(std::string_view name, std::uint64_t nonce) {
  return fmt::format("{}{}{:016x}", name, kStaged, nonce);
}

bool is_staged_name(std::string_view name) {
  return name.find(kStaged) != std::string_view::npos;
}

std::string tensor_text(std::string_view name) {
  return name.empty() ? "the user's state" : fmt::format("tensor \"{}\"", name);
}

}  // namespace muster::checkpoint
