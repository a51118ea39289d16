// World: the ranks of a job, and on which node each of them runs (decision D19). RankTable: one value for
// each rank of this node. An engine holds tables of its own ranks only; of the others it knows number and
// node.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster {

// Owns    its part of one table, which all copies share.
// Thread  a value that never changes; any.
// Bound   a word for each rank of the job, and a name for each node.
// Fails   build: kBadArgument.
class World {
 public:
  // All ranks are on this node, which has no name.
  World(std::uint32_t ranks = 1);  // NOLINT(google-explicit-constructor): a number of ranks is a world
  // `node_of[r]` is where rank r runs, as an index in `nodes`; `here` is this node. kBadArgument: a name that
  // stands twice, an index that names no node, a node without ranks.
  static Result<World> build(std::vector<std::string> nodes, std::span<const std::uint32_t> node_of,
                             NodeIndex here);

  std::uint32_t size() const { return static_cast<std::uint32_t>(table_->local_of.size()); }
  // The ranks of this node, rising; their positions here are their LocalRanks.
  std::span<const Rank> locals() const { return table_->locals; }
  std::uint32_t local_count() const { return static_cast<std::uint32_t>(table_->locals.size()); }
  Rank rank_of(LocalRank local) const { return table_->locals[local.value]; }
  // False also for a rank that the job does not have.
  bool is_local(Rank rank) const {
    return rank.value < table_->local_of.size() && table_->local_of[rank.value] != kRemote;
  }
  bool are_local(std::span<const Rank> ranks) const;
  bool any_local(std::span<const Rank> ranks) const;
  // The rank must run on this node.
  LocalRank local(Rank rank) const {
    const std::uint32_t index = table_->local_of[rank.value];
    MUSTER_ASSERT(index != kRemote);
    return LocalRank(index);
  }

  NodeIndex here() const { return table_->here; }
  std::span<const std::string> nodes() const { return table_->nodes; }
  NodeIndex node_of(Rank rank) const { return NodeIndex(table_->node_of[rank.value]); }
  const std::string& name_of(NodeIndex node) const { return table_->nodes[node.value]; }
  // "ranks 0-3 on node a, 4-7 on node b".
  std::string text_of(std::span<const Rank> ranks) const;

  friend bool operator==(const World& a, const World& b) {
    return a.table_->here == b.table_->here && a.table_->nodes == b.table_->nodes &&
           a.table_->node_of == b.table_->node_of;
  }

 private:
  static constexpr std::uint32_t kRemote = std::numeric_limits<std::uint32_t>::max();
  struct Table {
    std::vector<std::string> nodes;
    NodeIndex here;
    std::vector<std::uint32_t> node_of;   // by rank
    std::vector<std::uint32_t> local_of;  // by rank; kRemote: it runs elsewhere
    std::vector<Rank> locals;
  };
  explicit World(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  static std::shared_ptr<const Table> table_of(std::vector<std::string> nodes,
                                               std::vector<std::uint32_t> node_of, NodeIndex here);

  std::shared_ptr<const Table> table_;
};

// A value for each rank of this node, by LocalRank or by Rank.
//
// Owns    the values.
// Thread  as the values.
// Bound   the ranks of this node.
// Fails   never; asking for a rank of another node is a bug.
template<class T>
class RankTable {
 public:
  explicit RankTable(World world) : world_(std::move(world)), values_(world_.local_count()) {}
  // One value for each rank of this node, by LocalRank.
  RankTable(World world, std::vector<T> values) : world_(std::move(world)), values_(std::move(values)) {
    MUSTER_ASSERT(values_.size() == world_.local_count());
  }
  // `make(rank)` gives each rank's value.
  template<class Make>
  RankTable(World world, Make make) : world_(std::move(world)) {
    values_.reserve(world_.local_count());
    for (const Rank rank : world_.locals()) values_.push_back(make(rank));
  }

  T& operator[](Rank rank) { return values_[world_.local(rank).value]; }
  const T& operator[](Rank rank) const { return values_[world_.local(rank).value]; }
  T& operator[](LocalRank local) { return values_[local.value]; }
  const T& operator[](LocalRank local) const { return values_[local.value]; }

  const World& world() const { return world_; }
  // In the order of LocalRank.
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  std::size_t size() const { return values_.size(); }

 private:
  World world_;
  std::vector<T> values_;
};

}  // namespace muster
