// Safetensors files of models, and their indices, that a test makes by itself.
#pragma once

#include "tests/support/folder.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace muster::test {

using ModelValues = std::vector<std::pair<std::string, float>>;  // vectors of one f32, in the file's order
using ModelNotes = std::map<std::string, std::string>;

// Names and notes stand in the JSON as they are.
inline std::string model_file(const ModelValues& values, const ModelNotes& notes = {}) {
  std::string header, said;
  for (const auto& [key, value] : notes)
    said += fmt::format("{}\"{}\":\"{}\"", said.empty() ? "" : ",", key, value);
  if (!notes.empty()) header = fmt::format("\"__metadata__\":{{{}}}", said);
  std::string data;
  for (const auto& [name, value] : values) {
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})",
                          header.empty() ? "" : ",", name, data.size(), data.size() + sizeof value);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  header = "{" + header + "}";
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data;
}

inline std::string model_index(const std::map<std::string, std::string>& places) {
  std::string map;
  for (const auto& [name, file] : places)
    map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name, file);
  return fmt::format(R"({{"metadata":{{"total_size":8}},"weight_map":{{{}}}}})", map);
}

inline constexpr const char* kIndexName = "model.safetensors.index.json";

// a and c in 1.safetensors, b in 2.safetensors, and their index.
inline void write_model(const Folder& folder) {
  folder.write("1.safetensors", model_file({{"a", 1}, {"c", 3}}, {{"format", "pt"}, {"of", "1"}}));
  folder.write("2.safetensors", model_file({{"b", 2}}, {{"format", "pt"}}));
  folder.write(kIndexName,
               model_index({{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "1.safetensors"}}));
}

}  // namespace muster::test
