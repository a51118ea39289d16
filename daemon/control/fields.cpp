#include "daemon/control/fields.hpp"

#include "daemon/control/packet.hpp"

#include <nlohmann/json.hpp>

namespace muster::control {

bool Fields::has(const Json& from, const char* name) {
  return from.is_object() && from.contains(name);
}

bool Fields::is_text(const Json& from, const char* name, const char* text) {
  const Json& field = at(from, name);
  return field.is_string() && field.get_ref<const std::string&>() == text;
}

const Json& Fields::at(const Json& from, const char* name) {
  static const Json kNothing;
  return has(from, name) ? *from.find(name) : kNothing;
}

void Fields::bad(const char* name) {
  if (why_.ok()) why_ = failure(Code::kProtocol, "{} has no '{}', or a bad one", what_, name);
}

std::uint64_t Fields::number(const Json& from, const char* name, std::uint64_t most) {
  const Json& field = at(from, name);
  const bool negative = !field.is_number_unsigned() && field.is_number_integer() && field < 0;
  if (field.is_number_integer() && !negative && field.get<std::uint64_t>() <= most)
    return field.get<std::uint64_t>();
  bad(name);
  return 0;
}

std::uint32_t Fields::word(const Json& from, const char* name, std::uint32_t most) {
  return static_cast<std::uint32_t>(number(from, name, most));
}

std::int32_t Fields::index(const Json& from, const char* name) {
  const Json& field = at(from, name);
  if (field.is_number_integer() && field == -1) return -1;
  return static_cast<std::int32_t>(number(from, name, std::numeric_limits<std::int32_t>::max()));
}

bool Fields::yes(const Json& from, const char* name) {
  const Json& field = at(from, name);
  if (!field.is_boolean()) bad(name);
  return field.is_boolean() && field.get<bool>();
}

std::string Fields::text(const Json& from, const char* name, std::size_t most) {
  const Json& field = at(from, name);
  if (field.is_string()) return field.get_ref<const std::string&>().substr(0, most);
  bad(name);
  return {};
}

const Json& Fields::list(const Json& from, const char* name) {
  static const Json kNone = Json::array();
  const Json& field = at(from, name);
  if (field.is_array()) return field;
  bad(name);
  return kNone;
}

const Json& Fields::map(const Json& from, const char* name) {
  static const Json kNone = Json::object();
  const Json& field = at(from, name);
  if (field.is_object()) return field;
  bad(name);
  return kNone;
}

std::vector<std::uint32_t> Fields::ranks(const Json& from, const char* name, std::uint32_t world) {
  std::vector<std::uint32_t> all;
  for (const Json& entry : list(from, name)) {
    const bool good = entry.is_number_unsigned() && entry.get<std::uint64_t>() < world;
    if (!good) bad(name);
    if (good) all.push_back(entry.get<std::uint32_t>());
  }
  return all;
}

Result<Json> json_in(const std::string& text, std::size_t items_max, const std::string& what) {
  std::size_t items = 0;
  bool within = true;
  // False drops a value, so that what is too much takes no memory.
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    within = within && depth <= kBodyDepthMax && ++items <= items_max;
    return within;
  };
  Json json = Json::parse(text, keep, false);
  if (!within)
    return fail(Code::kProtocol, "{} is deeper than {} levels, or of more than {} values", what,
                kBodyDepthMax, items_max);
  if (json.is_discarded()) return fail(Code::kProtocol, "{} is not JSON", what);
  return json;
}

}  // namespace muster::control
