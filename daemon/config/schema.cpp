#include "daemon/config/schema.hpp"

#include "daemon/config/quantity.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/shape.hpp"

#include <nlohmann/json.hpp>

namespace muster::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNamePattern = "^[A-Za-z0-9][A-Za-z0-9_.-]*$";
constexpr const char* kEmptyOrNamePattern = "^([A-Za-z0-9][A-Za-z0-9_.-]*)?$";

Json schema_of(const Shape& shape);

void add_section(const Shape& shape, Json* out) {
  (*out)["type"] = "object";
  (*out)["additionalProperties"] = false;
  Json properties = Json::object();
  Json required = Json::array();
  for (const Shape& child : shape.children()) {
    properties[child.name()] = schema_of(child);
    if (child.key().presence == Presence::kRequired) required.push_back(child.name());
  }
  (*out)["properties"] = std::move(properties);
  if (!required.empty()) (*out)["required"] = std::move(required);
}

void add_text(const Key& key, const char* pattern, Json* out) {
  (*out)["type"] = "string";
  if (pattern != nullptr) (*out)["pattern"] = pattern;
  if (key.low > 0) (*out)["minLength"] = key.low;
  (*out)["maxLength"] = key.high;
}

void add_kind(const Shape& shape, Json* out) {
  const Key& key = shape.key();
  switch (key.kind) {
    case Kind::kSection:
      add_section(shape, out);
      break;
    case Kind::kList:
      (*out)["type"] = "array";
      (*out)["minItems"] = key.low;
      (*out)["maxItems"] = key.high;
      (*out)["items"] = schema_of(shape.children().front());
      break;
    case Kind::kNames:
      (*out)["type"] = "object";
      (*out)["maxProperties"] = key.high;
      (*out)["propertyNames"] = {{"pattern", kNamePattern}, {"maxLength", 63}};
      (*out)["additionalProperties"] = schema_of(shape.children().front());
      break;
    case Kind::kText:
    case Kind::kHosts:
      add_text(key, nullptr, out);
      break;
    case Kind::kName:
      add_text(key, key.low == 0 ? kEmptyOrNamePattern : kNamePattern, out);
      break;
    case Kind::kPath:
      add_text(key, key.low == 0 ? "^(/.*)?$" : "^/", out);
      break;
    case Kind::kFlag:
      (*out)["type"] = "boolean";
      break;
    case Kind::kInteger:
      (*out)["type"] = "integer";
      (*out)["minimum"] = key.low;
      (*out)["maximum"] = key.high;
      break;
    case Kind::kBytes:
      (*out)["type"] = "string";
      (*out)["pattern"] = bytes_pattern();
      break;
    case Kind::kDuration:
      (*out)["type"] = "string";
      (*out)["pattern"] = duration_pattern();
      break;
    case Kind::kChoice:
      (*out)["enum"] = choices_of(key);
      break;
    case Kind::kMode:
      (*out)["type"] = "string";
      (*out)["pattern"] = "^0[0-7]{3}$";
      break;
  }
}

void add_default(const Key& key, Json* out) {
  const bool text_kind = key.kind == Kind::kName || key.kind == Kind::kPath || key.kind == Kind::kText;
  if (!key.leaf() || key.presence == Presence::kRequired) return;
  if (key.fallback.empty() && !(text_kind && key.low == 0)) return;
  const auto value = read_scalar(key, key.fallback, Spelling::kGiven);
  if (key.kind == Kind::kInteger)
    (*out)["default"] = value->number;
  else if (key.kind == Kind::kFlag)
    (*out)["default"] = value->number != 0;
  else
    (*out)["default"] = key.fallback;
}

Json schema_of(const Shape& shape) {
  Json out;
  const Key& key = shape.key();
  const std::string range = range_text(key);
  out["description"] = range.empty() ? std::string(key.sentence) : fmt::format("{} {}.", key.sentence, range);
  add_kind(shape, &out);
  add_default(key, &out);
  return out;
}

}  // namespace

std::string json_schema(std::span<const Key> keys, const std::string& id, const std::string& title) {
  Json out;
  out["$schema"] = "http://json-schema.org/draft-07/schema#";
  out["$id"] = id;
  out["title"] = title;
  add_section(Shape(keys), &out);
  return out.dump(2) + "\n";
}

}  // namespace muster::config
