// LinePrefixer: splits a rank's output into whole lines, and puts the rank before each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace muster::cli {

// Owns    the unfinished line.
// Thread  one.
// Bound   `line_bytes_max` of a line. A longer one is cut between two letters, with "…" on both sides.
// Fails   never.
class LinePrefixer {
 public:
  // The treatment of a progress line that draws over itself with carriage returns.
  enum class CarriageReturn : std::uint8_t { kShowLast, kPassThrough };
  static constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

  LinePrefixer(std::string prefix, CarriageReturn carriage_return, std::size_t line_bytes_max = kLineBytesMax)
      : prefix_(std::move(prefix)), carriage_return_(carriage_return), line_bytes_max_(line_bytes_max) {}

  // Returns what can be printed now.
  std::string feed(std::string_view bytes);
  // Returns the unfinished line, as a line.
  std::string finish();

 private:
  void take(char c, std::string* out);
  void emit(char end, std::string* out);
  void cut(std::string* out);

  std::string prefix_;
  CarriageReturn carriage_return_;
  std::size_t line_bytes_max_;
  std::string line_;
  bool returned_ = false;  // the last byte was a carriage return whose meaning is still open
};

}  // namespace muster::cli
