// PlanCache: the plans of one-shot calls by their description, so that a repeated call finds its plan.
#pragma once

#include <muster/muster.h>

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace muster::client {

// Owns    the descriptions; not the plans.
// Thread  the session's.
// Bound   kMax entries.
// Fails   never.
class PlanCache {
 public:
  static constexpr std::size_t kMax = 4096;
  struct Entry {
    std::string description;
    muster_plan plan;
  };
  using Place = std::list<Entry>::iterator;

  // Finds a plan and marks it as used last.
  std::optional<muster_plan> find(std::string_view description) {
    const auto known = by_description_.find(description);
    if (known == by_description_.end()) return std::nullopt;
    entries_.splice(entries_.end(), entries_, known->second);
    return known->second->plan;
  }
  bool full() const { return entries_.size() >= kMax; }
  // The description must be new.
  void insert(std::string description, muster_plan plan) {
    const Place place = entries_.insert(entries_.end(), {std::move(description), plan});
    by_description_.emplace(place->description, place);
  }

  // The least recently used plan.
  Place begin() { return entries_.begin(); }
  Place end() { return entries_.end(); }
  // Returns the next place, in order of use.
  Place erase(Place place) {
    by_description_.erase(place->description);
    return entries_.erase(place);
  }

 private:
  std::list<Entry> entries_;
  std::unordered_map<std::string_view, Place> by_description_;
};

}  // namespace muster::client
