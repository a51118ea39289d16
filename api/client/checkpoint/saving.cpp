#include "api/client/checkpoint/saving.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/checkpoint/sampled_digest.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/dtype.hpp"
#include "api/base/store/checkpoint_list.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

namespace muster::client {

using BoxIndex = checkpoint::WritePlan::BoxIndex;
using checkpoint::SavedBox;
using checkpoint::SavedTensor;

namespace {

// The time for which a member watches its writer before it tells the others that it is not done.
constexpr std::chrono::milliseconds kRound(100);

Status check_save(const muster_checkpoint_save_options& said) {
  if (said.size != sizeof said)
    return failure(Code::kBadArgument,
                   "muster_checkpoint_save_options has size {}; initialise it with its _INIT macro ({})",
                   said.size, sizeof said);
  if ((said.flags & ~std::uint32_t{MUSTER_CHECKPOINT_REPLACE | MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER}) != 0)
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

// Calls body(source, at, bytes) for each run of the box in the array. `at`: its place in the box, in bytes,
// in row-major order.
template<class Body>
void each_run_of(const LocalArray& array, const Box& box, Body&& body) {
  const Layout::Piece& piece =
      *std::ranges::find(array.pieces, box, [](const Layout::Piece& each) { return each.box; });
  const std::size_t element = dtype_bytes(array.dtype);
  const std::byte* source =
      array.first +
      static_cast<std::size_t>(checkpoint::place_of(array.dims, piece.at, array.strides)) * element;
  checkpoint::each_run(
      array.dims, box.length, array.strides, checkpoint::dense_strides(array.dims, box.length),
      [&](std::int64_t from, std::int64_t to, std::int64_t elements) {
        body(source + static_cast<std::size_t>(from) * element, static_cast<std::size_t>(to) * element,
             static_cast<std::size_t>(elements) * element);
        return true;
      });
}

// Takes so many bytes from the front; false: there are fewer.
bool take(std::string_view& from, std::span<std::byte> to) {
  if (from.size() < to.size()) return false;
  std::memcpy(to.data(), from.data(), to.size());
  from.remove_prefix(to.size());
  return true;
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
  const Status agreed = members.agree(planned);  // a member without memory has no plan
  MUSTER_RETURN_IF_ERROR(planned);
  MUSTER_RETURN_IF_ERROR(agreed);
  saving.own_ = attempt([&] { return saving.copy(members, spare); });
  return saving;
}

Status Saving::prepare(GroupMembers& members, const muster_checkpoint_save_options& said) {
  intent_.step = said.step;
  intent_.flags = said.flags;
  intent_.name = said.name == nullptr ? checkpoint::step_name(said.step) : said.name;
  MUSTER_RETURN_IF_ERROR(checkpoint::check_folder_name(intent_.name));
  MUSTER_ASSIGN_OR_RETURN(arrays_, local_arrays(members, said.tensors, said.tensor_count));
  for (const LocalArray& array : arrays_) {
    MUSTER_RETURN_IF_ERROR(checkpoint::check_exported_name(array.name));
    intent_.tensors.push_back(array.own());
  }
  if (members.index() != 0) return {};
  const auto* user = static_cast<const std::byte*>(said.user);
  user_.assign(user, user + said.user_bytes);
  const auto bytes = static_cast<std::int64_t>(said.user_bytes);
  if (bytes > 0) intent_.tensors.push_back({"", MUSTER_U8, 1, {bytes}, {Box{1, {}, {bytes}}}});
  intent_.nonce = store::fresh_nonce();
  const bool replace = (said.flags & MUSTER_CHECKPOINT_REPLACE) != 0;
  auto staged = store::StagedFolder::make(
      intent_.folder, intent_.name, intent_.nonce,
      replace ? store::StagedFolder::Existing::kReplace : store::StagedFolder::Existing::kRefuse);
  if (!staged && staged.error().code() == Code::kDuplicate)
    return failure(Code::kDuplicate,
                   "{}; choose another name, replace it with MUSTER_CHECKPOINT_REPLACE, or remove it",
                   staged.error().message());
  if (!staged) return std::move(staged).error();
  staged_ = *std::move(staged);
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

// After this, members wait for each other only in finish().
Status Saving::copy(const GroupMembers& members, BoxWriter& spare) {
  digest_replicas(members);
  if (mine_.empty()) return {};
  std::vector<BoxWriter::Chunk> chunks;
  std::uint64_t bytes = 0;
  for (const BoxIndex& place : mine_) {
    const SavedTensor& tensor = plan_.record.tensors[place.tensor];
    const SavedBox& saved = tensor.boxes[place.box];
    const std::uint64_t end = saved.at + checkpoint::bytes_of(saved.box, tensor.dtype);
    for (std::uint64_t at = saved.at; at < end; at += checkpoint::kChunkBytes)
      chunks.push_back({at, std::min(checkpoint::kChunkBytes, end - at)});
    bytes = end;
  }
  MUSTER_ASSIGN_OR_RETURN(writer_, BoxWriter::make(bytes, std::move(chunks), std::move(spare)));
  for (const BoxIndex& place : mine_)
    copy_box(plan_.record.tensors[place.tensor], plan_.record.tensors[place.tensor].boxes[place.box]);
  arrays_.clear();  // nothing reads them any more
  user_.clear();
  const std::string& file =
      plan_.record.files[plan_.record.tensors[mine_[0].tensor].boxes[mine_[0].box].file].name;
  const std::string staged = store::StagedFolder::path_of(intent_.folder, intent_.name, intent_.nonce);
  const Status started = writer_.start(staged + "/" + file);
  if (started.code() != Code::kNotFound || members.index() == 0) return started;
  return failure(Code::kNotFound,
                 "{} is not seen here, and rank {} has made it: save into a folder that all nodes share",
                 staged, members.world_rank(0));
}

void Saving::copy_box(const SavedTensor& tensor, const SavedBox& saved) {
  std::byte* target = writer_.copy() + saved.at;
  if (tensor.name.empty()) {
    std::memcpy(target, user_.data(), user_.size());
    return;
  }
  const LocalArray& array = *std::ranges::find(arrays_, tensor.name, &LocalArray::name);
  each_run_of(array, saved.box, [target](const std::byte* source, std::size_t at, std::size_t bytes) {
    std::memcpy(target + at, source, bytes);
  });
}

// All members read their memory at the moment at which they copy it, before any of them goes on.
void Saving::digest_replicas(const GroupMembers& members) {
  const auto own = static_cast<std::int64_t>(members.index());
  for (const checkpoint::WritePlan::Replicas& replicas : plan_.replicas) {
    if (!std::ranges::binary_search(replicas.members, own)) continue;
    const SavedTensor& tensor = plan_.record.tensors[replicas.place.tensor];
    const Box& box = tensor.boxes[replicas.place.box].box;
    checkpoint::SampledDigest digest(checkpoint::bytes_of(box, tensor.dtype), intent_.step);
    each_run_of(*std::ranges::find(arrays_, tensor.name, &LocalArray::name), box,
                [&digest](const std::byte* source, std::size_t at, std::size_t bytes) {
                  digest.add(source, at, bytes);
                });
    digests_.push_back(digest.value());
  }
}

// No member stays in a call longer than a round, so no deadline bounds the writing.
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
  std::string told(reinterpret_cast<const char*>(sums.data()), sums.size_bytes());
  told.append(reinterpret_cast<const char*>(digests_.data()), digests_.size() * sizeof(Hash128));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> all, members.tell_first(told));
  Rounds rounds(members);
  Status own;
  if (members.index() == 0)
    own = attempt([&]() -> Status {
      std::vector<std::string_view> said(all.begin(), all.end());
      MUSTER_RETURN_IF_ERROR(take_sums(said));
      MUSTER_RETURN_IF_ERROR(compare_replicas(members, said));
      return staged_.commit(plan_.record, rounds.pause());
    });
  MUSTER_RETURN_IF_ERROR(rounds.finish(own));
  tidy(members, keep);
  return {};
}

// The checkpoint is complete, and all members know that. A leftover that cannot be removed is no failure of
// this save. Nor is a member that is lost meanwhile: the next call reports that.
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
Status Saving::take_sums(std::vector<std::string_view>& said) {
  for (std::size_t i = 0; i < said.size(); ++i)
    for (const BoxIndex& place : checkpoint::boxes_of(plan_, static_cast<std::int64_t>(i))) {
      SavedTensor& tensor = plan_.record.tensors[place.tensor];
      SavedBox& saved = tensor.boxes[place.box];
      saved.sums.resize(checkpoint::chunks_of(checkpoint::bytes_of(saved.box, tensor.dtype)));
      if (!take(said[i], std::as_writable_bytes(std::span(saved.sums))))
        return failure(Code::kProtocol, "member {} has sent too few checksums", i);
    }
  return {};
}

Status Saving::compare_replicas(const GroupMembers& members, std::vector<std::string_view>& said) const {
  for (const checkpoint::WritePlan::Replicas& replicas : plan_.replicas) {
    const SavedTensor& tensor = plan_.record.tensors[replicas.place.tensor];
    Hash128 first, other;
    std::vector<std::int32_t> differ;
    for (const std::int64_t member : replicas.members) {
      const auto i = static_cast<std::size_t>(member);
      if (!take(said[i], std::as_writable_bytes(std::span(&other, 1))))
        return failure(Code::kProtocol, "member {} has sent too few digests", i);
      if (member == replicas.members.front()) first = other;
      if (other != first) differ.push_back(members.world_rank(i));
    }
    if (differ.empty()) continue;
    const std::string why = fmt::format(
        "tensor \"{}\": rank{} {} hold{} the same part of it as rank {}, with other values: replicas have "
        "trained "
        "apart. Reduce its gradient over all of them (`replicate`, `tensor`), or allow it "
        "(MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER)",
        tensor.name, differ.size() == 1 ? "" : "s", fmt::join(differ, " "), differ.size() == 1 ? "s" : "",
        members.world_rank(static_cast<std::size_t>(replicas.members.front())));
    if ((intent_.flags & MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER) == 0) return Status(Code::kMismatch, why);
    std::fprintf(stderr, "libmuster: warning: checkpoint %s: %s\n", intent_.name.c_str(), why.c_str());
    return {};
  }
  return {};
}

}  // namespace muster::client
