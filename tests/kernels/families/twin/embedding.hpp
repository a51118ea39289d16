// The embedding of a vocabulary shard as plain loops in double. ids are whole numbers; tables are [rows,
// columns].
#pragma once

#include <cstddef>
#include <vector>

namespace muster::kernels::twin {

struct Shard {
  std::size_t rows, columns;
  double first_id;
};

std::vector<double> embedding_forward(const Shard& shard, const std::vector<double>& ids,
                                      const std::vector<double>& table);
// The summand for the table's gradient.
std::vector<double> embedding_backward(const Shard& shard, const std::vector<double>& ids,
                                       const std::vector<double>& dout);

}  // namespace muster::kernels::twin
