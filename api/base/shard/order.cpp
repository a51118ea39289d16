#include "api/base/shard/order.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace muster::shard {
namespace {

// The units of `list` in its order, for as long as they are of at most `depth` modules other than `module`.
template<class List>
std::vector<std::size_t> near(const List& list, std::span<const std::size_t> modules, std::size_t module,
                              std::size_t depth) {
  std::vector<std::size_t> units;
  for (const std::size_t unit : list) {
    if (modules[unit] != module) {
      if (depth == 0) break;
      --depth;
      module = modules[unit];
    }
    if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  }
  return units;
}

}  // namespace

UnitOrder::UnitOrder(std::vector<std::size_t> modules)
    : modules_(std::move(modules)), ends_of_(modules_.size()), latest_(modules_.size()) {}

void UnitOrder::begin_step() {
  if (follows_ && begun_.size() < before_.size() && !begun_.empty()) ++changes_;
  if (!begun_.empty()) before_ = std::exchange(begun_, {});
  ended_.clear();
  for (std::vector<std::size_t>& ends : ends_of_) ends.clear();
  follows_ = !before_.empty();
}

void UnitOrder::begin(std::size_t unit) {
  const std::size_t at = begun_.size();
  begun_.push_back(unit);
  if (!follows_ || (at < before_.size() && before_[at] == unit)) return;
  follows_ = false;
  ++changes_;
}

std::vector<std::size_t> UnitOrder::next(std::size_t depth) const {
  if (!follows_ || begun_.empty()) return {};
  return near(std::span(before_).subspan(begun_.size()), modules_, modules_[begun_.back()], depth);
}

void UnitOrder::end(std::size_t unit) {
  latest_[unit] = ended_.size();
  ends_of_[unit].push_back(ended_.size());
  ended_.push_back({unit});
}

bool UnitOrder::can_go_back(std::size_t unit) const {
  return std::ranges::find(ended_, unit, &Ended::unit) != ended_.end();
}

std::vector<std::size_t> UnitOrder::go_back(std::size_t unit, std::size_t depth) {
  if (ends_of_[unit].empty()) return {};
  const std::size_t at = ends_of_[unit].back();
  ends_of_[unit].pop_back();
  ended_[at].gone_back = true;
  std::vector<std::size_t> earlier;
  for (std::size_t i = at; i-- > 0;)
    if (!ended_[i].gone_back || latest_[ended_[i].unit] == i) earlier.push_back(ended_[i].unit);
  return near(earlier, modules_, modules_[unit], depth);
}

}  // namespace muster::shard
