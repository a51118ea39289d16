#include "api/examples/train_lm/mesh.hpp"

#include <algorithm>

namespace train_lm {

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

}  // namespace train_lm
