#include "daemon/cli/run/line_prefixer.hpp"

#include <algorithm>

namespace muster::cli {
namespace {

const std::string kCut = "…";

// How much of the text is not the beginning of an unfinished letter of UTF-8.
std::size_t whole_letters(std::string_view text) {
  constexpr std::size_t kLetterBytesMax = 4;
  for (std::size_t back = 1; back <= std::min(kLetterBytesMax, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // in the middle of one
    const std::size_t bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return bytes > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) take(c, &out);
  return out;
}

std::string LinePrefixer::finish() {
  std::string out;
  returned_ = false;
  if (!line_.empty()) emit('\n', &out);
  return out;
}

void LinePrefixer::take(char c, std::string* out) {
  if (returned_ && c != '\n' && c != '\r') line_.clear();  // the line is drawn anew
  returned_ = false;
  if (c == '\n') return emit('\n', out);
  if (c == '\r' && carriage_return_ == CarriageReturn::kPassThrough) {
    if (!line_.empty()) emit('\r', out);
    return;
  }
  if (c == '\r') {
    returned_ = true;
    return;
  }
  if (line_.size() >= line_bytes_max_) cut(out);
  line_ += c;
}

void LinePrefixer::cut(std::string* out) {
  const std::size_t whole = whole_letters(line_);
  const std::string rest = line_.substr(whole);
  line_.replace(whole, std::string::npos, kCut);
  emit('\n', out);
  line_ = kCut + rest;
}

void LinePrefixer::emit(char end, std::string* out) {
  *out += prefix_ + line_ + end;
  line_.clear();
}

}  // namespace muster::cli
