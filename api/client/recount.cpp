// New counts for a plan: what its caller said is said anew, checked here as the engine would, and told the
// engine with the plan's next start. A run does not need the engine, so it is not told of what only runs.
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/client/session.hpp"
#include "api/shm/message.hpp"

#include <algorithm>

using muster::Code;
using muster::failure;
using muster::Status;
namespace shm = muster::shm;

namespace {

muster_collective said_before(const shm::PlanCollective& m) {
  muster_collective said = MUSTER_COLLECTIVE_INIT;
  said.op = m.op;
  said.group = m.group;
  said.dtype = m.dtype;
  said.redop = m.redop;
  said.peer = m.peer;
  said.scale = m.scale;
  said.source = m.source;
  said.target = m.target;
  return said;
}

void append_numbers(std::vector<shm::Command>& commands, shm::CountList list,
                    std::span<const std::byte> bytes, std::uint32_t entries) {
  for (std::uint32_t first = 0; first < entries; first += shm::kNumbersPerCommand) {
    shm::Command command;
    command.kind = shm::CommandKind::kNumbers;
    command.lane = static_cast<std::uint16_t>(list);
    command.first = first;
    const auto number = [&](std::size_t i) {
      return first + i < entries ? shm::tail_entry<std::uint64_t>(bytes, first + i) : 0;
    };
    for (std::size_t i = 0; i < MUSTER_WAITS_MAX; ++i) command.waits[i] = number(i);
    command.deadline_ns = number(MUSTER_WAITS_MAX);
    commands.push_back(command);
  }
}

// What the engine has to hear.
std::vector<shm::Command> commands_of(muster_plan plan, const muster::client::Description& description) {
  const shm::PlanCollective& m = description.message;
  const std::uint32_t lengths[] = {m.source_counts, m.source_offsets, m.target_counts, m.target_offsets};
  std::vector<shm::Command> commands;
  shm::Command last;
  last.kind = shm::CommandKind::kRecount;
  last.plan = plan;
  last.deadline_ns = m.count;
  std::span<const std::byte> rest(description.lists);
  for (std::size_t i = 0; i < shm::kCountLists; ++i) {
    append_numbers(commands, static_cast<shm::CountList>(i), rest, lengths[i]);
    rest = rest.subspan(lengths[i] * sizeof(std::uint64_t));
    last.waits[i] = lengths[i];
  }
  commands.push_back(last);
  return commands;
}

Status check_room(const char* name, std::span<const muster::Block> blocks, std::size_t element,
                  std::uint64_t room) {
  const std::uint64_t need = muster::extent_of(blocks);
  if (need <= room / element) return {};
  return failure(Code::kBadArgument, "{}: {} elements of {} bytes end behind the {} bytes of its buffer",
                 name, need, element, room);
}

}  // namespace

Status muster_session::recount(muster_plan plan, const muster_collective& counts) {
  PlanRecord* record = find(plan);
  if (record == nullptr) return failure(Code::kStale, "no such plan");
  if (record->told == nullptr) return failure(Code::kBadArgument, "a kernel's plan has no counts");
  const shm::PlanCollective& before = record->told->message;
  if (before.op == MUSTER_EXCHANGE || before.op == MUSTER_BARRIER)
    return failure(Code::kUnsupported, "{} has no counts that could change; make another plan",
                   muster::op_name(before.op));
  if (!direct_)
    return failure(Code::kUnsupported,
                   "on a device whose memory this process does not see counts are not "
                   "checked here; make another plan");
  muster_collective said = said_before(before);
  said.count = counts.count;
  said.source_blocks = counts.source_blocks;
  said.target_blocks = counts.target_blocks;
  MUSTER_ASSIGN_OR_RETURN(auto description, describe(said));
  std::copy_n(before.site, sizeof before.site, description.message.site);
  MUSTER_ASSIGN_OR_RETURN(const GroupFacts* facts, known_group(said.group));
  const auto ranks = static_cast<std::int32_t>(facts->ranks.size());
  MUSTER_ASSIGN_OR_RETURN(auto described, muster::client::described_of(*this, said, facts->rank, ranks));
  const std::size_t element = muster::dtype_bytes(said.dtype);
  MUSTER_RETURN_IF_ERROR(check_room("source", described.mine.source_blocks, element, room_of(said.source)));
  MUSTER_RETURN_IF_ERROR(check_room("target", described.mine.target_blocks, element, room_of(said.target)));
  MUSTER_RETURN_IF_ERROR(check_share(described.what, described.mine, ranks));
  if (record->direct != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(*record->direct, direct_->plan(plan, described));
  }
  MUSTER_FAULT_POINT("recount.checked");
  if (record->news.empty()) direct_->set_untold(++untold_);
  record->news = commands_of(plan, description);
  *record->told = {description.message, std::move(described)};
  record->usual_lane = muster::client::usual_lane(description.message);
  MUSTER_FAULT_POINT("recount.noted");
  return {};
}

Code muster_session::tell(PlanRecord& record) {
  if (record.news.empty()) return Code::kOk;
  const Code code = push(record.news);
  if (code != Code::kOk) return code;
  MUSTER_FAULT_POINT("recount.told");
  record.news.clear();
  direct_->set_untold(--untold_);
  return Code::kOk;
}

Code muster_session::tell_all() {
  for (PlanRecord& record : plans_)
    if (const Code code = tell(record); code != Code::kOk) return code;
  return Code::kOk;
}

extern "C" {

muster_status_t muster_plan_recount(muster_session* session, muster_plan plan, uint64_t count,
                                    const muster_blocks* source_blocks, const muster_blocks* target_blocks) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    muster_collective counts = MUSTER_COLLECTIVE_INIT;
    counts.count = count;
    if (source_blocks != nullptr) counts.source_blocks = *source_blocks;
    if (target_blocks != nullptr) counts.target_blocks = *target_blocks;
    return session->recount(plan, counts);
  });
}
}
