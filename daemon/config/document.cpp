#include "daemon/config/document.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <istream>
#include <streambuf>
#include <unordered_map>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace muster::config {
namespace {

std::optional<Complaint> bad_character(std::string_view text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte == 0) return Complaint{"a NUL byte", "this is no text file; save it as UTF-8", i};
  const bool newline = byte == '\n' || (byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n');
  if (byte < 0x20 && byte != '\t' && !newline)
    return Complaint{fmt::format("the control character 0x{:02x}", byte), "remove it", i};
  const bool second_set =
      byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
  if (second_set && utf8_length(text, i) != 0) return Complaint{"a control character", "remove it", i};
  if (byte == 0x7F) return Complaint{"the control character 0x7f", "remove it", i};
  if (utf8_length(text, i) == 0)
    return Complaint{fmt::format("the byte 0x{:02x} is not valid UTF-8", byte), "save the file as UTF-8", i};
  return std::nullopt;
}

// Faults of the text that the library would misread. True if the text may be parsed.
bool check_text(const Source& source, Diagnostics* diagnostics) {
  const std::string& text = source.text();
  const auto refuse = [&](Complaint complaint) {
    const Mark mark = source.mark(complaint.offset);
    diagnostics->add(diagnostic_at(source, mark, "", std::move(complaint)));
  };
  if (text.size() > kTextBytesMax) {
    refuse({fmt::format("the file has {} bytes; at most {} are read", text.size(), kTextBytesMax), "", 0});
    return false;
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    refuse({"a byte order mark", "save the file as UTF-8 without one", 0});
    return false;
  }
  bool indenting = true;
  bool good = true;
  for (std::size_t i = 0; i < text.size(); i += utf8_length(text, i)) {
    if (auto bad = bad_character(text, i)) {
      refuse(std::move(*bad));
      return false;
    }
    const char c = text[i];
    if (indenting && c == '\t') {
      refuse({"a tab in the indentation", "indent with spaces", i});
      good = false;
      indenting = false;  // one complaint a line
      if (diagnostics->full()) return false;
    } else if (c != ' ') {
      indenting = c == '\n';
    }
  }
  return good;
}

// Where the quoted scalar that opens at `offset` closes. The library would accept the end of the file as the
// closing quote.
std::optional<std::size_t> closing_quote(std::string_view text, std::size_t offset) {
  const char quote = text[offset];
  for (std::size_t i = offset + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'') {
        ++i;
        continue;
      }
      return i;
    }
  }
  return std::nullopt;
}

