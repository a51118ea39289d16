#include "api/examples/train_lm/mesh.hpp"

#include <algorithm>
#include <utility>

namespace train_lm {

using namespace training;

Chunk ceil_chunk(std::int64_t total, std::int64_t parts, std::int64_t index) {
  const std::int64_t size = ceil_div(total, parts);
  const std::int64_t begin = std::min(total, index * size);
  return {begin, std::min(total, begin + size) - begin};
}

Chunk even_chunk(std::int64_t total, std::int64_t parts, std::int64_t index) {
  const std::int64_t each = total / parts;
  const std::int64_t more = total % parts;
  return {index * each + std::min(index, more), each + (index < more ? 1 : 0)};
}

std::string Mesh::text() const {
  return "dp_replicate=" + std::to_string(dp_replicate.size) + ",dp_shard=" + std::to_string(dp_shard.size) +
         ",cp=" + std::to_string(cp.size) + ",tp=" + std::to_string(tp.size);
}

Mesh smaller_mesh(const Mesh& mesh, std::int64_t ranks, const std::function<bool(const Mesh&)>& suits) {
  for (const auto& [cp, tp] : {std::pair(mesh.cp.size, mesh.tp.size), {1, mesh.tp.size}, {1, 1}})
    for (std::int64_t dp = ranks / (cp * tp); dp > 0; --dp)
      for (const std::int64_t shard : {tp == mesh.tp.size ? mesh.dp_shard.size : dp, dp}) {
        Mesh smaller;
        smaller.dp_replicate.size = dp / shard;
        smaller.dp_shard.size = shard;
        smaller.cp.size = cp;
        smaller.tp.size = tp;
        if (dp % shard == 0 && suits(smaller)) return smaller;
      }
  return {};
}

}  // namespace train_lm
