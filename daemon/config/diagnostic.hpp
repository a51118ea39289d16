// Source and Diagnostic: where a configuration error is, in a form for people and editors.
//
//   musterd.yaml:14:7: error: nodes[0].gpu: unknown key; did you mean 'gpus'?
//     - {gpu: 4}
//        ^
#pragma once

#include "api/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace muster::config {

// A place in a text. Both count from 1; column counts characters, not bytes. Line 0 means "no place".
struct Mark {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  friend bool operator==(Mark, Mark) = default;
};

// A value with its place and its path ("jobs[0].mesh.dims.tp"), so that a later check can point at it.
template<class T>
struct Marked {
  T value{};
  Mark mark;
  std::string path;
};

// A text and its name in messages.
//
// Owns    the text and the offsets of its lines.
// Thread  a value; any.
// Bound   the size of the text.
// Fails   never: a place outside the text is moved to its end.
class Source {
 public:
  Source() : Source("", "") {}
  Source(std::string name, std::string text);

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // Line `number`, counted from 1, without its end; empty when there is none.
  std::string_view line(std::uint32_t number) const;
  // The place of byte `offset`.
  Mark mark(std::size_t offset) const;

 private:
  std::string name_;
  std::string text_;
  std::vector<std::size_t> starts_;  // first byte of each line
};

// The fault of one value, before its place is known.
struct Complaint {
  std::string message;     // "must be 0..1024, is 4096"
  std::string suggestion;  // "write 60s"; may be empty
  std::size_t offset = 0;  // of the fault in the value, in bytes
};

struct Diagnostic {
  std::string file;  // or the flag, or the environment variable
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  std::string path;  // "nodes[0].devices.count"; empty for the document as a whole
  std::string message;
  std::string suggestion;
  std::string source_line;

  // The form at the top of this file; without line and caret if there is no place.
  std::string text() const;
};

Diagnostic diagnostic_at(const Source& source, Mark mark, std::string path, Complaint complaint);

// All faults, in the order of the text.
//
// Owns    its entries.
// Thread  a value; any.
// Bound   kKeptMax entries, the first in the text. One more makes it full, and a reader stops there: each
//         entry may cost a pass over a long line.
// Fails   never.
class Diagnostics {
 public:
  static constexpr std::size_t kKeptMax = 50;

  void add(Diagnostic diagnostic);
  bool empty() const { return entries_.empty(); }
  bool full() const { return full_; }
  std::span<const Diagnostic> entries() const { return entries_; }

  std::string text() const;
  // Code::kConfig with text().
  Status status() const;

 private:
  std::vector<Diagnostic> entries_;  // sorted by line and column
  bool full_ = false;
};

// Quoted for a message, with control characters made visible, cut after 60 characters.
std::string in_quotes(std::string_view text);

}  // namespace muster::config
