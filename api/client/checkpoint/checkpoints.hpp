// muster_checkpoints: the folder of a run, as the members of a group use it.
#pragma once

#include "api/base/result.hpp"
#include "api/client/checkpoint/group_members.hpp"
#include "api/client/checkpoint/saving.hpp"

#include <muster/checkpoint.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

// Owns    the save in flight, and the memory of its copy, which the next save takes.
// Thread  the session's.
// Bound   one save in flight.
// Fails   as checkpoint.h says.
struct muster_checkpoints {
 public:
  static muster::Result<muster_checkpoints> open(muster_session* session,
                                                 const muster_checkpoints_options& options);

  muster::Status save_async(const muster_checkpoint_save_options& said);
  muster::Status wait();
  // `info` may be null.
  muster::Status load(const muster_checkpoint_load_options& said, muster_checkpoint_info* info);
  muster::Status query(const char* name, muster_checkpoint_info& info) const;
  // Writes as many infos as there is room for; returns the number of checkpoints.
  muster::Result<std::size_t> list(std::span<muster_checkpoint_info> infos) const;

 private:
  muster_checkpoints(muster::client::GroupMembers members, const muster_checkpoints_options& options);
  muster::Status check_idle() const;

  muster::client::GroupMembers members_;
  std::string folder_;
  std::size_t keep_;
  std::optional<muster::client::Saving> saving_;
  muster::client::BoxWriter spare_;
};
