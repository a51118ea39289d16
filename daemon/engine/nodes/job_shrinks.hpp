// JobShrinks: with which members a group goes on (muster_group_shrink). For a group of one node ShrinkRounds
// knows. The nodes of a group that spans several agree (survivor_agreement.hpp), and each makes the group of
// the survivors by itself, from the same list.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/nodes/span.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/nodes/agreement_wire.hpp"
#include "daemon/engine/nodes/faults.hpp"
#include "daemon/engine/nodes/other_nodes.hpp"
#include "daemon/engine/nodes/shrink_rounds.hpp"
#include "daemon/engine/nodes/survivor_agreement.hpp"
#include "daemon/engine/session/group_table.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// Owns    the rounds of shrinking, and the agreements with other nodes.
// Thread  the conductor; under the engine's lock. left(), lost(), forget(): the holder of the lock.
// Bound   an agreement for each group that spans nodes and was shrunk; kForgottenMax keys of groups that are
//         gone.
// Fails   shrink: as muster.h says.
class JobShrinks {
 public:
  static constexpr std::size_t kForgottenMax = 4096;

  struct Parts {
    const control::JobSpec& spec;
    const Clock& clock;
    const scheduler::Graph& graph;
    RankSlots& slots;
    GroupTable& table;
    Faults& faults;
    OtherNodes& other_nodes;
    // Makes a group of survivors. `identity` is the same on all nodes.
    std::function<Result<GroupId>(std::span<const Rank> ranks, const std::string& identity)> enter;
    std::function<void(GroupId)> retire;  // a group without a holder
  };
  explicit JobShrinks(Parts parts);

  // The group to go on in. BUSY while it waits for others: the client asks again, the last time with
  // `gives_up`.
  Result<std::uint64_t> shrink(const Session& session, GroupId of, bool gives_up);
  // A member is gone, here or elsewhere; `next` is the first session that does not know of it.
  void lost(GroupId group, SessionId next) { rounds_.lost(group, next); }
  void left(SessionId session);
  void forget(GroupId group);

  // ---- other nodes -----------------------------------------------------------------------------
  // Takes a message that has come. work(), after OtherNodes::look(), acts on it, on losses and on time.
  void take(NodeIndex from, std::uint32_t generation, std::span<const std::byte> message);
  void work();
  // Nodes are about to agree: work() is due each few milliseconds.
  bool is_open() const;

 private:
  struct Arrived {
    NodeIndex from;
    std::uint32_t generation = 0;
    SentAgreement sent;
  };
  struct Spanning {
    transport::Span span;
    SurvivorAgreement agreement;
    std::vector<std::size_t> members_here;                // of the group's members, those on this node
    std::vector<OtherNodes::Standing> shown;              // by place: what the agreement knows
    std::set<SessionId> said;                             // have asked since the last decision
    std::optional<SurvivorAgreement::Decision> decision;  // there was no room to carry it out
  };

  Result<std::uint64_t> shrink_here(const Session& session, GroupId of, bool gives_up);
  Result<std::uint64_t> shrink_spanning(const Session& session, GroupId of, bool gives_up);
  Spanning& spanning(GroupId of);
  std::optional<GroupId> find(std::uint64_t key) const;
  void look_at_nodes(GroupId of, Spanning& spanning);
  void advance(GroupId of, Spanning& spanning);
  void hear(const Arrived& arrived);
  void carry_out(GroupId of, Spanning& spanning);
  Result<std::uint64_t> make(GroupId of, std::span<const Rank> left, const std::string& identity,
                             const std::vector<SessionId>& holders);
  std::vector<Rank> here_of(GroupId of, const Spanning& spanning) const;
  std::vector<SessionId> sessions_in(const std::set<SessionId>& said, std::span<const Rank> ranks) const;
  std::string awaited(GroupId of, const Spanning& spanning) const;
  Status minority(GroupId of, const Spanning& spanning) const;
  std::string named_nodes(const Spanning& spanning, NodeFate fate) const;

  const Parts parts_;
  ShrinkRounds rounds_;
  std::map<GroupId, Spanning> spanning_;
  std::vector<Arrived> arrived_;
  std::deque<std::uint64_t> forgotten_;  // keys of groups that had members here
};

}  // namespace muster::engine
