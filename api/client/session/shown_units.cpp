#include "api/client/session/shown_units.hpp"

#include "api/shm/untrusted.hpp"

namespace muster::client {

void ShownUnits::update(const void* set, const shm::UnitFigures& figures) {
  sets_[set] = figures;
  publish(figures);
}

void ShownUnits::remove(const void* set) {
  sets_.erase(set);
  publish(sets_.empty() ? shm::UnitFigures{} : sets_.begin()->second);
}

void ShownUnits::publish(const shm::UnitFigures& latest) {
  shm::UnitFigures all;
  for (const auto& [set, figures] : sets_) {
    all.whole_bytes += figures.whole_bytes;
    all.place_bytes += figures.place_bytes;
    all.budget_bytes += figures.budget_bytes;
    all.demands += figures.demands;
    all.skipped += figures.skipped;
  }
  const auto store = [](std::uint64_t& word, std::uint64_t value) {
    shm::Published<std::uint64_t>(&word).store(value);
  };
  store(header_->units.whole_bytes, all.whole_bytes);
  store(header_->units.place_bytes, all.place_bytes);
  store(header_->units.budget_bytes, all.budget_bytes);
  store(header_->units.prefetch, latest.prefetch);
  store(header_->units.prefetch_asked, latest.prefetch_asked);
  store(header_->units.demands, all.demands);
  store(header_->units.skipped, all.skipped);
}

}  // namespace muster::client
