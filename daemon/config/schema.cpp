#include "daemon/config/schema.hpp"

#include "daemon/config/quantity.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/shape.hpp"

#include <nlohmann/json.hpp>

namespace muster::config {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kNamePattern = "^[A-Za-z0-9][A-Za-z0-9_.-]*$";
constexpr const char* kEmptyOrNamePattern = "^([A-Za-z0-9][A-Za-z0-9_.-]*)?$";

OrderedJson schema_of(const Shape& shape);

void add_section(const Shape& shape, OrderedJson* out) {
  (*out)["type"] = "object";
  (*out)["additionalProperties"] = false;
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  for (const Shape& child : shape.children()) {
    properties[child.name()] = schema_of(child);
    if (child.key().presence == Key::Presence::kRequired) required.push_back(child.name());
  }
  (*out)["properties"] = std::move(properties);
  if (!required.empty()) (*out)["required"] = std::move(required);
}

void add_text(const Key& key, const char* pattern, OrderedJson* out) {
  (*out)["type"] = "string";
  if (pattern != nullptr) (*out)["pattern"] = pattern;
  if (key.low > 0) (*out)["minLength"] = key.low;
  (*out)["maxLength"] = key.high;
}

void add_kind(const Shape& shape, OrderedJson* out) {
  const Key& key = shape.key();
  switch (key.kind) {
    case Key::Kind::kSection:
      add_section(shape, out);
      break;
    case Key::Kind::kList:
      (*out)["type"] = "array";
      (*out)["minItems"] = key.low;
      (*out)["maxItems"] = key.high;
      (*out)["items"] = schema_of(shape.children().front());
      break;
    case Key::Kind::kNames:
      (*out)["type"] = "object";
      (*out)["maxProperties"] = key.high;
      (*out)["propertyNames"] = {{"pattern", kNamePattern}, {"maxLength", 63}};
      (*out)["additionalProperties"] = schema_of(shape.children().front());
      break;
    case Key::Kind::kText:
    case Key::Kind::kHosts:
      add_text(key, nullptr, out);
      break;
    case Key::Kind::kName:
      add_text(key, key.low == 0 ? kEmptyOrNamePattern : kNamePattern, out);
      break;
    case Key::Kind::kPath:
      add_text(key, key.low == 0 ? "^(/.*)?$" : "^/", out);
      break;
    case Key::Kind::kFlag:
      (*out)["type"] = "boolean";
      break;
    case Key::Kind::kInteger:
      (*out)["type"] = "integer";
      (*out)["minimum"] = key.low;
      (*out)["maximum"] = key.high;
      break;
    case Key::Kind::kBytes:
      (*out)["type"] = "string";
      (*out)["pattern"] = bytes_pattern();
      break;
    case Key::Kind::kDuration:
      (*out)["type"] = "string";
      (*out)["pattern"] = duration_pattern();
      break;
    case Key::Kind::kChoice:
      (*out)["enum"] = choices_of(key);
      break;
    case Key::Kind::kMode:
      (*out)["type"] = "string";
      (*out)["pattern"] = "^0[0-7]{3}$";
      break;
  }
}

void add_default(const Key& key, OrderedJson* out) {
  const bool text_kind =
      key.kind == Key::Kind::kName || key.kind == Key::Kind::kPath || key.kind == Key::Kind::kText;
  if (!key.leaf() || key.presence == Key::Presence::kRequired) return;
  if (key.fallback.empty() && !(text_kind && key.low == 0)) return;
  const auto value = read_scalar(key, key.fallback, Spelling::kGiven);
  if (key.kind == Key::Kind::kInteger)
    (*out)["default"] = value->number;
  else if (key.kind == Key::Kind::kFlag)
    (*out)["default"] = value->number != 0;
  else
    (*out)["default"] = key.fallback;
}

OrderedJson schema_of(const Shape& shape) {
  OrderedJson out;
  const Key& key = shape.key();
  const std::string range = range_text(key);
  out["description"] = range.empty() ? std::string(key.sentence) : fmt::format("{} {}.", key.sentence, range);
  add_kind(shape, &out);
  add_default(key, &out);
  return out;
}

}  // namespace

std::string json_schema(std::span<const Key> keys, const std::string& id, const std::string& title) {
  OrderedJson out;
  out["$schema"] = "http://json-schema.org/draft-07/schema#";
  out["$id"] = id;
  out["title"] = title;
  add_section(Shape(keys), &out);
  return out.dump(2) + "\n";
}

}  // namespace muster::config
