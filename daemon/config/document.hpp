// The YAML reader: turns a text into a tree with a place on every node, or into a list of its faults.
//
// A small part of YAML is accepted: one document of maps, lists and scalars. Refused, each with its place:
// anchors and aliases, merges, tags, duplicate keys, several documents, tabs in indentation, control
// characters, text that is no UTF-8, values that run over several lines unquoted, quotes that never close.
#pragma once

#include "daemon/config/diagnostic.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr std::size_t kDepthMax = 32;
constexpr std::size_t kNodesMax = 100000;

// A scalar once its key is known: text kinds fill `text`, the others `number` (nanoseconds, bytes, 0 or 1).
struct Value {
  std::string text;
  std::int64_t number = 0;
};

// A node of the tree; plain data.
struct Node {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap, kRefused };  // kRefused: reported already
  struct Field;

  Kind kind = Kind::kNull;
  bool quoted = false;     // a scalar in quotes or a block scalar
  std::string text;        // of a scalar
  std::size_t offset = 0;  // of its first byte in the source
  Mark mark;
  std::vector<Node> items;     // of a list
  std::vector<Field> fields;   // of a map, in the order written
  std::optional<Value> value;  // set by check() on a good scalar

  // The value of a key, or null.
  const Node* find(std::string_view name) const;
};

struct Node::Field {
  std::string name;
  Mark mark;
  Node value;
};

// The tree. A text of comments alone is an empty map. After a fault that leaves a tree (a duplicate key) the
// fault is in `diagnostics`, and the tree is returned, so that the rest can be checked. After other faults:
// nullopt.
std::optional<Node> read_document(const Source& source, Diagnostics* diagnostics);

}  // namespace muster::config
