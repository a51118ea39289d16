#include "daemon/config/render.hpp"

#include "api/base/spelling.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/config/shape.hpp"
#include "daemon/config/table.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace muster::config {
namespace {

constexpr std::size_t kColumns = 110;

// Wraps `text` into lines that start with `lead` and fit the page.
std::string wrapped(std::string_view text, const std::string& lead) {
  std::string out, line = lead;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (line.size() > lead.size() && line.size() + 1 + word.size() > kColumns) {
      out += line + '\n';
      line = lead;
    }
    if (line.size() > lead.size()) line += ' ';
    line += word;
    at = end + 1;
  }
  return out + line + '\n';
}

std::string_view name_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

// Quotes a value that YAML would not read as this text.
std::string yaml_scalar(const Key& key) {
  if (key.fallback.empty() || key.kind == Key::Kind::kMode) return fmt::format("\"{}\"", key.fallback);
  return std::string(key.fallback);
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string_view origin_word(Resolved::Origin::Kind kind) {
  constexpr std::string_view kWords[] = {"default", "file", "environment", "flag"};
  return kWords[static_cast<std::size_t>(kind)];
}

std::string default_text(const Key& key) {
  if (key.presence == Key::Presence::kRequired) return "required";
  if (!key.fallback.empty()) return fmt::format("default {}", key.fallback);
  const bool text_kind =
      key.kind == Key::Kind::kName || key.kind == Key::Kind::kPath || key.kind == Key::Kind::kText;
  return text_kind && key.low == 0 ? "default empty" : "unset by default";
}

// The keys directly under `path`: "node.workers" under "node", "nodes[]" under "nodes".
std::vector<const Key*> keys_below(std::span<const Key> keys, std::string_view path) {
  std::vector<const Key*> below;
  for (const Key& key : keys) {
    if (!key.path.starts_with(path) || key.path.size() == path.size()) continue;
    const std::string_view rest = key.path.substr(path.size());
    if ((rest[0] == '.' || rest[0] == '[') && rest.find_first_of(".[", 1) == std::string_view::npos)
      below.push_back(&key);
  }
  return below;
}

std::string text_of(const Explanation& explained) {
  const Key& key = *explained.key;
  std::string out = fmt::format("{}\n{}", key.path, wrapped(key.sentence, "  "));
  if (key.leaf()) {
    out += wrapped(fmt::format("{}; {}", type_text(key), default_text(key)), "  ");
    if (explained.setting)
      out += fmt::format("  flag --set {}=…, environment {}=…\n", key.path, variable_of(key.path));
    return out;
  }
  if (key.kind != Key::Kind::kSection)
    out += wrapped(fmt::format("{}; {}", type_text(key), default_text(key)), "  ");
  std::size_t width = 0;
  for (const Key* child : explained.below) width = std::max(width, child->path.size());
  for (const Key* child : explained.below)
    out += fmt::format("  {:{}}  {}\n", child->path, width, child->sentence);
  return out;
}

}  // namespace

std::string settings_yaml() {
  std::string out = wrapped(
      "Settings of musterd. Every key is here, every value is its default: keep the lines that you change. "
      "Sizes and "
      "durations carry their unit. An unknown key or a value out of range stops the daemon before it touches "
      "a device. "
      "A flag is stronger than the environment (MUSTER_SET_node__workers=4), and that than this file; "
      "`muster config "
      "show` prints what is in force and why. This file is generated, and a test compares it.",
      "# ");
  for (const Key& key : settings_keys()) {
    const bool nested = key.path.find('.') != std::string_view::npos;
    const std::string indent = nested ? "  " : "";
    if (!nested) out += '\n';
    std::string comment(key.sentence);
    if (key.kind == Key::Kind::kChoice)
      comment += " One of: " + type_text(key) + ".";
    else if (key.leaf() && key.kind != Key::Kind::kFlag)
      comment += " " + capitalised(type_text(key)) + ".";
    out += wrapped(comment, indent + "# ");
    out += key.leaf() ? fmt::format("{}{}: {}\n", indent, name_of(key.path), yaml_scalar(key))
                      : fmt::format("{}{}:\n", indent, name_of(key.path));
  }
  return out;
}

std::string show(const Resolved& resolved, std::size_t columns) {
  std::vector<Cells> rows;
  for (const Resolved::InForce& line : resolved.in_force) {
    const bool named = line.origin.kind != Resolved::Origin::Kind::kDefault;
    rows.push_back(
        {line.key, line.value.empty() ? "\"\"" : line.value,
         named ? fmt::format("{} {}", origin_word(line.origin.kind), line.origin.text) : "default"});
  }
  return table({}, rows, {columns, {}});
}

std::string show_json(const Resolved& resolved) {
  nlohmann::ordered_json out;
  out["schema_version"] = 1;
  out["settings"] = nlohmann::ordered_json::array();
  for (const Resolved::InForce& line : resolved.in_force) {
    nlohmann::ordered_json entry;
    entry["key"] = line.key;
    entry["value"] = line.value;
    entry["origin"] = origin_word(line.origin.kind);
    entry["source"] = line.origin.text;
    out["settings"].push_back(std::move(entry));
  }
  // Values of flags and the environment may hold any byte.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

tl::expected<Explanation, Complaint> explanation_of(std::string_view path) {
  for (const bool setting : {true, false}) {
    const auto keys = setting ? settings_keys() : cluster_keys();
    const Key* key = find_key(keys, path);
    if (key != nullptr)
      return Explanation{key, setting, key->leaf() ? std::vector<const Key*>() : keys_below(keys, key->path)};
  }
  std::vector<Key> all(settings_keys().begin(), settings_keys().end());
  all.insert(all.end(), cluster_keys().begin(), cluster_keys().end());
  return tl::unexpected(
      Complaint{fmt::format("no key is called {}", in_quotes(path)), did_you_mean(closest_path(all, path))});
}

tl::expected<std::string, Complaint> explain(std::string_view path) {
  const auto explained = explanation_of(path);
  if (!explained) return tl::unexpected(explained.error());
  return text_of(*explained);
}

}  // namespace muster::config
