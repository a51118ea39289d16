// Names of checkpoints, of their files and of what they hold.
#pragma once

#include "api/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::checkpoint {

inline constexpr std::size_t kTensorNameMax = 1024;  // bytes
inline constexpr std::size_t kFolderNameMax = 200;   // leaves room for what staged_name() adds

inline constexpr const char* kRecordFile = "metadata.json";
// Says what a folder should be, to a user who has named another.
inline constexpr const char* kFolderText =
    "a checkpoint is a folder that holds metadata.json, and the folder of a run holds checkpoints";

// UTF-8 without control characters, 1 to kTensorNameMax bytes. Errors: kBadArgument.
Status check_tensor_name(std::string_view name);
// Not for the name that safetensors keeps for a file's own notes: no program could read such a file. Errors:
// kBadArgument.
inline constexpr std::string_view kNotesName = "__metadata__";
Status check_exported_name(std::string_view name);
// A name that a folder can have, and that is not one of an unfinished checkpoint or of a checkpoint's file.
// Errors: kBadArgument.
Status check_folder_name(std::string_view name);

std::string step_name(std::uint64_t step);        // "step-000000000012"
std::string rank_file_name(std::int64_t member);  // "rank-3.bin"
bool is_rank_file_name(std::string_view name);    // leads out of no folder
// A file's name in a folder: no '/', at most 255 bytes of UTF-8 without control characters, not "." or "..".
bool is_part_name(std::string_view name);
// The folder in which a checkpoint is written; `nonce` tells attempts apart.
std::string staged_name(std::string_view name, std::uint64_t nonce);  // "step-7.partial-00ab…"
bool is_staged_name(std::string_view name);

// A tensor's name as messages say it; what has no name is the user's state.
std::string tensor_text(std::string_view name);  // "tensor \"head\"", "the user's state"

}  // namespace muster::checkpoint
