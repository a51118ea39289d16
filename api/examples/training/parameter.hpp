// A parameter of a model: its shape, how ranks share it, and what it starts as.
#pragma once

#include <cstdint>
#include <string>

namespace training {

// How a dim of the mesh beside that of the units cuts a parameter. Rows of a weight [out, in] are output
// features: a column-parallel layer of tensor parallelism is kRows here, and a row-parallel one kColumns.
enum class Cut : std::uint8_t { kRows, kColumns, kNone };

struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Cut cut = Cut::kNone;
  double deviation = 0.0;  // of its initial normal distribution; 0: it is a vector
  std::int64_t head = 0;   // whole heads of so many features are cut; 0: single features
  double start = 1.0;      // of a vector's elements

  // The weights of norms, and biases: they are not cut, and do not decay.
  bool is_vector() const { return deviation == 0.0; }
};

}  // namespace training
