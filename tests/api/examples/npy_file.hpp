// Fields as .npy files for tests of winds.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace winds::test {

// The header and the values of months of smooth waves, [months, 9, rows, columns]. The shape may be said
// otherwise.
struct NpyFile {
  std::int64_t months = 2, rows = 33, columns = 48;
  std::string type = "'<f4'", order = "False";
  std::string shape = {};  // empty: as it is

  std::vector<float> values() const {
    std::vector<float> all;
    for (std::int64_t month = 0; month < months; ++month)
      for (std::int64_t variable = 0; variable < 9; ++variable)
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t column = 0; column < columns; ++column)
            all.push_back(value(month, variable, row, column));
    return all;
  }
  float value(std::int64_t month, std::int64_t variable, std::int64_t row, std::int64_t column) const {
    const double north =
        std::sin(3.0 * static_cast<double>(row) / static_cast<double>(rows) + static_cast<double>(month));
    const double east = std::cos(6.283185307179586 * static_cast<double>(column * (1 + variable % 3)) /
                                 static_cast<double>(columns));
    return static_cast<float>((variable < 6 ? 10.0 : 1000.0) *
                              (north + 0.5 * east * (1.0 + 0.1 * static_cast<double>(variable))));
  }
  std::string header() const {
    std::string said = shape;
    if (said.empty())
      said = "(" + std::to_string(months) + ", 9, " + std::to_string(rows) + ", " + std::to_string(columns) +
             ")";
    std::string text = "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + said + ", }";
    while ((10 + text.size() + 1) % 64 != 0) text += ' ';
    text += '\n';
    const auto length = static_cast<std::uint16_t>(text.size());
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 255) +
           static_cast<char>(length >> 8) + text;
  }
  void write(const std::string& path) const { write(path, values()); }
  void write(const std::string& path, const std::vector<float>& values) const {
    std::ofstream file(path, std::ios::binary);
    const std::string start = header();
    file.write(start.data(), static_cast<std::streamsize>(start.size()));
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
};

}  // namespace winds::test
