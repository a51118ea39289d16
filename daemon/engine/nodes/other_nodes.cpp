#include "daemon/engine/nodes/other_nodes.hpp"

#include "api/base/log.hpp"

#include <algorithm>

namespace muster::engine {

OtherNodes::OtherNodes(const control::JobSpec& spec, const Clock& clock, EngineLock& lock,
                       scheduler::Graph& graph, RankSlots& slots, transport::Backend& backend, Lost lost)
    : spec_(spec),
      clock_(clock),
      lock_(lock),
      graph_(graph),
      slots_(slots),
      backend_(backend),
      on_lost_(std::move(lost)),
      words_(spec.world.nodes().size()),
      standings_(spec.world.nodes().size()),
      control_fence_(spec.world, backend,
                     [this](NodeIndex node) { return of(node).fate == NodeFate::kLinked; }) {}

// A later report of silence does not replace that of a death.
void OtherNodes::lose(NodeIndex node, const Status& why, NodeFate fate) {
  if (Message& word = words_[node.value]; word.fate != NodeFate::kDead) word = {fate, why};
  backend_.lose(node, why);
  const std::lock_guard lock(lock_);
  hear(clock_.now());
  slots_.wake_clients();
}

void OtherNodes::expect(NodeIndex node, std::uint32_t generation) {
  constexpr std::uint32_t kOfTheMaking = 0;
  words_[node.value] = {};
  if (generation != kOfTheMaking) {  // present clients of this node have seen its loss
    const std::lock_guard lock(lock_);
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
      if (graph_.groups()[g].spans() && has_members(graph_.groups()[g], node)) on_lost_(GroupId(g));
  }
  if (generation == kOfTheMaking) standings_[node.value].since_birth = true;
}

std::optional<std::uint64_t> OtherNodes::question_for(Rank rank) {
  if (!backend_.spans() || !spec_.world.is_local(rank)) return std::nullopt;
  const std::lock_guard lock(lock_);
  return control_fence_.ask(clock_.now());
}

bool OtherNodes::answered(std::uint64_t question) {
  const std::lock_guard lock(lock_);
  return control_fence_.over(question, clock_.now());
}

bool OtherNodes::has_members(const scheduler::Group& group, NodeIndex node) const {
  return std::any_of(group.ranks.begin(), group.ranks.end(),
                     [&](Rank rank) { return spec_.world.node_of(rank) == node; });
}

void OtherNodes::look() {
  for (std::uint32_t n = 0; n < standings_.size(); ++n) {
    const NodeIndex node(n);
    if (node == spec_.world.here()) continue;
    const transport::NodeLink link = backend_.link(node);
    Standing& standing = standings_[n];
    standing.generation = link.generation;
    standing.fate = link.status.ok() ? NodeFate::kLinked : words_[n].fate;
    standing.why = link.status.ok() || words_[n].why.ok() ? link.status : words_[n].why;
  }
}

std::vector<transport::LostLink> OtherNodes::take_lost() {
  const std::lock_guard lock(lock_);
  return std::exchange(lost_, {});
}

// Another node may have reported the same loss first. Then that end has begun a new epoch. It goes on, since
// no member has used it, so each member gets the loss once.
void OtherNodes::hear(Instant now) {
  backend_.take_ended([&](const transport::EpochEnd& end) {
    graph_.ended_elsewhere(end, now);
    if (!end.loss) return;
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
      if (graph_.groups()[g].spans() && graph_.groups()[g].key == end.group) on_lost_(GroupId(g));
  });
  backend_.take_lost([&](const transport::LostLink& link) {
    MUSTER_LOG(kWarning, "engine", "job {}: {}", spec_.name, link.why.message());
    std::vector<GroupId> groups;
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g) {
      const scheduler::Group& group = graph_.groups()[g];
      if (!group.spans() || !has_members(group, link.node)) continue;
      on_lost_(GroupId(g));
      if (backend_.in_use(group.key)) groups.emplace_back(g);
    }
    // One fault for all groups: its culprit is the first rank of the node.
    std::int32_t first = 0;
    while (spec_.world.node_of(Rank(static_cast<std::uint32_t>(first))) != link.node) ++first;
    graph_.abort(groups, {Code::kPeerLost, first, link.why.message()}, now, scheduler::Epochs::Why::kLoss);
    lost_.push_back(link);
  });
}

}  // namespace muster::engine
