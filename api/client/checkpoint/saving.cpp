#include "api/client/checkpoint/saving.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/dtype.hpp"
#include "api/base/store/shelf.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace muster::client {

using checkpoint::BoxPlace;
using checkpoint::SavedBox;
using checkpoint::SavedTensor;

namespace {

// How long a member looks at its writer before it tells the others that it is not done.
constexpr std::chrono::milliseconds kRound(100);

Status check_save(const muster_checkpoint_save_options& said) {
  if (said.size != sizeof said)
    return failure(Code::kBadArgument,
                   "muster_checkpoint_save_options has size {}; initialise it with its _INIT macro ({})",
                   said.size, sizeof said);
  if ((said.flags & ~std::uint32_t{MUSTER_CHECKPOINT_REPLACE}) != 0)
    return failure(Code::kBadArgument, "flags is {}, of which some are not for a save", said.flags);
  if (said.user == nullptr && said.user_bytes > 0)
    return failure(Code::kBadArgument, "user is NULL, but user_bytes is {}", said.user_bytes);
  return {};
}

Status check_same_save(const SaveIntent& first, const SaveIntent& other, std::int32_t rank) {
  const auto differ = [&](const char* field, const auto& a, const auto& b) {
    return failure(Code::kMismatch,
                   "members save different checkpoints: {} is {} at the first, {} at rank {}", field, a, b,
                   rank);
  };
  if (first.folder != other.folder) return differ("folder", first.folder, other.folder);
  if (first.name != other.name) return differ("name", first.name, other.name);
  if (first.step != other.step) return differ("step", first.step, other.step);
  if (first.flags != other.flags) return differ("flags", first.flags, other.flags);
  return {};
}

}  // namespace

Result<Saving> Saving::begin(GroupMembers& members, const Status& own, const std::string& folder,
                             const muster_checkpoint_save_options& said, BoxWriter& spare) {
  Saving saving;
  saving.intent_.folder = folder;
  std::string list;
  Status ready = own;
  if (ready.ok()) ready = check_save(said);
  if (ready.ok()) ready = attempt([&] { return saving.prepare(members, said); });
  if (ready.ok())
    ready = attempt([&] {
      list = packed(saving.intent_);
      return Status();
    });
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, members.hear(ready, list));
  const Status planned = attempt([&] { return saving.plan(members, all); });
  const Status agreed = members.agree(planned);  // who has no memory left has no plan
  MUSTER_RETURN_IF_ERROR(planned);
  MUSTER_RETURN_IF_ERROR(agreed);
  saving.own_ = attempt([&] { return saving.copy(spare); });
  return saving;
}

Status Saving::prepare(GroupMembers& members, const muster_checkpoint_save_options& said) {
  intent_.step = said.step;
  intent_.flags = said.flags;
  intent_.name = said.name == nullptr ? checkpoint::step_name(said.step) : said.name;
  MUSTER_RETURN_IF_ERROR(checkpoint::check_folder_name(intent_.name));
  MUSTER_ASSIGN_OR_RETURN(arrays_, local_arrays(members, said.tensors, said.tensor_count));
  for (const LocalArray& array : arrays_) intent_.tensors.push_back(array.own());
  if (members.index() != 0) return {};
  const auto* user = static_cast<const std::byte*>(said.user);
  user_.assign(user, user + said.user_bytes);
  const auto bytes = static_cast<std::int64_t>(said.user_bytes);
  if (bytes > 0) intent_.tensors.push_back({"", MUSTER_U8, 1, {bytes}, {Box{1, {}, {bytes}}}});
  intent_.nonce = store::fresh_nonce();
  const bool replace = (said.flags & MUSTER_CHECKPOINT_REPLACE) != 0;
  MUSTER_ASSIGN_OR_RETURN(
      staged_, store::StagedFolder::make(intent_.folder, intent_.name, intent_.nonce,
                                         replace ? store::Existing::kReplace : store::Existing::kRefuse));
  return {};
}

// Every member computes the same plan, or the same refusal, unless its memory is short.
Status Saving::plan(const GroupMembers& members, const std::vector<std::string>& all) {
  SaveIntent first;
  std::vector<std::vector<checkpoint::OwnTensor>> lists;
  for (std::size_t i = 0; i < all.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(SaveIntent intent, unpacked(all[i]));
    lists.push_back(std::move(intent.tensors));
    if (i == 0) first = intent;
    MUSTER_RETURN_IF_ERROR(check_same_save(first, intent, members.world_rank(i)));
  }
  intent_.nonce = first.nonce;
  MUSTER_ASSIGN_OR_RETURN(plan_, checkpoint::plan_write(lists, intent_.step));
  mine_ = checkpoint::boxes_of(plan_, static_cast<std::int64_t>(members.index()));
  return {};
}

