#include "api/client/checkpoint/checkpoints.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/base/store/shelf.hpp"
#include "api/client/checkpoint/loading.hpp"

#include <algorithm>
#include <utility>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::GroupMembers;
using muster::client::Saving;
using muster::store::SavedFolder;

namespace {

muster_checkpoint_info info_of(const std::string& name, const muster::checkpoint::CheckpointRecord& record) {
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  info.step = record.step;
  info.bytes = record.bytes();
  info.tensors = record.tensors.size();
  if (const auto* user = record.find(""); user != nullptr) {
    info.user_bytes = static_cast<std::uint64_t>(user->shape[0]);
    --info.tensors;
  }
  name.copy(info.name, sizeof info.name - 1);
  return info;
}

}  // namespace

muster_checkpoints::muster_checkpoints(GroupMembers members, const muster_checkpoints_options& options)
    : members_(std::move(members)), folder_(options.folder), keep_(options.keep) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
}

Result<muster_checkpoints> muster_checkpoints::open(muster_session* session,
                                                    const muster_checkpoints_options& options) {
  if (options.size != sizeof options)
    return fail(Code::kBadArgument,
                "muster_checkpoints_options has size {}; initialise it with its _INIT macro ({})",
                options.size, sizeof options);
  if (options.folder == nullptr || *options.folder == '\0')
    return fail(Code::kBadArgument, "folder is empty; name the folder of the run");
  MUSTER_ASSIGN_OR_RETURN(auto members, GroupMembers::of(session, options.group));
  return muster_checkpoints(std::move(members), options);
}

Status muster_checkpoints::check_idle() const {
  if (!saving_) return {};
  return failure(Code::kBusy, "a save is in flight; call muster_checkpoint_wait before the next one");
}

Status muster_checkpoints::save_async(const muster_checkpoint_save_options& said) {
  MUSTER_ASSIGN_OR_RETURN(Saving saving, Saving::begin(members_, check_idle(), folder_, said, spare_));
  saving_.emplace(std::move(saving));
  return {};
}

Status muster_checkpoints::wait() {
  if (!saving_) return {};
  const Status status = saving_->finish(members_, keep_);
  if (status.ok()) spare_ = std::move(*saving_).spare();
  saving_.reset();
  return status;
}

Result<muster_checkpoint_info> muster_checkpoints::load(const muster_checkpoint_load_options& said) {
  return muster::client::load_checkpoint(members_, check_idle(), folder_, said);
}

Result<muster_checkpoint_info> muster_checkpoints::query(const char* name) const {
  std::string chosen = name == nullptr ? "" : name;
  if (name == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(chosen, muster::store::newest_on_shelf(folder_));
  }
  MUSTER_RETURN_IF_ERROR(muster::checkpoint::check_folder_name(chosen));
  MUSTER_ASSIGN_OR_RETURN(const SavedFolder saved, SavedFolder::open(folder_ + "/" + chosen));
  return info_of(chosen, saved.record());
}

Result<std::size_t> muster_checkpoints::list(std::span<muster_checkpoint_info> infos) const {
  MUSTER_ASSIGN_OR_RETURN(const auto entries, muster::store::list_shelf(folder_));
  for (std::size_t i = 0; i < std::min(infos.size(), entries.size()); ++i) {
    MUSTER_ASSIGN_OR_RETURN(infos[i], query(entries[i].name.c_str()));
  }
  return entries.size();
}
