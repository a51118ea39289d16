#include "api/base/blame/merge.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace muster::blame {
namespace {

constexpr Nanos kUsualTimeout = std::chrono::seconds(1);

bool contains(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool has_come(const Wait& wait, std::uint32_t rank) {
  return std::any_of(wait.arrived.begin(), wait.arrived.end(),
                     [rank](const Wait::Arrived& arrived) { return arrived.rank == rank; });
}

// The instant by the clock of the merging node.
Instant rebased(const NodePart& part, Instant then, Instant now) {
  return std::min(now, part.heard - (part.snapshot->now - then));
}

Instant first_heard(std::span<const NodePart> parts) {
  std::optional<Instant> first;
  for (const NodePart& part : parts)
    if (part.snapshot) first = std::min(first.value_or(part.heard), part.heard);
  return first.value_or(Instant(0));
}

// Collects the parts, one after the other, and then completes what spans nodes.
//
// Owns    the merged snapshot.
// Thread  one.
// Bound   the waits and ranks of its parts.
// Fails   never.
class Merger {
 public:
  Merger(std::string job, std::span<const NodePart> parts) : parts_(parts), at_(parts.size()) {
    merged_.job = std::move(job);
    merged_.now = first_heard(parts);
    for (const NodePart& part : parts)
      for (const std::uint32_t rank : part.ranks)
        if (rank >= merged_.ranks.size()) merged_.ranks.resize(rank + std::size_t{1});
    part_of_.resize(merged_.ranks.size());
  }

  Snapshot run() {
    std::optional<Nanos> patience;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      add_ranks(p);
      if (!parts_[p].snapshot) continue;
      const Nanos its = parts_[p].snapshot->patience;
      patience = std::min(patience.value_or(its), its);
      add_waits(p);
      add_stragglers(*parts_[p].snapshot);
    }
    merged_.patience = patience.value_or(kUsualTimeout);
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (parts_[p].snapshot) explain(p);
    for (Wait& wait : merged_.waits)
      if (wait.span) complete(wait);
    return std::move(merged_);
  }

 private:
  void add_ranks(std::size_t p) {
    const NodePart& part = parts_[p];
    for (const std::uint32_t rank : part.ranks) {
      RankState& state = merged_.ranks[rank];
      part_of_[rank] = p;
      if (part.snapshot && rank < part.snapshot->ranks.size()) {
        state = part.snapshot->ranks[rank];
        if (state.heard) state.heard = rebased(part, *state.heard, merged_.now);
        if (state.finished) state.finished->at = rebased(part, state.finished->at, merged_.now);
      }
      state.node = part.node;
      if (part.snapshot && !state.local) state.unknown = "its engine does not mention it";
      if (!part.snapshot) state.unknown = part.why;
    }
    if (!part.snapshot) merged_.silent.push_back({part.node, part.why, part.ranks});
  }

  // The waits of a node; those of one operation that spans nodes become one.
  void add_waits(std::size_t p) {
    const NodePart& part = parts_[p];
    for (const Wait& its : part.snapshot->waits) {
      const auto found = its.span ? spanning_.find(*its.span) : spanning_.end();
      const std::size_t index = found != spanning_.end() ? found->second : merged_.waits.size();
      at_[p].push_back(index);
      if (found == spanning_.end()) add_wait(part, its, index);
      Wait& wait = merged_.waits[index];
      wait.since = std::min(wait.since, rebased(part, its.since, merged_.now));
      for (const Wait::Arrived& arrived : its.arrived)
        if (contains(part.ranks, arrived.rank) && !has_come(wait, arrived.rank))
          wait.arrived.push_back({arrived.rank, rebased(part, arrived.at, merged_.now)});
      if (wait.difference.empty()) wait.difference = its.difference;
    }
  }

  void add_wait(const NodePart& part, const Wait& its, std::size_t index) {
    if (its.span) spanning_.emplace(*its.span, index);
    Wait wait = its;
    wait.since = merged_.now;
    wait.arrived.clear();
    wait.missing.clear();
    const auto is_foreign = [&](std::uint32_t rank) { return !contains(part.ranks, rank); };
    std::erase_if(wait.inside, is_foreign);
    std::erase_if(wait.awaiting, is_foreign);
    std::erase_if(wait.takes_part, [&](std::uint32_t rank) { return rank >= merged_.ranks.size(); });
    merged_.waits.push_back(std::move(wait));
  }

  // Takes over the node's entries for its own missing ranks.
  void explain(std::size_t p) {
    const NodePart& part = parts_[p];
    for (std::size_t w = 0; w < part.snapshot->waits.size(); ++w)
      for (const Wait::Missing& missing : part.snapshot->waits[w].missing) {
        Wait& wait = merged_.waits[at_[p][w]];
        const bool known = contains(part.ranks, missing.rank) && !has_come(wait, missing.rank);
        if (known) wait.missing.push_back(moved(p, missing));
      }
  }

  // The missing member's `behind` as an index into the merged waits.
  Wait::Missing moved(std::size_t p, const Wait::Missing& missing) const {
    Wait::Missing here = missing;
    if (here.behind && *here.behind < at_[p].size())
      here.behind = at_[p][*here.behind];
    else
      here.behind.reset();
    return here;
  }

  // Names all ranks that take part. A rank that its own node does not list has either not come, or has
  // already finished.
  void complete(Wait& wait) {
    for (const std::uint32_t rank : wait.takes_part) {
      const bool listed = std::any_of(wait.missing.begin(), wait.missing.end(),
                                      [rank](const Wait::Missing& missing) { return missing.rank == rank; });
      if (has_come(wait, rank) || listed) continue;
      const std::size_t p = part_of_[rank];
      if (!parts_[p].snapshot || !merged_.ranks[rank].local) {
        wait.missing.push_back({rank, {}, {}});
      } else if (is_through(*parts_[p].snapshot, *wait.span)) {
        wait.arrived.push_back({rank, wait.since});
      } else {
        wait.missing.push_back(held_back(p, rank, *wait.span));
      }
    }
    const auto by_rank = [](const auto& a, const auto& b) { return a.rank < b.rank; };
    std::sort(wait.arrived.begin(), wait.arrived.end(), by_rank);
    std::sort(wait.missing.begin(), wait.missing.end(), by_rank);
  }

  // Whether all ranks of that node came to the operation before it answered.
  static bool is_through(const Snapshot& its, const SpanKey& key) {
    return std::any_of(its.reached.begin(), its.reached.end(), [&](const SpanKey& reached) {
      return reached.same_place(key) && reached.epoch == key.epoch && reached.number >= key.number;
    });
  }

  Wait::Missing held_back(std::size_t p, std::uint32_t rank, const SpanKey& key) const {
    for (const Snapshot::Queued& queued : parts_[p].snapshot->queued)
      if (queued.part.rank == rank && queued.place.same_place(key) && queued.place.tag == key.tag)
        return moved(p, queued.part);
    return {rank, {}, {}};
  }

  // Several nodes may list the same straggler of a group that spans nodes; it is added once.
  void add_stragglers(const Snapshot& its) {
    for (const Straggler& straggler : its.stragglers) {
      const auto same = [&](const Straggler& other) {
        return other.rank == straggler.rank && other.group == straggler.group;
      };
      if (std::none_of(merged_.stragglers.begin(), merged_.stragglers.end(), same))
        merged_.stragglers.push_back(straggler);
    }
  }

  const std::span<const NodePart> parts_;
  Snapshot merged_;
  std::vector<std::size_t> part_of_;          // by rank
  std::vector<std::vector<std::size_t>> at_;  // by part, by its wait: the index here
  std::map<SpanKey, std::size_t> spanning_;
};

}  // namespace

Snapshot merge(std::string job, std::span<const NodePart> parts) {
  return Merger(std::move(job), parts).run();
}

}  // namespace muster::blame
