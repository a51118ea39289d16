#include "api/client/run/plans.hpp"

#include "api/base/collective/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/check/check_mode.hpp"
#include "api/client/check/kernel_operands.hpp"
#include "api/client/run/described.hpp"
#include "api/client/run/recount.hpp"
#include "api/client/submit/refusal.hpp"
#include "api/shm/message.hpp"
#include "api/shm/said_collective.hpp"
#include "api/shm/tail.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace muster::client {
namespace {

Status check_struct(std::uint32_t size, std::size_t expected, const char* what) {
  if (size == expected) return {};
  return failure(Code::kBadArgument, "{} has size {}; initialise it with its _INIT macro or builder ({})",
                 what, size, expected);
}

// The kernel's key in the cache. It is made of the message's bytes, because muster_kernel has entries that
// do not count.
std::string key_of(const muster_kernel& kernel) {
  const shm::PlanKernel message = shm::message_of(kernel);
  std::string key = "k";
  const auto append = [&key](std::span<const std::byte> bytes) {
    key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  append(shm::bytes_of(message).subspan(sizeof message.header));
  append(shm::tail_for(kernel));
  return key;
}

}  // namespace

Result<muster_plan> Plans::make(const muster_kernel& kernel) {
  MUSTER_RETURN_IF_ERROR(check_struct(kernel.size, sizeof(muster_kernel), "muster_kernel"));
  auto grant = connection_.ask<shm::HandleMessage>(shm::message_of(kernel), shm::MessageKind::kPlanKernel,
                                                   shm::MessageKind::kPlanGrant, shm::tail_for(kernel));
  if (!grant) return fail(grant.error());
  PlanRecord& record = table_.add(grant->handle);
  for (std::uint32_t i = 0; i < kernel.tensor_count; ++i) record.buffers.push_back(kernel.tensors[i].buffer);
  const KernelOperands* const operands = check_ == nullptr ? nullptr : operands_of(kernel.op);
  if (operands != nullptr)
    check_->plans().add(
        grant->handle, fmt::format("kernel {}", operands->name),
        uses_of(kernel, [this](const muster_range& range) { return buffers_.address_of(range); }), false);
  return grant->handle;
}

Result<Description> Plans::describe(const muster_collective& c) {
  MUSTER_RETURN_IF_ERROR(check_struct(c.size, sizeof(muster_collective), "muster_collective"));
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* facts, groups_.facts(c.group));
  if (facts->rank < 0)
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", connection_.welcome().rank,
                facts->name);
  return client::describe(c, facts->rank, static_cast<std::int32_t>(facts->ranks.size()));
}

Result<muster_plan> Plans::make(const muster_collective& c) {
  MUSTER_ASSIGN_OR_RETURN(const auto description, describe(c));
  return make(c, description);
}

Result<muster_plan> Plans::make(const muster_collective& c, const Description& description) {
  MUSTER_FAULT_POINT("plan.asking");
  auto grant = connection_.ask<shm::HandleMessage>(description.message, shm::MessageKind::kPlanCollective,
                                                   shm::MessageKind::kPlanGrant, description.lists);
  if (!grant) return fail(grant.error());
  MUSTER_FAULT_POINT("plan.granted");
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* facts, groups_.facts(c.group));
  MUSTER_ASSIGN_OR_RETURN(
      auto described, described_of(buffers_, c, facts->rank, static_cast<std::int32_t>(facts->ranks.size())));
  described.deadline = &facts->deadline;
  PlanRecord& record = table_.add(grant->handle);
  record.buffers = {c.source.buffer, c.target.buffer};
  for (std::uint32_t i = 0; i < c.send_count; ++i) record.buffers.push_back(c.sends[i].view.buffer);
  for (std::uint32_t i = 0; i < c.receive_count; ++i) record.buffers.push_back(c.receives[i].view.buffer);
  record.usual_lane = usual_lane(description.message);
  Rooms rooms = rooms_of(description.message, described);
  record.told = std::make_unique<PlanRecord::Told>(
      PlanRecord::Told{description.message, std::move(described), std::move(rooms)});
  if (check_ != nullptr) tell_check(record);
  MUSTER_FAULT_POINT("plan.known");
  return grant->handle;
}

void Plans::tell_check(const PlanRecord& record) const {
  const Described& described = record.told->described;
  const std::string_view site = record.told->message.site;
  std::string name = op_name(described.what.op);
  if (!site.empty()) name += fmt::format(" \"{}\"", site);
  check_->plans().add(record.plan, std::move(name),
                      uses_of(described.what, described.mine, bases_of(described.mine)), true);
}

Rooms Plans::rooms_of(const shm::PlanCollective& m, const Described& described) const {
  const auto room = [&](const muster_range& range) -> Rooms::Room {
    return {range.buffer, buffers_.room_of({range.buffer, 0})};
  };
  return Rooms(described.what, described.mine, room(m.source), room(m.target),
               {m.source.offset_bytes, m.target.offset_bytes});
}

// ---- one-shot calls ----------------------------------------------------------------------------

