#include "api/client/checkpoint/checkpoints.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/store/checkpoint_list.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/client/checkpoint/loading.hpp"

#include <algorithm>
#include <utility>
#include <vector>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::GroupMembers;
using muster::client::Saving;
using muster::store::SavedFolder;

namespace {

Status check_info(const muster_checkpoint_info& info) {
  if (info.size == sizeof info) return {};
  return failure(Code::kBadArgument,
                 "muster_checkpoint_info has size {}; initialise it with its _INIT macro ({})", info.size,
                 sizeof info);
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
  Saving saving = *std::move(saving_);
  saving_.reset();  // however this ends
  const Status status = saving.finish(members_, keep_);
  if (status.ok()) spare_ = std::move(saving).spare();
  return status;
}

Status muster_checkpoints::load(const muster_checkpoint_load_options& said, muster_checkpoint_info* info) {
  Status own = check_idle();
  if (own.ok() && info != nullptr) own = check_info(*info);
  MUSTER_ASSIGN_OR_RETURN(const muster_checkpoint_info loaded,
                          muster::client::load_checkpoint(members_, own, folder_, said));
  if (info != nullptr) *info = loaded;
  return {};
}

Status muster_checkpoints::query(const char* name, muster_checkpoint_info& info) const {
  MUSTER_RETURN_IF_ERROR(check_info(info));
  if (name == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(const auto newest, muster::store::newest_checkpoint(folder_));
    info = muster::client::info_of(newest.entry);
    info.damaged = static_cast<std::uint32_t>(newest.damaged.size());
    return {};
  }
  MUSTER_RETURN_IF_ERROR(muster::checkpoint::check_folder_name(name));
  MUSTER_ASSIGN_OR_RETURN(const SavedFolder saved, SavedFolder::open(folder_ + "/" + name));
  info = muster::client::info_of(muster::store::entry_of(name, saved.record()));
  return {};
}

Result<std::size_t> muster_checkpoints::list(std::span<muster_checkpoint_info> infos) const {
  for (const muster_checkpoint_info& info : infos) MUSTER_RETURN_IF_ERROR(check_info(info));
  std::vector<Status> refused;
  MUSTER_ASSIGN_OR_RETURN(const auto entries, muster::store::list_checkpoints(folder_, &refused));
  for (const Status& each : refused)
    if (each.code() != Code::kCorrupt && each.code() != Code::kVersion) return fail(each);
  for (std::size_t i = 0; i < std::min(infos.size(), entries.size()); ++i)
    infos[i] = muster::client::info_of(entries[i]);
  return entries.size();
}
