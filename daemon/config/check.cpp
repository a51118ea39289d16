#include "daemon/config/check.hpp"

#include "api/base/assert.hpp"
#include "api/base/spelling.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/shape.hpp"

namespace muster::config {
namespace {

std::string_view noun(const Node& node) {
  if (node.kind == Node::Kind::kList) return "a list";
  if (node.kind == Node::Kind::kMap) return "a map";
  return node.kind == Node::Kind::kScalar ? "a single value" : "nothing";
}

bool is_null_word(const Node& node) {
  return node.kind == Node::Kind::kScalar && !node.quoted &&
         (node.text.empty() || node.text == "~" || node.text == "null" || node.text == "Null" ||
          node.text == "NULL");
}

// Walks tree and shape together.
//
// Owns    the shape.
// Thread  one.
// Bound   the depth and size that the reader granted; stops when the diagnostics are full.
// Fails   never; it reports.
class Checker {
 public:
  Checker(const Source& source, std::span<const Key> keys, Diagnostics* diagnostics)
      : source_(source), keys_(keys), shape_(keys), diagnostics_(*diagnostics) {}

  void run(Node* root) { visit(shape_, root, "", root->mark); }

 private:
  // `key_mark`: the place of the key, since a missing value has no place of its own.
  void visit(const Shape& shape, Node* node, const std::string& path, Mark key_mark) {
    if (diagnostics_.full() || node->kind == Node::Kind::kRefused) return;
    const Key& key = shape.key();
    if (node->kind == Node::Kind::kNull || is_null_word(*node)) {
      add(key_mark, path, {"has no value", path.empty() ? "" : "give it one or remove the key"});
      return;
    }
    switch (key.kind) {
      case Key::Kind::kSection:
        visit_section(shape, node, path);
        break;
      case Key::Kind::kNames:
        visit_names(shape, node, path);
        break;
      case Key::Kind::kList:
        visit_list(shape, node, path);
        break;
      default:
        visit_leaf(key, node, path);
        break;
    }
  }

  bool expect(Node::Kind kind, const Key& key, const Node& node, const std::string& path) {
    if (node.kind == kind) return true;
    std::string suggestion;
    if (kind == Node::Kind::kList && node.kind == Node::Kind::kMap) suggestion = "put '- ' before it";
    if (kind == Node::Kind::kList && node.kind == Node::Kind::kScalar)
      suggestion = fmt::format("write [{}]", node.text);
    const std::string expected = path.empty() ? "a map of keys ('name: value')" : type_text(key);
    const std::string actual =
        node.kind == Node::Kind::kScalar ? in_quotes(node.text) : std::string(noun(node));
    add(node.mark, path, {fmt::format("expected {}, not {}", expected, actual), suggestion});
    return false;
  }

  void visit_section(const Shape& shape, Node* node, const std::string& path) {
    if (!expect(Node::Kind::kMap, shape.key(), *node, path)) return;
    for (Node::Field& field : node->fields) {
      const std::string below = join(path, field.name);
      if (const Shape* child = shape.find(field.name))
        visit(*child, &field.value, below, field.mark);
      else
        add(field.mark, below, {"unknown key", suggest(shape, field.name, below)});
    }
    for (const Shape& child : shape.children())
      if (child.key().presence == Key::Presence::kRequired && node->find(child.name()) == nullptr)
        add(node->mark, path,
            {fmt::format("the key '{}' is missing", child.name()),
             fmt::format("it is {}", type_text(child.key()))});
  }

  void visit_names(const Shape& shape, Node* node, const std::string& path) {
    if (!expect(Node::Kind::kMap, shape.key(), *node, path)) return;
    static constexpr Key kChosen{"", Key::Kind::kName, Key::Presence::kRequired, "", 1, 63, "", ""};
    if (static_cast<std::int64_t>(node->fields.size()) > shape.key().high)
      add(node->mark, path,
          {fmt::format("{} names; at most {} are allowed", node->fields.size(), shape.key().high), ""});
    for (Node::Field& field : node->fields) {
      const std::string below = join(path, field.name);
      if (auto name = read_scalar(kChosen, field.name, Spelling::kQuoted); !name)
        add(field.mark, below, std::move(name).error());
      visit(shape.children().front(), &field.value, below, field.mark);
    }
  }

  void visit_list(const Shape& shape, Node* node, const std::string& path) {
    if (!expect(Node::Kind::kList, shape.key(), *node, path)) return;
    const auto size = static_cast<std::int64_t>(node->items.size());
    if (size < shape.key().low || size > shape.key().high)
      add(node->mark, path, {fmt::format("expected {}, not {}", type_text(shape.key()), size), ""});
    for (std::size_t i = 0; i < node->items.size(); ++i)
      visit(shape.children().front(), &node->items[i], fmt::format("{}[{}]", path, i), node->items[i].mark);
  }

  void visit_leaf(const Key& key, Node* node, const std::string& path) {
    if (!expect(Node::Kind::kScalar, key, *node, path)) return;
    auto value = read_scalar(key, node->text, node->quoted ? Spelling::kQuoted : Spelling::kPlain);
    if (value) {
      node->value = std::move(*value);
    } else {
      const auto mark = place(*node, value.error().offset);
      add(mark, path, std::move(value).error());
    }
  }

  // Inside a scalar an offset is exact only if the source spells the value as it is read.
  Mark place(const Node& node, std::size_t offset) const {
    const std::size_t begin = node.offset + (node.quoted ? 1 : 0);
    if (offset == 0 || std::string_view(source_.text()).substr(begin, node.text.size()) != node.text)
      return node.mark;
    return source_.mark(begin + offset);
  }

  std::string suggest(const Shape& shape, const std::string& name, const std::string& path) const {
    if (const auto near = closest(name, shape.names())) return did_you_mean(near);
    return did_you_mean(closest_path(keys_, path));
  }

  static std::string join(const std::string& path, const std::string& name) {
    std::string shown;
    for (const char c : name.substr(0, 64))
      shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    return path.empty() ? shown : path + "." + shown;
  }

  void add(Mark mark, const std::string& path, Complaint complaint) {
    diagnostics_.add(diagnostic_at(source_, mark, path, std::move(complaint)));
  }

  const Source& source_;
  std::span<const Key> keys_;
  Shape shape_;
  Diagnostics& diagnostics_;
};

}  // namespace

void check(const Source& source, std::span<const Key> keys, Node* root, Diagnostics* diagnostics) {
  Checker(source, keys, diagnostics).run(root);
}

}  // namespace muster::config