// The first quote at or behind `from` that opens a scalar and is not closed. `from` is not inside a scalar.
std::optional<std::size_t> open_quote(std::string_view text, std::size_t from) {
  for (std::size_t i = from; i < text.size(); ++i) {
    const bool begins = i == 0 || std::string_view(" \t\n[{,").find(text[i - 1]) != std::string_view::npos;
    if (begins && text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (begins && (text[i] == '"' || text[i] == '\'')) {
      const auto end = closing_quote(text, i);
      if (!end) return i;
      i = *end;
    }
  }
  return std::nullopt;
}

// Finds the places of offsets that are near each other. Source::mark counts from the start of the line, which
// may hold the whole file.
//
// Owns    the last place.
// Thread  one.
// Bound   a call costs the distance to the last offset, when both are on one line.
// Fails   never.
class Positions {
 public:
  explicit Positions(const Source& source) : source_(source) {}

  Mark mark(std::size_t offset) {
    const std::string_view text = source_.text();
    const std::size_t low = std::min(offset, offset_), high = std::max(offset, offset_);
    const std::string_view between = text.substr(low, high - low);
    if (between.find('\n') != std::string_view::npos) {
      mark_ = source_.mark(offset);
    } else {
      const auto characters = static_cast<std::uint32_t>(
          std::count_if(between.begin(), between.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      mark_.column = offset >= offset_ ? mark_.column + characters : mark_.column - characters;
    }
    offset_ = offset;
    return mark_;
  }

 private:
  const Source& source_;
  std::size_t offset_ = 0;
  Mark mark_{1, 1};
};

// Builds the tree from the library's events. The events show what its node interface hides: duplicate keys,
// merges, anchors. They also allow to bound depth and size before anything is built.
//
// Owns    the tree until taken.
// Thread  one.
// Bound   kDepthMax open nodes, kNodesMax nodes.
// Fails   with Stop, after adding the reason to the diagnostics.
class Builder final : public YAML::EventHandler {
 public:
  // Ends the parse inside the library's callbacks; the fault is in the diagnostics already.
  struct Stop {};
  Builder(const Source& source, Diagnostics* diagnostics)
      : source_(source), positions_(source), diagnostics_(*diagnostics) {}

  std::optional<Node> take() { return std::move(root_); }

  // The beginning of the node that was read last. A fault of a later node is behind it.
  std::size_t last_offset() const { return last_offset_; }

  // Where the innermost bracket of this kind opens that is not closed yet.
  std::optional<std::size_t> open_bracket(Node::Kind kind) const {
    for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame)
      if (frame->in_brackets && frame->node.kind == kind) return frame->node.offset;
    return std::nullopt;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    const std::size_t at = offset_of(mark);
    if (std::string_view(source_.text()).substr(std::min(at, source_.text().size())).starts_with("---"))
      add(at, {"a second document", "keep one document in a file"});
    else
      add(at, {"this does not belong to what stands above", "check the indentation"});
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { deliver(node(Node::Kind::kNull, mark)); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    add(offset_of(mark), {"aliases ('*name') are not allowed", "write the value out"});
    deliver(node(Node::Kind::kRefused, mark));
  }

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    add(offset_of(mark),
        {fmt::format("anchors ('&{}') are not allowed", name), "write the value out where it is used"});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node scalar = node(Node::Kind::kScalar, mark);
    scalar.text = value;
    scalar.quoted = tag == "!";
    const std::string_view rest = std::string_view(source_.text()).substr(scalar.offset);
    const char first = rest.empty() ? '\0' : rest[0];
    if (refuse_tag(tag, scalar.offset)) {
      scalar.kind = Node::Kind::kRefused;
    } else if (scalar.quoted && (first == '"' || first == '\'') &&
               !closing_quote(source_.text(), scalar.offset)) {
      add(scalar.offset,
          {"this quote is never closed", fmt::format("write {} at the end of the value", first)});
      throw Stop{};
    } else if (!scalar.quoted && anchor == 0 && !rest.starts_with(value)) {
      add(scalar.offset,
          {"the value runs on over several lines", "is a ':' missing in the next line? if not, quote it"});
      scalar.kind = Node::Kind::kRefused;
    }
    deliver(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value style) override {
    open(node(Node::Kind::kList, mark), tag, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value style) override {
    open(node(Node::Kind::kMap, mark), tag, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Key {
    std::string name;
    Mark mark;
    bool kept = true;  // false: a reported fault; its value is read and dropped
  };
  struct Frame {
    Node node;
    std::optional<Key> key;                       // of a map, until its value comes
    std::unordered_map<std::string, Mark> taken;  // keys of a map
    bool in_brackets = false;
  };

  std::size_t offset_of(const YAML::Mark& mark) const {
    return mark.pos < 0 ? source_.text().size() : std::min<std::size_t>(mark.pos, source_.text().size());
  }

  Node node(Node::Kind kind, const YAML::Mark& mark) {
    if (++nodes_ > kNodesMax) {
      add(offset_of(mark),
          {fmt::format("more than {} values", kNodesMax), "split the file, or write ranges"});
      throw Stop{};
    }
    Node made;
    made.kind = kind;
    made.offset = last_offset_ = offset_of(mark);
    made.mark = positions_.mark(made.offset);
    return made;
  }

  bool refuse_tag(const std::string& tag, std::size_t offset) {
    const bool plain = tag.empty() || tag == "?" || (tag == "!" && source_.text()[offset] != '!');
    if (!plain)
      add(offset, {"tags ('!name') are not allowed", "remove it; the type of a value follows from its key"});
    return !plain;
  }

  void open(Node made, const std::string& tag, YAML::EmitterStyle::value style) {
    refuse_tag(tag, made.offset);
    if (frames_.size() == kDepthMax) {
      add(made.offset, {fmt::format("nested deeper than {} levels", kDepthMax), ""});
      throw Stop{};
    }
    frames_.push_back({std::move(made), std::nullopt, {}, style == YAML::EmitterStyle::Flow});
  }

  void close() {
    Node done = std::move(frames_.back().node);
    frames_.pop_back();
    deliver(std::move(done));
  }

  void deliver(Node made) {
    if (frames_.empty()) {
      root_ = std::move(made);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(made));
    } else if (!frame.key) {
      frame.key = key_of(frame, made);
    } else {
      if (frame.key->kept)
        frame.node.fields.push_back({std::move(frame.key->name), frame.key->mark, std::move(made)});
      frame.key.reset();
    }
  }

  Key key_of(Frame& frame, const Node& made) {
    const Key refused{"", made.mark, false};
    if (made.kind == Node::Kind::kRefused) return refused;
    if (made.kind != Node::Kind::kScalar) {
      add(made.offset, {"a key must be a word", ""});
      return refused;
    }
    if (made.text == "<<" && !made.quoted) {
      add(made.offset, {"merges ('<<') are not allowed", "write the keys out"});
      return refused;
    }
    const auto [first, fresh] = frame.taken.emplace(made.text, made.mark);
    if (!fresh) {
      add(made.offset, {fmt::format("key {} is given twice", in_quotes(made.text)),
                        fmt::format("it stands on line {} already", first->second.line)});
      return refused;
    }
    return {made.text, made.mark, true};
  }

  // The path of the present place: "jobs[0].mesh".
  std::string path() const {
    std::string out;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == Node::Kind::kList)
        out += fmt::format("[{}]", frame.node.items.size());
      else if (frame.key)
        out += (out.empty() ? "" : ".") + frame.key->name;
    }
    return out;
  }

  void add(std::size_t offset, Complaint complaint) {
    diagnostics_.add(diagnostic_at(source_, positions_.mark(offset), path(), std::move(complaint)));
    if (diagnostics_.full()) throw Stop{};
  }

  const Source& source_;
  Positions positions_;
  Diagnostics& diagnostics_;
  std::optional<Node> root_;
  std::vector<Frame> frames_;
  std::size_t nodes_ = 0;
  std::size_t last_offset_ = 0;
  std::size_t documents_ = 0;
};

// Rewords the library's message if the usual cause is known. The fault is at `at`, or where an unclosed
// bracket or quote opens.
Complaint syntax_complaint(const std::string& message, std::size_t at, const Builder& builder,
                           std::string_view text) {
  struct Rewording {
    std::string_view theirs, ours, suggestion;
    Node::Kind unclosed = Node::Kind::kNull;
  };
  static constexpr Rewording kRewordings[] = {
      {"illegal map value", "a ':' where no key can stand", "check the indentation, or quote the value"},
      {"end of map not found", "this does not continue the map above", "check the indentation"},
      {"end of sequence not found", "this does not continue the list above", "check the indentation"},
      {"end of map flow not found", "'{' is not closed", "write '}'", Node::Kind::kMap},
      {"end of sequence flow not found", "'[' is not closed", "write ']'", Node::Kind::kList},
      {"illegal EOF in scalar", "this quote is never closed", "write it at the end of the value too",
       Node::Kind::kScalar},
      {"illegal flow end", "a closing bracket without its opening one", ""},
      {"unknown token", "a value cannot start with this character", "quote the value"},
      {"the referenced anchor is not defined", "aliases ('*name') are not allowed", "write the value out"},
  };
  for (const Rewording& row : kRewordings)
    if (message.starts_with(row.theirs)) {
      const auto opens = row.unclosed == Node::Kind::kScalar ? open_quote(text, builder.last_offset())
                                                             : builder.open_bracket(row.unclosed);
      return {std::string(row.ours), std::string(row.suggestion), opens.value_or(at)};
    }
  return {message, "", at};
}

// Reads a text in place; std::istringstream would copy the text.
class TextBuffer final : public std::streambuf {
 public:
  explicit TextBuffer(const std::string& text) {
    char* begin = const_cast<char*>(text.data());  // a get area is never written to
    setg(begin, begin, begin + text.size());
  }
};

}  // namespace

const Node* Node::find(std::string_view name) const {
  for (const Field& field : fields)
    if (field.name == name) return &field.value;
  return nullptr;
}

std::optional<Node> read_document(const Source& source, Diagnostics* diagnostics) {
  if (!check_text(source, diagnostics)) return std::nullopt;
  Builder builder(source, diagnostics);
  try {
    TextBuffer buffer(source.text());
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    // The second call finds out whether another document follows, which OnDocumentStart refuses. Never a
    // loop: on some texts the library delivers empty documents for ever.
    if (parser.HandleNextDocument(builder)) parser.HandleNextDocument(builder);
  } catch (const Builder::Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    const std::size_t end = source.text().size();
    const std::size_t at = error.mark.pos < 0 ? end : std::min<std::size_t>(error.mark.pos, end);
    Complaint complaint = syntax_complaint(error.msg, at, builder, source.text());
    const Mark mark = source.mark(complaint.offset);
    diagnostics->add(diagnostic_at(source, mark, "", std::move(complaint)));
    return std::nullopt;
  }
  std::optional<Node> root = builder.take();
  if (!root) {
    root.emplace();
    root->kind = Node::Kind::kMap;
    root->mark = {1, 1};
  }
  return root;
}

}  // namespace muster::config
