#include "api/client/checkpoint/loading.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/base/store/shelf.hpp"
#include "api/base/store/tensor_file.hpp"
#include "api/client/checkpoint/local_array.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

namespace muster::client {

using checkpoint::SavedTensor;
using checkpoint::Slice;

namespace {

constexpr std::chrono::milliseconds kTellEvery(500);

Result<std::vector<std::string>> patterns_of(const char* field, const char* const* patterns,
                                             std::size_t count) {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < count; ++i) {
    if (patterns == nullptr || patterns[i] == nullptr)
      return fail(Code::kBadArgument, "{} has {} patterns, but number {} is NULL", field, count, i);
    list.emplace_back(patterns[i]);
  }
  return list;
}

// What one array gets, and from which tensor.
struct Filling {
  LocalArray array;
  const SavedTensor* saved = nullptr;
  std::vector<Slice> slices;
};

// One member's part of a load.
//
// Owns    the open checkpoint, and what is to be read.
// Thread  the session's.
// Bound   that of SavedFolder.
// Fails   as checkpoint.h says.
class Load {
 public:
  Load(GroupMembers& members, const muster_checkpoint_load_options& said) : members_(members), said_(said) {}

  Status check() const {
    if (said_.size != sizeof said_)
      return failure(Code::kBadArgument,
                     "muster_checkpoint_load_options has size {}; initialise it with its _INIT macro ({})",
                     said_.size, sizeof said_);
    if ((said_.flags & ~std::uint32_t{MUSTER_CHECKPOINT_PARTIAL}) != 0)
      return failure(Code::kBadArgument, "flags is {}, of which some are not for a load", said_.flags);
    return {};
  }

  // Everything that can be refused before a byte is read.
  Status plan(const std::string& path) {
    MUSTER_ASSIGN_OR_RETURN(const auto only, patterns_of("only", said_.only, said_.only_count));
    MUSTER_ASSIGN_OR_RETURN(const auto exclude, patterns_of("exclude", said_.exclude, said_.exclude_count));
    MUSTER_ASSIGN_OR_RETURN(auto arrays, local_arrays(members_, said_.tensors, said_.tensor_count));
    MUSTER_ASSIGN_OR_RETURN(auto opened, store::SavedFolder::open(path));
    folder_.emplace(std::move(opened));
    const store::NameFilter filter{only, exclude};
    for (LocalArray& array : arrays)
      if (filter.takes(array.name)) MUSTER_RETURN_IF_ERROR(plan_array(std::move(array)));
    const SavedTensor* user = folder_->record().find("");
    const std::uint64_t bytes = user == nullptr ? 0 : static_cast<std::uint64_t>(user->shape[0]);
    if (said_.user != nullptr && bytes > said_.user_capacity)
      return failure(Code::kBadArgument, "{} has {} bytes of the user's state; user_capacity is {}", path,
                     bytes, said_.user_capacity);
    return {};
  }

  Status read() {
    const store::SavedFolder::Pause pause = [this] { return tell_now_and_then(); };
    for (const Filling& filling : fillings_)
      MUSTER_RETURN_IF_ERROR(
          folder_->read(*filling.saved, filling.slices, {filling.array.first, filling.array.strides}, pause));
    const SavedTensor* user = folder_->record().find("");
    if (said_.user == nullptr || user == nullptr) return {};
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, folder_->read_whole(*user));
    std::memcpy(said_.user, bytes.data(), bytes.size());
    return {};
  }

  // A failure that others have told of ends the reading too.
  Status finish(const Status& own) {
    if (told_) return *told_;
    while (true) {
      MUSTER_ASSIGN_OR_RETURN(const bool all, members_.all_done(own, true));
      if (all) return {};
    }
  }

  const store::SavedFolder& folder() const { return *folder_; }
  bool opened() const { return folder_.has_value(); }
  std::uint64_t loaded() const { return fillings_.size(); }

 private:
  Status plan_array(LocalArray array) {
    const SavedTensor* saved = folder_->record().find(array.name);
    if (saved == nullptr) {
      if ((said_.flags & MUSTER_CHECKPOINT_PARTIAL) != 0) return {};
      return failure(Code::kNotFound, "{} has no {}", folder_->path(), checkpoint::tensor_text(array.name));
    }
    const Status same = checkpoint::check_same(*saved, array.dtype, std::span(array.shape).first(array.dims));
    if (!same.ok()) return failure(same.code(), "{}: {}", folder_->path(), same.message());
    std::vector<Slice> slices = checkpoint::plan_read(*saved, array.pieces);
    fillings_.push_back({std::move(array), saved, std::move(slices)});
    return {};
  }

  // Others wait for this member in a call that has a deadline, so it lets them know.
  Status tell_now_and_then() {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_at_ < kTellEvery) return {};
    const Result<bool> done = members_.all_done({}, false);
    told_at_ = std::chrono::steady_clock::now();
    if (done) return {};
    told_ = done.error();
    return *told_;
  }

  GroupMembers& members_;
  const muster_checkpoint_load_options& said_;
  std::optional<store::SavedFolder> folder_;
  std::vector<Filling> fillings_;
  std::chrono::steady_clock::time_point told_at_ = std::chrono::steady_clock::now();
  std::optional<Status> told_;  // what all have heard already
};

// The checkpoint that member 0 means.
Result<std::string> name_for_all(GroupMembers& members, Status own, const std::string& folder,
                                 const char* name) {
  std::string chosen = name == nullptr ? "" : name;
  if (own.ok() && members.index() == 0 && name == nullptr) {
    auto newest = store::newest_on_shelf(folder);
    if (newest)
      chosen = *std::move(newest);
    else
      own = newest.error();
  }
  if (own.ok() && !chosen.empty()) own = checkpoint::check_folder_name(chosen);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, members.hear(own, chosen));
  for (std::size_t i = 1; i < all.size(); ++i)
    if (!all[i].empty() && all[i] != all[0])
      return fail(Code::kMismatch, "members load different checkpoints: {} at the first, {} at rank {}",
                  all[0], all[i], members.world_rank(i));
  return all[0];
}

Status same_for_all(GroupMembers& members, const Status& own, const Load& load) {
  const std::string digest = load.opened() ? load.folder().digest().hex() : "";
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, members.hear(own, digest));
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i] != all[0])
      return failure(Code::kMismatch, "rank {} sees another checkpoint at {} than the first member",
                     members.world_rank(i), load.folder().path());
  return {};
}

}  // namespace

Result<muster_checkpoint_info> load_checkpoint(GroupMembers& members, const Status& own,
                                               const std::string& folder,
                                               const muster_checkpoint_load_options& said) {
  Load load(members, said);
  MUSTER_ASSIGN_OR_RETURN(const std::string name,
                          name_for_all(members, own.ok() ? load.check() : own, folder, said.name));
  MUSTER_RETURN_IF_ERROR(
      same_for_all(members, attempt([&] { return load.plan(folder + "/" + name); }), load));
  MUSTER_RETURN_IF_ERROR(load.finish(attempt([&] { return load.read(); })));
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  const checkpoint::CheckpointRecord& record = load.folder().record();
  info.step = record.step;
  info.bytes = record.bytes();
  if (const SavedTensor* user = record.find(""); user != nullptr)
    info.user_bytes = static_cast<std::uint64_t>(user->shape[0]);
  info.tensors = load.loaded();
  name.copy(info.name, sizeof info.name - 1);
  return info;
}

}  // namespace muster::client
