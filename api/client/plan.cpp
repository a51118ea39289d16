// Plans: made by message, cached by description, started by one ring write.
#include "api/base/fault_point.hpp"
#include "api/base/ids.hpp"
#include "api/client/session.hpp"

#include <cstring>
#include <iterator>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
namespace shm = muster::shm;

namespace {

Status check_struct(std::uint32_t size, std::size_t expected, const char* what) {
  if (size == expected) return {};
  return failure(Code::kBadArgument, "{} has size {}; initialise it with its _INIT macro or builder ({})",
                 what, size, expected);
}

void append(std::string& key, const void* data, std::size_t bytes) {
  key.append(static_cast<const char*>(data), bytes);
}

// Field by field: padding between fields is not part of the description.
std::string key_of(const muster_kernel& k) {
  std::string key = "k";
  append(key, &k.op, sizeof k.op);
  append(key, &k.tensor_count, sizeof k.tensor_count);
  append(key, &k.flags, sizeof k.flags);
  for (std::uint32_t i = 0; i < k.tensor_count && i < MUSTER_KERNEL_TENSORS_MAX; ++i) {
    const muster_tensor& t = k.tensors[i];
    append(key, &t.buffer, sizeof t.buffer);
    append(key, &t.offset_bytes, sizeof t.offset_bytes);
    append(key, &t.dtype, sizeof t.dtype);
    append(key, &t.dims, sizeof t.dims);
    const std::size_t dims = std::min<std::size_t>(t.dims, MUSTER_TENSOR_DIMS_MAX);
    append(key, t.size, dims * sizeof t.size[0]);
    append(key, t.stride, dims * sizeof t.stride[0]);
  }
  append(key, k.ints, sizeof k.ints);
  append(key, k.reals, sizeof k.reals);
  return key;
}

}  // namespace

muster_session::PlanRecord* muster_session::find(muster_plan plan) {
  const std::size_t slot = muster::Handle(plan).slot();
  const bool known = slot < plans_.size() && plans_[slot].plan == plan && plan != 0;
  return known ? &plans_[slot] : nullptr;
}

muster_session::PlanRecord& muster_session::remember(muster_plan plan) {
  const std::size_t slot = muster::Handle(plan).slot();
  if (slot >= plans_.size()) plans_.resize(slot + 1);
  plans_[slot] = PlanRecord();
  plans_[slot].plan = plan;
  return plans_[slot];
}

Result<muster_plan> muster_session::plan(const muster_kernel& kernel) {
  MUSTER_RETURN_IF_ERROR(check_struct(kernel.size, sizeof(muster_kernel), "muster_kernel"));
  shm::PlanKernel request;
  request.kernel = kernel;
  auto grant = ask<shm::HandleMessage>(request, shm::MessageKind::kPlanKernel, shm::MessageKind::kPlanGrant);
  if (!grant) return fail(grant.error());
  PlanRecord& record = remember(grant->handle);
  for (std::uint32_t i = 0; i < kernel.tensor_count; ++i) record.buffers.push_back(kernel.tensors[i].buffer);
  return grant->handle;
}

Result<muster::client::Description> muster_session::describe(const muster_collective& c) {
  MUSTER_RETURN_IF_ERROR(check_struct(c.size, sizeof(muster_collective), "muster_collective"));
  if (c.flags != 0) return fail(Code::kBadArgument, "flags {} must be 0", c.flags);
  MUSTER_ASSIGN_OR_RETURN(const GroupFacts* facts, known_group(c.group));
  if (facts->rank < 0)
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", welcome().rank, facts->name);
  return muster::client::describe(c, facts->rank, static_cast<std::int32_t>(facts->ranks.size()));
}

Result<muster_plan> muster_session::plan(const muster_collective& c) {
  MUSTER_ASSIGN_OR_RETURN(const auto description, describe(c));
  return plan(c, description);
}

Result<muster_plan> muster_session::plan(const muster_collective& c,
                                         const muster::client::Description& description) {
  MUSTER_FAULT_POINT("plan.asking");
  auto grant = ask<shm::HandleMessage>(description.message, shm::MessageKind::kPlanCollective,
                                       shm::MessageKind::kPlanGrant, description.lists);
  if (!grant) return fail(grant.error());
  MUSTER_FAULT_POINT("plan.granted");
  MUSTER_ASSIGN_OR_RETURN(const GroupFacts* facts, known_group(c.group));
  MUSTER_ASSIGN_OR_RETURN(
      auto described,
      muster::client::described_of(*this, c, facts->rank, static_cast<std::int32_t>(facts->ranks.size())));
  PlanRecord& record = remember(grant->handle);
  record.buffers = {c.source.buffer, c.target.buffer};
  for (std::uint32_t i = 0; i < c.send_count; ++i) record.buffers.push_back(c.sends[i].view.buffer);
  for (std::uint32_t i = 0; i < c.receive_count; ++i) record.buffers.push_back(c.receives[i].view.buffer);
  record.usual_lane = muster::client::usual_lane(description.message);
  record.told = std::make_unique<Told>(Told{description.message, std::move(described)});
  MUSTER_FAULT_POINT("plan.known");
  return grant->handle;
}

