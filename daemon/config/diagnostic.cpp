#include "daemon/config/diagnostic.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <tuple>

namespace muster::config {
namespace {

constexpr std::size_t kShownCharacters = 120;  // of a source line; a longer one is shown around the caret

}  // namespace

Source::Source(std::string name, std::string text)
    : name_(std::move(name)), text_(std::move(text)), starts_{0} {
  for (std::size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') starts_.push_back(i + 1);
}

std::string_view Source::line(std::uint32_t number) const {
  if (number == 0 || number > starts_.size()) return {};
  const std::size_t begin = starts_[number - 1];
  std::size_t end = number < starts_.size() ? starts_[number] - 1 : text_.size();
  if (end > begin && text_[end - 1] == '\r') --end;
  return std::string_view(text_).substr(begin, end - begin);
}

Mark Source::mark(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  const auto line = static_cast<std::size_t>(after - starts_.begin());
  const std::size_t begin = starts_[line - 1];
  const std::size_t before = utf8_characters(std::string_view(text_).substr(begin, offset - begin));
  return {static_cast<std::uint32_t>(line), static_cast<std::uint32_t>(before + 1)};
}

std::string Diagnostic::text() const {
  std::string out = file;
  if (line != 0) out += fmt::format(":{}:{}", line, column);
  out += ": error: ";
  if (!path.empty()) out += path + ": ";
  out += message;
  if (!suggestion.empty()) out += "; " + suggestion;
  if (line == 0) return out;

  const std::string whole = printable(source_line, Lines::kOne);
  const std::size_t caret = column - 1;
  const std::size_t first = caret < kShownCharacters * 3 / 4 ? 0 : caret - kShownCharacters / 2;
  const std::size_t begin = utf8_offset(whole, first);
  const std::string_view rest = std::string_view(whole).substr(begin);
  const std::string_view shown = rest.substr(0, utf8_offset(rest, kShownCharacters));
  out += fmt::format("\n  {}\n  {}^", shown, std::string(caret - first, ' '));
  return out;
}

Diagnostic diagnostic_at(const Source& source, Mark mark, std::string path, Complaint complaint) {
  return {source.name(),
          mark.line,
          mark.column,
          std::move(path),
          std::move(complaint.message),
          std::move(complaint.suggestion),
          std::string(source.line(mark.line))};
}

void Diagnostics::add(Diagnostic diagnostic) {
  const auto place = [](const Diagnostic& d) { return std::tie(d.line, d.column); };
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), diagnostic,
                                      [&](const auto& a, const auto& b) { return place(a) < place(b); });
  entries_.insert(after, std::move(diagnostic));
  if (entries_.size() > kKeptMax) {
    entries_.pop_back();
    full_ = true;
  }
}

std::string Diagnostics::text() const {
  std::string out;
  for (const Diagnostic& entry : entries_) {
    if (!out.empty()) out += '\n';
    out += entry.text();
  }
  if (full_) out += fmt::format("\nonly the first {} errors are shown; correct these first", kKeptMax);
  return out;
}

Status Diagnostics::status() const {
  return Status(Code::kConfig, text());
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  const std::string clean = printable(text, Lines::kOne);
  if (utf8_characters(clean) <= kShown) return "'" + clean + "'";
  return "'" + clean.substr(0, utf8_offset(clean, kShown)) + "…'";
}

}  // namespace muster::config
