#include "api/client/checkpoint/loading.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/store/checkpoint_list.hpp"
#include "api/base/store/saved_folder.hpp"
#include "api/base/store/tensor_file.hpp"
#include "api/client/checkpoint/local_array.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace muster::client {

using checkpoint::SavedTensor;
using checkpoint::Slice;

namespace {

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

// An array, the saved tensor that fills it, and the slices of that tensor.
struct Filling {
  LocalArray array;
  const SavedTensor* saved = nullptr;
  std::vector<Slice> slices;
};

// One member's part of a load.
//
// Owns    the open checkpoint, and the list of slices to read.
// Thread  the session's.
// Bound   that of SavedFolder.
// Fails   as checkpoint.h says.
class Load {
 public:
  Load(GroupMembers& members, const muster_checkpoint_load_options& said)
      : members_(members), said_(said), rounds_(members) {}

  Status check() const {
    if (said_.size != sizeof said_)
      return failure(Code::kBadArgument,
                     "muster_checkpoint_load_options has size {}; initialise it with its _INIT macro ({})",
                     said_.size, sizeof said_);
    if ((said_.flags & ~std::uint32_t{MUSTER_CHECKPOINT_PARTIAL}) != 0)
      return failure(Code::kBadArgument, "flags is {}, of which some are not for a load", said_.flags);
    return {};
  }

  // Checks everything that can be refused before a byte is read.
  Status plan(const std::string& path) {
    MUSTER_ASSIGN_OR_RETURN(const auto only, patterns_of("only", said_.only, said_.only_count));
    MUSTER_ASSIGN_OR_RETURN(const auto exclude, patterns_of("exclude", said_.exclude, said_.exclude_count));
    MUSTER_ASSIGN_OR_RETURN(auto arrays, local_arrays(members_, said_.tensors, said_.tensor_count));
    auto opened = store::SavedFolder::open(path);
    if (!opened && opened.error().code() == Code::kNotFound && members_.index() > 0)
      return failure(Code::kNotFound, "{}; if rank {} sees it, load from a folder that all nodes share",
                     opened.error().message(), members_.world_rank(0));
    if (!opened) return std::move(opened).error();
    folder_.emplace(*std::move(opened));
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
    const store::Pause pause = rounds_.pause();
    for (const Filling& filling : fillings_)
      MUSTER_RETURN_IF_ERROR(
          folder_->read(*filling.saved, filling.slices, {filling.array.first, filling.array.strides}, pause));
    const SavedTensor* user = folder_->record().find("");
    if (said_.user == nullptr || user == nullptr) return {};
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, folder_->read_whole(*user, pause));
    std::memcpy(said_.user, bytes.data(), bytes.size());
    return {};
  }

  Status finish(const Status& own) { return rounds_.finish(own); }

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

  GroupMembers& members_;
  const muster_checkpoint_load_options& said_;
  std::optional<store::SavedFolder> folder_;
  std::vector<Filling> fillings_;
  Rounds rounds_;
};

// The checkpoint that member 0 has chosen.
struct ChosenName {
  std::string name;
  std::uint32_t damaged = 0;  // checkpoints that were passed over
};

// The form in which a member sends it to the others; no name has a '/'.
std::string pack_name(const ChosenName& chosen) {
  return fmt::format("{}/{}", chosen.damaged, chosen.name);
}
Result<ChosenName> unpack_name(const std::string& said) {
  const std::size_t slash = said.find('/');
  ChosenName chosen;
  const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), chosen.damaged);
  if (slash == std::string::npos || error != std::errc() || end != said.data() + slash)
    return fail(Code::kProtocol, "a member has sent a name that cannot be read");
  chosen.name = said.substr(slash + 1);
  return chosen;
}

Result<ChosenName> chosen_by_all(GroupMembers& members, Status own, const std::string& folder,
                                 const char* name) {
  ChosenName chosen{name == nullptr ? "" : name};
  Rounds rounds(members);  // a shelf may be long
  if (own.ok() && members.index() == 0 && name == nullptr)
    own = attempt([&]() -> Status {
      MUSTER_ASSIGN_OR_RETURN(const store::Newest newest, store::newest_checkpoint(folder, rounds.pause()));
      chosen = {newest.entry.name, static_cast<std::uint32_t>(newest.damaged.size())};
      return {};
    });
  if (own.ok() && (name != nullptr || members.index() == 0)) own = checkpoint::check_folder_name(chosen.name);
  MUSTER_RETURN_IF_ERROR(rounds.finish(own));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, members.hear({}, pack_name(chosen)));
  MUSTER_ASSIGN_OR_RETURN(ChosenName first, unpack_name(all[0]));
  for (std::size_t i = 1; i < all.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(const ChosenName other, unpack_name(all[i]));
    if (!other.name.empty() && other.name != first.name)
      return fail(Code::kMismatch, "members load different checkpoints: {} at the first, {} at rank {}",
                  first.name, other.name, members.world_rank(i));
  }
  return first;
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

muster_checkpoint_info info_of(const store::CheckpointEntry& entry) {
  muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
  info.step = entry.step;
  info.bytes = entry.bytes;
  info.user_bytes = entry.user_bytes;
  info.tensors = entry.tensors;
  entry.name.copy(info.name, sizeof info.name - 1);
  return info;
}

Result<muster_checkpoint_info> load_checkpoint(GroupMembers& members, const Status& own,
                                               const std::string& folder,
                                               const muster_checkpoint_load_options& said) {
  Load load(members, said);
  MUSTER_ASSIGN_OR_RETURN(const ChosenName chosen,
                          chosen_by_all(members, own.ok() ? load.check() : own, folder, said.name));
  MUSTER_RETURN_IF_ERROR(
      same_for_all(members, attempt([&] { return load.plan(folder + "/" + chosen.name); }), load));
  MUSTER_RETURN_IF_ERROR(load.finish(attempt([&] { return load.read(); })));
  muster_checkpoint_info info = info_of(store::entry_of(chosen.name, load.folder().record()));
  info.tensors = load.loaded();
  info.damaged = chosen.damaged;
  return info;
}

}  // namespace muster::client
