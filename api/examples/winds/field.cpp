#include "api/examples/winds/field.hpp"

#include "api/examples/training/errors.hpp"
#include "api/examples/training/random.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace winds {

using namespace training;

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kRowsMin = 16;  // three levels, each with a window
constexpr std::int64_t kColumnsMin = 16;
constexpr std::int64_t kHeaderMax = 4096;  // bytes; NumPy's has some 100
constexpr std::int64_t kPointsMax = std::int64_t{1} << 40;

class File {
 public:
  explicit File(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) throw UsageError("cannot read the field " + path + ": " + std::strerror(errno));
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const {
    struct stat state {};
    if (::fstat(file_, &state) != 0 || !S_ISREG(state.st_mode))
      throw UsageError("the field " + path_ + " is no regular file");
    return state.st_size;
  }
  void read(std::int64_t at, void* to, std::size_t bytes) const {
    auto* next = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t done = ::pread(file_, next, bytes, at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        throw std::runtime_error("cannot read the field " + path_ + " at byte " + std::to_string(at) + ": " +
                                 (done < 0 ? std::strerror(errno) : "it has become shorter"));
      next += done;
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }

 private:
  std::string path_;
  int file_;
};

// The header of an .npy file: a dictionary of Python, of which three entries matter.
struct Header {
  std::string text;
  std::int64_t begin = 0;  // byte of the first value
};

Header header_of(const File& file) {
  const auto no_npy = [&] { return UsageError("the field " + file.path() + " is no .npy file"); };
  unsigned char start[12] = {};
  const std::int64_t size = file.size();
  if (size < static_cast<std::int64_t>(sizeof start)) throw no_npy();
  file.read(0, start, sizeof start);
  if (std::memcmp(start, kMagic.data(), kMagic.size()) != 0) throw no_npy();
  const bool is_long = start[6] > 1;  // the format's version
  std::int64_t length = start[8] | start[9] << 8;
  if (is_long)
    length |= static_cast<std::int64_t>(start[10]) << 16 | static_cast<std::int64_t>(start[11]) << 24;
  const std::int64_t first = is_long ? 12 : 10;
  if (length > size - first) throw UsageError("the field " + file.path() + " ends within its header");
  if (length > kHeaderMax)
    throw UsageError("the field " + file.path() + " has a header of " + std::to_string(length) +
                     " bytes; it must be " + std::to_string(kHeaderMax) + " at most");
  Header header{std::string(static_cast<std::size_t>(length), ' '), first + length};
  file.read(first, header.text.data(), header.text.size());
  return header;
}

// The numbers of "'shape': (2, 9, 241, 480)"; none, if it is not of that form.
std::vector<std::int64_t> shape_of(const std::string& header) {
  constexpr std::string_view kName = "'shape':";
  std::vector<std::int64_t> shape;
  std::size_t at = header.find(kName);
  if (at == std::string::npos) return {};
  const std::size_t begin = header.find_first_not_of(' ', at + kName.size());
  if (begin == std::string::npos || header[begin] != '(') return {};
  const std::size_t end = header.find(')', begin);
  if (end == std::string::npos) return {};
  for (at = begin + 1; at < end;) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(header.data() + at, header.data() + end, number);
    if (error != std::errc()) return {};
    shape.push_back(number);
    at = static_cast<std::size_t>(stop - header.data());
    if (at < end && header[at] != ',') return {};
    at = std::min(end, header.find_first_not_of(' ', at + 1));
  }
  return shape;
}

class NpyField final : public Field {
 public:
  explicit NpyField(const std::string& path) : file_(path) {
    const Header header = header_of(file_);
    begin_ = header.begin;
    const std::vector<std::int64_t> shape = shape_of(header.text);
    std::string text;
    std::int64_t points = 1;
    for (const std::int64_t each : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(each);
      points = each > 0 && points <= kPointsMax / each ? points * each : 0;
    }
    const auto refuse = [&](const std::string& what) { throw UsageError("the field " + path + " " + what); };
    if (header.text.find("'descr': '<f4'") == std::string::npos)
      refuse("is not of float32, little-endian ('<f4')");
    if (header.text.find("'fortran_order': False") == std::string::npos) refuse("is not in C order");
    if (shape.size() != 4 || shape[1] != kVariables || shape[0] < 2 || shape[2] < kRowsMin ||
        shape[3] < kColumnsMin || points == 0)
      refuse("has the shape (" + text +
             "); it must be (months, 9, latitudes, longitudes), with two months or more and " +
             std::to_string(kRowsMin) + " x " + std::to_string(kColumnsMin) + " points or more");
    if (const std::int64_t need = begin_ + points * 4; file_.size() < need)
      refuse("is cut off: it has " + std::to_string(file_.size()) + " bytes of " + std::to_string(need));
    grid_ = {shape[0], shape[2], shape[3]};
    look_for_faults();
  }
  Grid grid() const override { return grid_; }
  void row(std::int64_t month, std::int64_t variable, std::int64_t row,
           std::span<float> values) const override {
    const std::int64_t index = (month * kVariables + variable) * grid_.rows + row;
    file_.read(begin_ + index * grid_.columns * 4, values.data(), values.size_bytes());
  }

