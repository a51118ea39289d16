#include "daemon/engine/nodes/other_nodes.hpp"

#include "api/base/log.hpp"

#include <algorithm>

namespace muster::engine {

OtherNodes::OtherNodes(const control::JobSpec& spec, const Clock& clock, EngineLock& lock,
                       scheduler::Graph& graph, RankSlots& slots, transport::JobLinks& links, Lost lost)
    : spec_(spec),
      clock_(clock),
      lock_(lock),
      graph_(graph),
      slots_(slots),
      links_(links),
      on_lost_(std::move(lost)),
      reports_(spec.world.nodes().size()),
      standings_(spec.world.nodes().size()),
      control_fence_(spec.world, links,
                     [this](NodeIndex node) { return of(node).fate == NodeFate::kLinked; }) {}

// A later report of silence does not replace that of a death.
void OtherNodes::lose(NodeIndex node, const Status& why, NodeFate fate) {
  if (Report& report = reports_[node.value]; report.fate != NodeFate::kDead) report = {fate, why};
  links_.lose(node, why);
  const std::lock_guard lock(lock_);
  hear(clock_.now());
  slots_.wake_clients();
}

void OtherNodes::expect(NodeIndex node, std::uint32_t generation) {
  constexpr std::uint32_t kOfTheMaking = 0;
  reports_[node.value] = {};
  if (generation != kOfTheMaking) {  // present clients of this node have seen its loss
    const std::lock_guard lock(lock_);
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
      if (graph_.groups()[g].spans() && has_members(graph_.groups()[g], node)) on_lost_(GroupId(g));
  }
  if (generation == kOfTheMaking) standings_[node.value].since_birth = true;
}

std::optional<std::uint64_t> OtherNodes::question_for(Rank rank) {
  if (spec_.world.nodes().size() == 1 || !spec_.world.is_local(rank)) return std::nullopt;
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
    const transport::JobLinks::Link link = links_.link(node);
    Standing& standing = standings_[n];
    standing.generation = link.generation;
    standing.fate = link.status.ok() ? NodeFate::kLinked : reports_[n].fate;
    standing.why = link.status.ok() || reports_[n].why.ok() ? link.status : reports_[n].why;
  }
}

std::vector<transport::JobLinks::Lost> OtherNodes::take_lost() {
  const std::lock_guard lock(lock_);
  return std::exchange(lost_, {});
}

// Another node may have reported the same loss first. Then that end has begun a new epoch. It goes on, since
// no member has used it, so each member gets the loss once.
void OtherNodes::hear(Instant now) {
  links_.take_ended([&](const transport::EpochEnd& end) {
    graph_.ended_elsewhere(end, now);
    if (!end.loss) return;
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
      if (graph_.groups()[g].spans() && graph_.groups()[g].key == end.group) on_lost_(GroupId(g));
  });
  links_.take_lost([&](const transport::JobLinks::Lost& link) {
    MUSTER_LOG(kWarning, "engine", "job {}: {}", spec_.name, link.why.message());
    std::vector<GroupId> groups;
    for (std::uint32_t g = 0; g < graph_.groups().size(); ++g) {
      const scheduler::Group& group = graph_.groups()[g];
      if (!group.spans() || !has_members(group, link.node)) continue;
      on_lost_(GroupId(g));
      if (links_.in_use(group.key)) groups.emplace_back(g);
    }
    // One fault for all groups: its culprit is the first rank of the node.
    std::int32_t first = 0;
    while (spec_.world.node_of(Rank(static_cast<std::uint32_t>(first))) != link.node) ++first;
    graph_.abort(groups, {Code::kPeerLost, first, link.why.message()}, now, scheduler::Epochs::Why::kLoss);
    lost_.push_back(link);
  });
}

}  // namespace muster::engine
