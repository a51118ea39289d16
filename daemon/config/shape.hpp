// Shape: the keys of one file as a tree, by their paths.
#pragma once

#include "daemon/config/key.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::config {

// Owns    its children; points to keys that outlive it.
// Thread  a value; any.
// Bound   the keys it was made from.
// Fails   never: a key whose parent is not declared before it is a defect of the table, and asserts.
class Shape {
 public:
  // The root, a section without a name.
  explicit Shape(std::span<const Key> keys);

  const Key& key() const { return *key_; }
  // The last part of the path: "count", "[]" or "*".
  const std::string& name() const { return name_; }
  const std::vector<Shape>& children() const { return children_; }
  const Shape* find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  Shape(const Key& key, std::string name) : key_(&key), name_(std::move(name)) {}

  const Key* key_;
  std::string name_;
  std::vector<Shape> children_;
};

// The key at a path with or without indices ("nodes[0].host" is "nodes[].host"); null when there is none.
const Key* find_key(std::span<const Key> keys, std::string_view path);

// The declared path that the writer of `path` may have meant, if one is close.
std::optional<std::string> closest_path(std::span<const Key> keys, std::string_view path);

}  // namespace muster::config
