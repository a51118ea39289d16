// JSON texts: a checkpoint's metadata, the header of a safetensors file, and the index of a model of several
// files. No input is trusted: each number is checked before it is used, and memory is at most some 20 times
// the text.
//
// metadata.json is one JSON object with two keys, written in one way only:
//
//   {"checksum":"<32 hex digits, of the text of the value below>",
//   "metadata":{"format":"muster-checkpoint","version":1,"step":7,"chunk_bytes":1048576,
//     "files":[{"name":"rank-0.bin","bytes":480}],
//     "tensors":[{"name":"head","dtype":"f32","shape":[10,12],
//       "boxes":[{"offset":[0,0],"length":[10,12],"file":0,"at":0,"sums":["<32 hex digits>"]}]}],
//     "notes":{"format":"pt"}}}                                           only if there are notes
#pragma once

#include "api/base/checkpoint/saved.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace muster::checkpoint {

inline constexpr std::size_t kRecordBytesMax = std::size_t{128} << 20;
inline constexpr std::size_t kSafetensorsHeaderMax = 100'000'000;    // as its own library has it
inline constexpr std::size_t kNotesBytesMax = std::size_t{8} << 20;  // of all keys and values

// Readers accept at most kRecordBytesMax of it.
std::string text_of(const CheckpointRecord& record);
// Refuses most records whose text would be longer, before there are checksums. It counts numbers and names,
// but no JSON escapes. Errors: kBadArgument.
Status check_size(const CheckpointRecord& record);
// Checks everything that a reader relies on: names, bounds of boxes in tensors, and the number of checksums.
// The boxes of a tensor must make up the tensor, and those of a file the file. Errors: kCorrupt, kVersion; no
// file is named.
Result<CheckpointRecord> record_of(std::string_view text);

// Its offsets count from the end of the header. It describes one file, so `files` is empty, as are all
// checksums. Padding lets the data begin at a multiple of 8 bytes. Notes become __metadata__. Names must be
// good by check_exported_name().
std::string safetensors_header(const CheckpointRecord& record);
// `text`: the JSON, without the length in front of it. `data_bytes`: the bytes behind it, which the tensors
// fill end to end. Each tensor has one box. Errors: kCorrupt; kUnsupported for a dtype that this version does
// not have, a name that it refuses, or more notes than kNotesBytesMax.
Result<CheckpointRecord> safetensors_record(std::string_view text, std::uint64_t data_bytes);
// Errors: kUnsupported, for more than kNotesBytesMax.
Status check_notes(const CheckpointRecord::Notes& notes);

// The file that has each tensor, by the tensor's name; the file lies beside the index. It is the "weight_map"
// of model.safetensors.index.json.
using PartIndex = std::map<std::string, std::string>;
// Other keys of the index are ignored. Errors: kCorrupt, also for a file name that leads out of the folder;
// the text names no file.
Result<PartIndex> part_index(std::string_view text);

}  // namespace muster::checkpoint
