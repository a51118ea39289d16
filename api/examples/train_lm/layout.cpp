#include "api/examples/train_lm/layout.hpp"

#include <algorithm>

namespace train_lm {

Chunk ceil_chunk(std::int64_t total, std::int64_t parts, std::int64_t index) {
  const std::int64_t size = ceil_div(total, parts);
  const std::int64_t begin = std::min(total, index * size);
  return {begin, std::min(total, begin + size) - begin};
}

Box gathered_box(const Parameter& parameter, const Axis& tp) {
  Box box{{0, parameter.rows}, {0, parameter.columns}};
  if (parameter.cut == Cut::kRows) box.rows = ceil_chunk(parameter.rows, tp.size, tp.coordinate);
  if (parameter.cut == Cut::kColumns) box.columns = ceil_chunk(parameter.columns, tp.size, tp.coordinate);
  return box;
}

Box owned_box(const Parameter& parameter, const Layout& layout) {
  Box box = gathered_box(parameter, layout.tp);
  const Chunk mine = ceil_chunk(box.rows.count, layout.dp_shard.size, layout.dp_shard.coordinate);
  box.rows = {box.rows.begin + mine.begin, mine.count};
  return box;
}

UnitLayout::UnitLayout(const std::vector<Parameter>& parameters, const Layout& layout)
    : shards(layout.dp_shard.size) {
  for (const Parameter& parameter : parameters) {
    Place place;
    place.gathered = gathered_box(parameter, layout.tp);
    place.owned = owned_box(parameter, layout);
    place.chunk_rows = ceil_div(place.gathered.rows.count, shards);
    place.shard_offset = shard_elements;
    place.gathered_offset = gathered_elements;
    shard_elements += place.chunk_elements();
    gathered_elements += place.gathered.elements();
    if (!parameter.is_norm()) matrix_elements = shard_elements;
    places.push_back(place);
  }
}

std::vector<BlockCopy> UnitLayout::copies() const {
  std::vector<BlockCopy> copies;
  for (const Place& place : places) {
    const std::int64_t chunk = place.chunk_elements();
    const std::int64_t full = chunk == 0 ? 0 : place.gathered.elements() / chunk;
    const std::int64_t rest = place.gathered.elements() - full * chunk;
    if (full > 0) copies.push_back({full, chunk, place.shard_offset, shard_elements, place.gathered_offset});
    if (rest > 0)
      copies.push_back({1, rest, place.shard_offset + full * shard_elements, shard_elements,
                        place.gathered_offset + full * chunk});
  }
  return copies;
}

}  // namespace train_lm
