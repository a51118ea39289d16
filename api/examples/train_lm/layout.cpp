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
    place.shard_offset = shard_elements;
    place.gathered_offset = gathered_elements;
    shard_elements += place.owned.elements();
    gathered_elements += place.gathered.elements();
    if (!parameter.is_norm()) matrix_elements = shard_elements;
    places.push_back(place);
  }
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    for (const Place& place : places) {
      const Chunk rows = ceil_chunk(place.gathered.rows.count, shards, shard);
      const std::int64_t columns = place.gathered.columns.count;
      pieces.push_back({static_cast<std::uint64_t>(place.gathered_offset + rows.begin * columns),
                        static_cast<std::uint64_t>(rows.count * columns)});
    }
    piece_counts.push_back(static_cast<std::uint32_t>(places.size()));
  }
}

}  // namespace train_lm
