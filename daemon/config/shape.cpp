#include "daemon/config/shape.hpp"

#include "api/base/assert.hpp"
#include "api/base/spelling.hpp"
#include "daemon/config/diagnostic.hpp"

#include <algorithm>

namespace muster::config {
namespace {

constexpr Key kRoot{"", Key::Kind::kSection, Key::Presence::kRequired, "", 0, 0, "", "The whole file."};

// Splits "nodes[].devices.count" into "nodes", "[]", "devices", "count".
std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at < path.size()) {
    if (path[at] == '.') ++at;
    const std::size_t end =
        path[at] == '[' ? path.find(']', at) + 1 : std::min(path.find_first_of(".[", at), path.size());
    parts.emplace_back(path.substr(at, end - at));
    at = end;
  }
  return parts;
}

// Replaces indices and chosen names by "[]" and "*".
std::string without_indices(std::string_view path) {
  std::string out;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) out += c;
    if (c == '[') inside = true;
  }
  return out;
}

std::ptrdiff_t dots(std::string_view path) {
  return std::count(path.begin(), path.end(), '.');
}

std::string_view last_part(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

Shape::Shape(std::span<const Key> keys) : key_(&kRoot) {
  for (const Key& key : keys) {
    const std::vector<std::string> parts = parts_of(key.path);
    Shape* parent = this;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      parent = const_cast<Shape*>(parent->find(parts[i]));
      MUSTER_ASSERT(parent != nullptr);
    }
    MUSTER_ASSERT(!parts.empty() && parent->find(parts.back()) == nullptr);
    parent->children_.push_back(Shape(key, parts.back()));
  }
}

const Shape* Shape::find(std::string_view name) const {
  for (const Shape& child : children_)
    if (child.name_ == name) return &child;
  return nullptr;
}

std::vector<std::string> Shape::names() const {
  std::vector<std::string> names;
  for (const Shape& child : children_) names.push_back(child.name_);
  return names;
}

const Key* find_key(std::span<const Key> keys, std::string_view path) {
  const std::string wanted = without_indices(path);
  for (const Key& key : keys) {
    if (key.path == wanted) return &key;
    // "flatten.dp_tp" matches "flatten.*".
    if (key.path.ends_with(".*")) {
      const std::string_view stem = key.path.substr(0, key.path.size() - 1);
      if (wanted.starts_with(stem) && wanted.find_first_of(".[", stem.size()) == std::string::npos)
        return &key;
    }
  }
  return nullptr;
}

std::optional<std::string> closest_path(std::span<const Key> keys, std::string_view path) {
  const std::string wanted = without_indices(path);
  std::vector<std::string> paths, same_leaf;
  for (const Key& key : keys) {
    // The section of a key does not help a user who looks for the key, so compare keys of equal depth.
    if (dots(key.path) == dots(wanted)) paths.emplace_back(key.path);
    if (last_part(key.path) == last_part(wanted)) same_leaf.emplace_back(key.path);
  }
  // The right word in the wrong section is the most common mistake.
  if (same_leaf.size() == 1) return same_leaf.front();
  return closest(wanted, paths);
}

}  // namespace muster::config