 private:
  void look_for_faults() const {
    std::vector<float> values(static_cast<std::size_t>(grid_.columns));
    for (std::int64_t month = 0; month < grid_.months; ++month)
      for (std::int64_t variable = 0; variable < kVariables; ++variable)
        for (std::int64_t row = 0; row < grid_.rows; ++row) {
          this->row(month, variable, row, values);
          for (std::size_t column = 0; column < values.size(); ++column)
            if (!std::isfinite(values[column]))
              throw UsageError("the field " + file_.path() + " has a value that is not finite at [" +
                               std::to_string(month) + ", " + std::to_string(variable) + ", " +
                               std::to_string(row) + ", " + std::to_string(column) + "]");
        }
  }
  File file_;
  std::int64_t begin_ = 0;
  Grid grid_;
};

constexpr double kRadius = 6.371e6;     // of the earth, in m
constexpr double kRotation = 7.292e-5;  // in 1/s
constexpr double kPi = std::numbers::pi;

// Winds that follow a stream function: a jet in each hemisphere, and vortices. The geopotential is in balance
// with them, as far as f times the stream function is.
class VortexField final : public Field {
 public:
  explicit VortexField(std::uint64_t seed) {
    const training::CounterRandom random(seed, "vortices");
    for (std::size_t i = 0; i < kVortices * 2; ++i) {
      const std::uint64_t at = i * 4;
      vortices_.push_back({(random.uniform(at) - 0.5) * 0.8 * kPi, random.uniform(at + 1) * 2.0 * kPi,
                           6e6 * (random.uniform(at + 2) - 0.5) * 2.0, 0.1 + 0.15 * random.uniform(at + 3)});
    }
    values_.resize(static_cast<std::size_t>(kGrid.months * kVariables * kGrid.rows * kGrid.columns));
    const auto columns = static_cast<std::size_t>(kGrid.columns);
    std::size_t at = 0;
    for (std::int64_t month = 0; month < kGrid.months; ++month)
      for (std::int64_t variable = 0; variable < kVariables; ++variable)
        for (std::int64_t row = 0; row < kGrid.rows; ++row, at += columns)
          make_row(month, variable, row, std::span(values_).subspan(at, columns));
  }
  Grid grid() const override { return kGrid; }
  void row(std::int64_t month, std::int64_t variable, std::int64_t row,
           std::span<float> values) const override {
    const std::int64_t first = ((month * kVariables + variable) * kGrid.rows + row) * kGrid.columns;
    std::copy_n(values_.begin() + first, values.size(), values.begin());
  }

 private:
  void make_row(std::int64_t month, std::int64_t variable, std::int64_t row, std::span<float> values) const {
    const double latitude = kGrid.latitude(row), level = 1.0 - 0.3 * static_cast<double>(variable % kLevels);
    const std::int64_t kind = variable / kLevels;
    for (std::size_t column = 0; column < values.size(); ++column) {
      const double longitude = kGrid.column_angle() * static_cast<double>(column), d = 1e-4;
      const auto stream = [&](double north, double east) {
        return level * this->stream(month, latitude + north, longitude + east);
      };
      double value = 0.0;
      if (kind == 0) value = -(stream(d, 0.0) - stream(-d, 0.0)) / (2.0 * d * kRadius);
      if (kind == 1)
        value = (stream(0.0, d) - stream(0.0, -d)) / (2.0 * d * kRadius * std::max(0.05, std::cos(latitude)));
      if (kind == 2) value = 1e5 * level + 2.0 * kRotation * std::sin(latitude) * stream(0.0, 0.0);
      values[column] = static_cast<float>(value);
    }
  }

  static constexpr Grid kGrid{2, 91, 180};
  static constexpr std::size_t kVortices = 24;
  struct Vortex {
    double latitude, longitude, strength, width;
  };
  double stream(std::int64_t month, double latitude, double longitude) const {
    const double season = month % 2 == 0 ? 0.1 : -0.1;
    double sum = -1.5e8 * std::sin(latitude + season) * std::abs(std::sin(latitude));
    for (std::size_t i = 0; i < kVortices; ++i) {
      const Vortex& vortex = vortices_[static_cast<std::size_t>(month) % 2 * kVortices + i];
      const double away =
          1.0 - std::sin(latitude) * std::sin(vortex.latitude) -
          std::cos(latitude) * std::cos(vortex.latitude) * std::cos(longitude - vortex.longitude);
      sum += 5.0 * vortex.strength * std::exp(-away / (vortex.width * vortex.width));
    }
    return sum;
  }
  std::vector<Vortex> vortices_;
  std::vector<float> values_;
};

}  // namespace

double Grid::latitude(std::int64_t row) const {
  return kPi / 2 - kPi * static_cast<double>(row) / static_cast<double>(rows - 1);
}
double Grid::weight(std::int64_t row) const {
  return std::max(0.0, std::cos(latitude(row)));
}
double Grid::column_angle() const {
  return 2.0 * kPi / static_cast<double>(columns);
}

std::unique_ptr<Field> open_field(const std::string& path) {
  return std::make_unique<NpyField>(path);
}
std::unique_ptr<Field> make_vortices(std::uint64_t seed) {
  return std::make_unique<VortexField>(seed);
}

}  // namespace winds
