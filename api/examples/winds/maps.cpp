#include "api/examples/winds/maps.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

namespace winds {

using namespace training;

namespace {

std::string base64(const std::vector<unsigned char>& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

unsigned char byte_of(double value, double most) {
  const double place = std::isfinite(value) ? (std::clamp(value / most, -1.0, 1.0) + 1.0) * 127.5 : 0.0;
  return static_cast<unsigned char>(std::lround(place));
}

double most_of(Runtime& runtime, const Sharing& sharing, double own) {
  if (sharing.domain.size == 1) return std::max(own, 1e-6);
  const Buffer buffer = runtime.allocate(sizeof(double));
  buffer.as<double>()[0] = own;
  const muster_collective most =
      all_reduce(sharing.domain.group, MUSTER_MAX, muster_view1(buffer.handle, 0, MUSTER_F64, 1));
  check(muster_run(runtime.session(), &most, 0));
  return std::max(buffer.as<double>()[0], 1e-6);
}

nlohmann::json part_json(const MapPart& part) {
  return {{"row", part.patch.row},   {"column", part.patch.column},
          {"rows", part.patch.rows}, {"columns", part.patch.columns},
          {"truth", part.truth},     {"result", part.result},
          {"error", part.error}};
}

std::vector<MapPart> gather(Runtime& runtime, const Sharing& sharing, const MapPart& own) {
  if (sharing.domain.size == 1) return {own};
  const std::string mine = part_json(own).dump();
  const void* all = nullptr;
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(sharing.domain.size) + 1);
  check(muster_object_gather(runtime.session(), sharing.domain.group, 0, mine.data(), mine.size(), &all,
                             offsets.data()));
  std::vector<MapPart> parts;
  for (std::size_t i = 0; all != nullptr && i + 1 < offsets.size(); ++i) {
    const auto* begin = static_cast<const char*>(all);
    const auto part = nlohmann::json::parse(begin + offsets[i], begin + offsets[i + 1]);
    parts.push_back({{part.at("row"), part.at("column"), part.at("rows"), part.at("columns")},
                     part.at("truth"),
                     part.at("result"),
                     part.at("error")});
  }
  return parts;
}

}  // namespace

std::vector<Map> gather_maps(Runtime& runtime, const Sharing& sharing, const Trainer& trainer) {
  std::vector<Map> maps;
  const Patch& patch = trainer.model().patch();
  for (const auto& [wind, title] : {std::pair(std::int64_t{0}, "eastward"), {kLevels, "northward"}}) {
    Map& map = maps.emplace_back(Map{title, 0.0, 0.0, {}});
    for (std::int64_t point = 0; point < patch.points(); ++point) {
      const auto truth = static_cast<double>(trainer.truth(point, wind));
      map.most = std::max(map.most, std::abs(truth));
      map.most_error =
          std::max(map.most_error, std::abs(static_cast<double>(trainer.result(point, wind)) - truth));
    }
    map.most = most_of(runtime, sharing, map.most);
    map.most_error = most_of(runtime, sharing, map.most_error);
    std::vector<unsigned char> truth, result, error;
    for (std::int64_t point = 0; point < patch.points(); ++point) {
      const auto right = static_cast<double>(trainer.truth(point, wind));
      const auto said = static_cast<double>(trainer.result(point, wind));
      truth.push_back(byte_of(right, map.most));
      result.push_back(byte_of(said, map.most));
      error.push_back(byte_of(said - right, map.most_error));
    }
    map.parts = gather(runtime, sharing, {patch, base64(truth), base64(result), base64(error)});
  }
  return maps;
}

std::string maps_json(const std::vector<Map>& maps, const Grid& grid) {
  nlohmann::json all = {{"rows", grid.rows}, {"columns", grid.columns}, {"maps", nlohmann::json::array()}};
  for (const Map& map : maps) {
    nlohmann::json parts = nlohmann::json::array();
    for (const MapPart& part : map.parts) parts.push_back(part_json(part));
    all["maps"].push_back(
        {{"title", map.title}, {"most", map.most}, {"most_error", map.most_error}, {"parts", parts}});
  }
  return all.dump();
}

}  // namespace winds
