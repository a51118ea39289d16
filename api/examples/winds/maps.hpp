// Maps of the winds for the page: what each rank's points are, in a byte each, gathered by the first rank.
#pragma once

#include "api/examples/winds/trainer.hpp"

#include <string>
#include <vector>

namespace winds {

using training::Runtime;

// A part of a map, as the page's script reads it: a byte a point, in base64.
struct MapPart {
  Patch patch;
  std::string truth, result, error;
};
struct Map {
  std::string title;
  double most = 1.0;           // m/s: 0 is -most, and 255 is most
  double most_error = 1.0;     // likewise
  std::vector<MapPart> parts;  // of each rank
};

// The upper winds. After Trainer::judge(). All ranks of `domain` call; those but the first get nothing.
std::vector<Map> gather_maps(Runtime& runtime, const Sharing& sharing, const Trainer& trainer);
// As JSON, for the page.
std::string maps_json(const std::vector<Map>& maps, const Grid& grid);

}  // namespace winds
