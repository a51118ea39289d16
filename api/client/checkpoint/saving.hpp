// Saving: one save in flight, from the agreement on its plan to the commit.
#pragma once

#include "api/base/checkpoint/write_plan.hpp"
#include "api/base/result.hpp"
#include "api/base/store/staged_folder.hpp"
#include "api/client/checkpoint/box_writer.hpp"
#include "api/client/checkpoint/group_members.hpp"
#include "api/client/checkpoint/local_array.hpp"
#include "api/client/checkpoint/save_intent.hpp"

#include <muster/checkpoint.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::client {

// Owns    the copy, the writer, and at member 0 the folder until its commit.
// Thread  the session's.
// Bound   one copy of the data that this member writes.
// Fails   as checkpoint.h says. finish() reports a failure of this member alone after the agreement.
class Saving {
 public:
  // A collective. `own`: the reason, if this member cannot save. `spare`: the writer of the save before, for
  // its memory.
  static Result<Saving> begin(GroupMembers& members, const Status& own, const std::string& folder,
                              const muster_checkpoint_save_options& said, BoxWriter& spare);
  // A collective. Then member 0 removes the checkpoints older than the newest `keep` (0: none), and the
  // leftovers of dead writers. The others wait for that.
  Status finish(GroupMembers& members, std::size_t keep);
  BoxWriter spare() && { return std::move(writer_); }

 private:
  Saving() = default;
  Status prepare(GroupMembers& members, const muster_checkpoint_save_options& said);
  Status plan(const GroupMembers& members, const std::vector<std::string>& all);
  Status copy(const GroupMembers& members, BoxWriter& spare);
  void copy_box(const checkpoint::SavedTensor& tensor, const checkpoint::SavedBox& saved);
  Status wait(GroupMembers& members);
  // Digests the boxes that other members have too.
  void digest_replicas(const GroupMembers& members);
  // Member 0 takes from the message of each member: the checksums of its file, then the digests of its
  // replicas.
  Status take_sums(std::vector<std::string_view>& said);
  Status compare_replicas(const GroupMembers& members, std::vector<std::string_view>& said) const;
  void tidy(GroupMembers& members, std::size_t keep) noexcept;

  SaveIntent intent_;
  std::vector<LocalArray> arrays_;
  std::vector<std::byte> user_;
  store::StagedFolder staged_;  // at member 0
  checkpoint::WritePlan plan_;
  std::vector<checkpoint::WritePlan::BoxIndex> mine_;
  BoxWriter writer_;
  std::vector<Hash128> digests_;  // of this member's replicas, in the order of the plan
  Status own_;                    // of the copy and the writer's start
};

}  // namespace muster::client