// From here on members wait for each other in finish() alone.
Status Saving::copy(BoxWriter& spare) {
  if (mine_.empty()) return {};
  std::vector<BoxWriter::Chunk> chunks;
  std::uint64_t bytes = 0;
  for (const BoxPlace& place : mine_) {
    const SavedTensor& tensor = plan_.record.tensors[place.tensor];
    const SavedBox& saved = tensor.boxes[place.box];
    const std::uint64_t end = saved.at + checkpoint::bytes_of(saved.box, tensor.dtype);
    for (std::uint64_t at = saved.at; at < end; at += checkpoint::kChunkBytes)
      chunks.push_back({at, std::min(checkpoint::kChunkBytes, end - at)});
    bytes = end;
  }
  MUSTER_ASSIGN_OR_RETURN(writer_, BoxWriter::make(bytes, std::move(chunks), std::move(spare)));
  for (const BoxPlace& place : mine_)
    copy_box(plan_.record.tensors[place.tensor], plan_.record.tensors[place.tensor].boxes[place.box]);
  arrays_.clear();  // nothing reads them any more
  user_.clear();
  const std::string& file =
      plan_.record.files[plan_.record.tensors[mine_[0].tensor].boxes[mine_[0].box].file].name;
  return writer_.start(store::StagedFolder::path_of(intent_.folder, intent_.name, intent_.nonce) + "/" +
                       file);
}

void Saving::copy_box(const SavedTensor& tensor, const SavedBox& saved) {
  std::byte* target = writer_.copy() + saved.at;
  if (tensor.name.empty()) {
    std::memcpy(target, user_.data(), user_.size());
    return;
  }
  const LocalArray& array = *std::ranges::find(arrays_, tensor.name, &LocalArray::name);
  const Layout::Piece& piece =
      *std::ranges::find(array.pieces, saved.box, [](const Layout::Piece& each) { return each.box; });
  const std::size_t element = dtype_bytes(tensor.dtype);
  const std::byte* source =
      array.first +
      static_cast<std::size_t>(checkpoint::place_of(tensor.dims, piece.at, array.strides)) * element;
  checkpoint::each_run(tensor.dims, saved.box.length, array.strides,
                       checkpoint::dense_strides(tensor.dims, saved.box.length),
                       [&](std::int64_t from, std::int64_t to, std::int64_t elements) {
                         std::memcpy(target + static_cast<std::size_t>(to) * element,
                                     source + static_cast<std::size_t>(from) * element,
                                     static_cast<std::size_t>(elements) * element);
                         return true;
                       });
}

// No member is longer in a call than a round, so no deadline bounds the writing.
Status Saving::wait(GroupMembers& members) {
  Status own = own_;
  bool done = false;
  while (true) {
    if (own.ok() && !done) {
      const Result<bool> ended = writer_.finished(kRound);
      done = ended.value_or(false);
      if (!ended) own = ended.error();
    }
    MUSTER_ASSIGN_OR_RETURN(const bool all, members.all_done(own, done));
    if (all) return {};
  }
}

Status Saving::finish(GroupMembers& members, std::size_t keep) {
  MUSTER_RETURN_IF_ERROR(wait(members));
  const std::span<const Hash128> sums = writer_.sums();
  MUSTER_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      members.tell_first({reinterpret_cast<const char*>(sums.data()), sums.size_bytes()}));
  Rounds rounds(members);
  Status own;
  if (members.index() == 0)
    own = attempt([&]() -> Status {
      MUSTER_RETURN_IF_ERROR(take_sums(all));
      return staged_.commit(plan_.record, rounds.pause());
    });
  MUSTER_RETURN_IF_ERROR(rounds.finish(own));
  tidy(members, keep);
  return {};
}

// The checkpoint is complete, as all know. What cannot be removed, and who is lost meanwhile, is no failure
// of this save: the next call tells of a member that is lost.
void Saving::tidy(GroupMembers& members, std::size_t keep) noexcept {
  Rounds rounds(members);
  if (members.index() == 0) {
    const store::Pause pause = rounds.pause();
    (void)attempt([&] { return staged_.clear(pause); });
    if (keep > 0)
      (void)attempt([&] { return store::remove_oldest(intent_.folder, keep, intent_.name, pause); });
    (void)attempt([&] { return store::remove_leftovers(intent_.folder, intent_.name, pause); });
  }
  (void)attempt([&] { return rounds.finish({}); });
}

// A member's checksums come in the order of its file.
Status Saving::take_sums(const std::vector<std::string>& said) {
  for (std::size_t i = 0; i < said.size(); ++i) {
    std::string_view left = said[i];
    for (const BoxPlace& place : checkpoint::boxes_of(plan_, static_cast<std::int64_t>(i))) {
      SavedTensor& tensor = plan_.record.tensors[place.tensor];
      SavedBox& saved = tensor.boxes[place.box];
      saved.sums.resize(checkpoint::chunks_of(checkpoint::bytes_of(saved.box, tensor.dtype)));
      const std::size_t bytes = saved.sums.size() * sizeof(Hash128);
      if (left.size() < bytes) return failure(Code::kProtocol, "member {} has sent too few checksums", i);
      std::memcpy(saved.sums.data(), left.data(), bytes);
      left.remove_prefix(bytes);
    }
  }
  return {};
}

}  // namespace muster::client
