#include "daemon/cli/line_prefixer.hpp"

namespace muster::cli {

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
  line_ += c;
  if (line_.size() >= kLineBytesMax) emit('\n', out);
}

void LinePrefixer::emit(char end, std::string* out) {
  *out += prefix_ + line_ + end;
  line_.clear();
}

}  // namespace muster::cli