// Drops the least recently used plan that is not in flight. The completion page shows that without a question
// to the engine. The latest plan stays: its caller may be making another one for the same call.
Status Plans::make_room_in_cache() {
  if (!cache_.full()) return {};
  for (auto oldest = cache_.begin(); oldest != std::prev(cache_.end()); ++oldest) {
    const PlanRecord* record = table_.find(oldest->plan);
    const bool in_flight = record != nullptr && completion_.test(record->last) == Code::kPending;
    if (in_flight) continue;
    const Status gone = destroy(oldest->plan);
    if (gone.ok()) cache_.erase(oldest);
    if (gone.code() != Code::kBusy) return gone;
  }
  return failure(Code::kNoResource, "{} different one-shot operations are in flight; wait for their points",
                 PlanCache::kMax);
}

Result<muster_plan> Plans::cached(const muster_kernel& kernel) {
  const std::string key = key_of(kernel);
  if (const auto known = cache_.find(key)) return *known;
  MUSTER_RETURN_IF_ERROR(make_room_in_cache());
  MUSTER_ASSIGN_OR_RETURN(const muster_plan made, make(kernel));
  cache_.insert(key, made);
  return made;
}

Result<muster_plan> Plans::cached(const muster_collective& c) {
  MUSTER_ASSIGN_OR_RETURN(const auto description, describe(c));
  const std::string key = "c" + description.key();
  if (const auto known = cache_.find(key)) return *known;
  MUSTER_RETURN_IF_ERROR(make_room_in_cache());
  MUSTER_ASSIGN_OR_RETURN(const muster_plan made, make(c, description));
  cache_.insert(key, made);
  return made;
}

template<class IsOver>
Status Plans::forget_cached_if(IsOver is_over) {
  for (auto cached = cache_.begin(); cached != cache_.end();) {
    const PlanRecord* record = table_.find(cached->plan);
    if (record == nullptr || !is_over(*record)) {
      ++cached;
      continue;
    }
    MUSTER_RETURN_IF_ERROR(destroy(cached->plan));
    cached = cache_.erase(cached);
  }
  return {};
}

Status Plans::forget_cached(muster_group group) {
  return forget_cached_if([group](const PlanRecord& record) {
    return record.told != nullptr && record.told->message.group == group;
  });
}

Status Plans::forget_cached_over(muster_buffer buffer) {
  return forget_cached_if([buffer](const PlanRecord& record) {
    return std::find(record.buffers.begin(), record.buffers.end(), buffer) != record.buffers.end();
  });
}

// ---- new counts, and the end -------------------------------------------------------------------

Status Plans::recount(muster_plan plan, const muster_collective& counts) {
  PlanRecord* record = table_.find(plan);
  if (record == nullptr) return no_such_plan(plan);
  if (record->told == nullptr) return failure(Code::kBadArgument, "a kernel's plan has no counts");
  const shm::PlanCollective& before = record->told->message;
  if (!has_vectors(before.op))
    return failure(Code::kUnsupported, "{} has no counts that could change; make another plan",
                   op_name(before.op));
  if (direct_ == nullptr)
    return failure(Code::kUnsupported,
                   "on a device whose memory this process does not see counts are not "
                   "checked here; make another plan");
  if (before.piece_counts != 0 || counts.source_blocks.piece_counts != nullptr ||
      counts.target_blocks.piece_counts != nullptr)
    return failure(Code::kUnsupported, "blocks in pieces do not change; make another plan");
  muster_collective said = shm::said_collective(before);
  said.count = counts.count;
  said.source_blocks = counts.source_blocks;
  said.target_blocks = counts.target_blocks;
  MUSTER_ASSIGN_OR_RETURN(auto description, describe(said));
  std::copy_n(before.site, sizeof before.site, description.message.site);
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* facts, groups_.facts(said.group));
  const auto ranks = static_cast<std::int32_t>(facts->ranks.size());
  MUSTER_ASSIGN_OR_RETURN(auto described, described_of(buffers_, said, facts->rank, ranks));
  described.deadline = &facts->deadline;
  MUSTER_RETURN_IF_ERROR(check_rooms(described, dtype_bytes(said.dtype), buffers_.room_of(said.source),
                                     buffers_.room_of(said.target)));
  MUSTER_RETURN_IF_ERROR(check_share(described.what, described.mine, ranks));
  if (record->direct != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(*record->direct, direct_->plan(plan, described));
  }
  MUSTER_FAULT_POINT("recount.checked");
  table_.set_news(*record, recount_commands(plan, description));
  Rooms rooms = rooms_of(description.message, described);
  *record->told = {description.message, std::move(described), std::move(rooms)};
  record->usual_lane = usual_lane(description.message);
  if (check_ != nullptr) tell_check(*record);
  MUSTER_FAULT_POINT("recount.noted");
  return {};
}

Status Plans::destroy(muster_plan plan) {
  PlanRecord* record = table_.find(plan);
  if (record == nullptr) return no_such_plan(plan);
  shm::HandleMessage request;
  request.handle = plan;
  MUSTER_FAULT_POINT("plan.destroying");
  MUSTER_RETURN_IF_ERROR(connection_.tell(request, shm::MessageKind::kPlanDestroy));
  MUSTER_FAULT_POINT("plan.destroyed");
  table_.remove(*record);
  if (check_ != nullptr) check_->plans().remove(plan);
  return {};
}

}  // namespace muster::client
