#include "tests/kernels/families/twin/embedding.hpp"

namespace muster::kernels::twin {

std::vector<double> embedding_forward(const Shard& shard, const std::vector<double>& ids,
                                      const std::vector<double>& table) {
  std::vector<double> out(ids.size() * shard.columns);
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t v = 0; v < shard.rows; ++v)
      if (ids[t] == shard.first_id + static_cast<double>(v))
        for (std::size_t d = 0; d < shard.columns; ++d)
          out[t * shard.columns + d] = table[v * shard.columns + d];
  return out;
}

std::vector<double> embedding_backward(const Shard& shard, const std::vector<double>& ids,
                                       const std::vector<double>& dout) {
  std::vector<double> dtable(shard.rows * shard.columns);
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t v = 0; v < shard.rows; ++v)
      if (ids[t] == shard.first_id + static_cast<double>(v))
        for (std::size_t d = 0; d < shard.columns; ++d)
          dtable[v * shard.columns + d] += dout[t * shard.columns + d];
  return dtable;
}

}  // namespace muster::kernels::twin