// Of those that were used longest ago the first that is not in flight goes. Whether one is, is seen here: the
// engine is not asked for each. The latest stays: its user may be making one more for the same call.
Status muster_session::make_room_in_cache() {
  if (!cache_.full()) return {};
  for (auto oldest = cache_.begin(); oldest != std::prev(cache_.end()); ++oldest) {
    const PlanRecord* record = find(oldest->plan);
    const bool in_flight = record != nullptr && reader_.test(record->last) == Code::kPending;
    if (in_flight) continue;
    const Status gone = destroy(oldest->plan);
    if (gone.ok()) cache_.erase(oldest);
    if (gone.code() != Code::kBusy) return gone;
  }
  return failure(Code::kNoResource, "{} different one-shot operations are in flight; wait for their points",
                 muster::client::PlanCache::kMax);
}

Result<muster_plan> muster_session::cached(const muster_kernel& kernel) {
  const std::string key = key_of(kernel);
  if (const auto known = cache_.find(key)) return *known;
  MUSTER_RETURN_IF_ERROR(make_room_in_cache());
  MUSTER_ASSIGN_OR_RETURN(const muster_plan made, plan(kernel));
  cache_.insert(key, made);
  return made;
}

Result<muster_plan> muster_session::cached(const muster_collective& c) {
  MUSTER_ASSIGN_OR_RETURN(const auto description, describe(c));
  const std::string key = "c" + description.key();
  if (const auto known = cache_.find(key)) return *known;
  MUSTER_RETURN_IF_ERROR(make_room_in_cache());
  MUSTER_ASSIGN_OR_RETURN(const muster_plan made, plan(c, description));
  cache_.insert(key, made);
  return made;
}

Status muster_session::destroy(muster_plan plan) {
  PlanRecord* record = find(plan);
  if (record == nullptr) return failure(Code::kStale, "no such plan");
  shm::HandleMessage request;
  request.handle = plan;
  MUSTER_FAULT_POINT("plan.destroying");
  auto answer = ask<shm::Plain>(request, shm::MessageKind::kPlanDestroy, shm::MessageKind::kDone);
  if (!answer) return answer.error();
  MUSTER_FAULT_POINT("plan.destroyed");
  if (!record->news.empty()) direct_->set_untold(--untold_);
  *record = PlanRecord();
  return {};
}

namespace {

Status check_submit(const muster_submit* submit) {
  if (submit == nullptr) return failure(Code::kBadArgument, "submit must not be NULL");
  return check_struct(submit->size, sizeof(muster_submit), "muster_submit");
}

template<class Description>
muster_status_t one_shot(muster_session* session, const Description* description, const muster_submit* submit,
                         muster_point* point) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || description == nullptr)
      return failure(Code::kBadArgument, "session and description must not be NULL");
    MUSTER_RETURN_IF_ERROR(check_submit(submit));
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, session->cached(*description));
    const Code code = session->start(plan, *submit, point);
    return code == Code::kOk ? Status() : session->not_started(code, plan, *submit);
  });
}

template<class Description>
muster_status_t make_plan(muster_session* session, const Description* description, muster_plan* plan) {
  if (plan != nullptr) *plan = 0;
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || description == nullptr || plan == nullptr)
      return failure(Code::kBadArgument, "session, description and plan must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(*plan, session->plan(*description));
    return {};
  });
}

}  // namespace

extern "C" {

muster_status_t muster_plan_start(muster_session* session, muster_plan plan, const muster_submit* submit,
                                  muster_point* point) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(check_submit(submit));
    MUSTER_RETURN_IF_ERROR(session->usable());
    const Code code = session->start(plan, *submit, point);
    return code == Code::kOk ? Status() : session->not_started(code, plan, *submit);
  });
}

muster_status_t muster_plan_destroy(muster_session* session, muster_plan plan) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    return session->destroy(plan);
  });
}

muster_status_t muster_plan_collective(muster_session* session, const muster_collective* collective,
                                       muster_plan* plan) {
  return make_plan(session, collective, plan);
}
muster_status_t muster_plan_kernel(muster_session* session, const muster_kernel* kernel, muster_plan* plan) {
  return make_plan(session, kernel, plan);
}
muster_status_t muster_collect(muster_session* session, const muster_collective* collective,
                               const muster_submit* submit, muster_point* point) {
  return one_shot(session, collective, submit, point);
}
muster_status_t muster_launch(muster_session* session, const muster_kernel* kernel,
                              const muster_submit* submit, muster_point* point) {
  return one_shot(session, kernel, submit, point);
}

muster_status_t muster_barrier(muster_session* session, muster_group group) {
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = group;
  return muster_run(session, &barrier, 0);
}
}
