#include "daemon/config/diagnostic.hpp"

#include "daemon/config/utf8.hpp"

#include <algorithm>
#include <cctype>
#include <tuple>

namespace muster::config {
namespace {

constexpr std::size_t kShownCharacters = 120;  // of a source line; a longer one is shown around the caret

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

// Byte offset of character `index`.
std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (continues(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

// One character wide and harmless on a terminal: what is no UTF-8 becomes '?', what controls becomes a space.
std::string printable(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t length = utf8_length(line, i);
    const auto byte = static_cast<unsigned char>(line[i]);
    if (length == 0)
      out += '?';
    else if (byte < 0x20 || byte == 0x7F)
      out += ' ';
    else
      out += line.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  return out;
}

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Optimal string alignment: insert, delete, replace, and swap of two neighbours each cost one.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

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
  const std::size_t before = characters(std::string_view(text_).substr(begin, offset - begin));
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

  const std::string whole = printable(source_line);
  const std::size_t caret = column - 1;
  const std::size_t first = caret < kShownCharacters * 3 / 4 ? 0 : caret - kShownCharacters / 2;
  const std::size_t begin = byte_of(whole, first);
  const std::string_view rest = std::string_view(whole).substr(begin);
  const std::string_view shown = rest.substr(0, byte_of(rest, kShownCharacters));
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

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kWordMax = 64;  // longer than any key: no typing error, and the cost is quadratic
  if (word.empty() || word.size() > kWordMax) return std::nullopt;
  const std::size_t allowed = word.size() <= 2 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_edits = allowed + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t n = edits(word, candidate);
    // A replacement of every letter is no resemblance.
    if (n < best_edits && n < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_edits = n;
    }
  }
  if (best || word.size() < 3) return best;
  for (const std::string& candidate : candidates) {
    const bool related =
        candidate.starts_with(word) || word.starts_with(candidate) || candidate.ends_with(word);
    if (!related) continue;
    if (best) return std::nullopt;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(const std::optional<std::string>& candidate) {
  return candidate ? fmt::format("did you mean '{}'?", *candidate) : std::string();
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 60;
  const std::string clean = printable(text);
  if (characters(clean) <= kShown) return "'" + clean + "'";
  return "'" + clean.substr(0, byte_of(clean, kShown)) + "…'";
}

}  // namespace muster::config
