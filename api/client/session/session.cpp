#include "api/client/session/session.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <unistd.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::Attachment;
using muster::client::CheckMode;
using muster::client::DirectPath;
using muster::client::SessionMark;
namespace shm = muster::shm;

namespace {

shm::DirectHeader* header_of(const shm::Mapping& direct) {
  return direct.valid() ? reinterpret_cast<shm::DirectHeader*>(direct.writable()) : nullptr;
}

std::unique_ptr<DirectPath> open_direct(const DirectPath::Uses& uses, Attachment& attachment,
                                        Status* opened) {
  if (!attachment.direct.valid()) return nullptr;
  const shm::Welcome& welcome = attachment.welcome;
  if (!welcome.costs.sound()) {
    *opened = muster::failure(muster::Code::kProtocol, "the daemon's costs of this node cannot be");
    return nullptr;
  }
  const muster::Machine machine{welcome.cores, static_cast<std::uint32_t>(welcome.local_size), true,
                                welcome.costs};
  auto direct = DirectPath::open(uses, std::move(attachment.direct), std::move(attachment.groups), machine);
  if (direct) return std::move(*direct);
  *opened = direct.error();
  return nullptr;
}

}  // namespace

muster_session::muster_session(Attachment attachment, Mode mode, Status* opened)
    : mark_{getpid(), muster::client::forks() | (mode == Mode::kCheck ? SessionMark::kChecked : 0)},
      ring_(std::move(attachment.submission)),
      page_(std::move(attachment.completion)),
      completion_(page_.page(), ring_.writable_header()),
      connection_(std::move(attachment.socket), attachment.welcome, std::move(attachment.endpoint),
                  attachment.timeout, completion_),
      interrupt_(connection_),
      plan_table_(header_of(attachment.direct)),
      submission_({ring_, page_, completion_}, std::move(attachment.doorbell), connection_, plan_table_),
      waiting_(completion_, submission_.timelines(), connection_, interrupt_, last_failure_),
      groups_(connection_, last_failure_),
      check_(mode == Mode::kCheck ? std::make_unique<CheckMode>(attachment.welcome.rank) : nullptr),
      buffers_(connection_, groups_, check_.get()),
      direct_(
          open_direct({connection_, last_failure_, interrupt_, submission_, buffers_}, attachment, opened)),
      plans_({connection_, groups_, buffers_, plan_table_, completion_, direct_.get(), check_.get()}),
      comparison_(groups_, buffers_, plans_),
      runs_(connection_, groups_, completion_, plan_table_, submission_, waiting_, interrupt_, last_failure_,
            comparison_, direct_.get()),
      objects_(groups_, buffers_, plans_, runs_),
      shown_units_(ring_.writable_header()) {}

muster_session::~muster_session() = default;

// Its operator new gives no more.
static_assert(alignof(muster_session) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

Result<std::unique_ptr<muster_session>> muster_session::create(Attachment attachment, Mode mode) {
  Status opened;
  std::unique_ptr<muster_session> session(new muster_session(std::move(attachment), mode, &opened));
  if (!opened.ok()) return fail(opened);
  return session;
}

Status muster_session::usable_elsewhere() const {
  Status why = mark_.why_not();
  return why.ok() ? connection_.usable() : why;
}

Code muster_session::interrupt() noexcept {
  if (!mark_.is_here() && !mark_.is_checked()) return Code::kStale;
  interrupt_.raise();
  return Code::kOk;
}

std::optional<std::uint64_t> muster_session::own_counter(std::string_view name) const {
  return direct_ != nullptr ? direct_->counter(name) : std::nullopt;
}

// All members gather all numbers, so all find the same, and none goes on before all have come.
Status muster_session::agree_on(muster_group group, muster::Nanos deadline) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, groups_.facts(group));
  const std::size_t members = facts->ranks.size();
  std::vector<std::int64_t> given(1 + members, deadline.count());  // this rank's own, then all
  MUSTER_ASSIGN_OR_RETURN(const auto buffer, buffers_.alloc(given.size() * sizeof given[0]));
  if (buffer.address == nullptr)
    return failure(Code::kUnsupported, "an agreement needs memory that this process sees");
  std::memcpy(buffer.address, given.data(), sizeof given[0]);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_GATHER;
  c.group = group;
  c.dtype = MUSTER_I64;
  c.source = {buffer.buffer, 0};
  c.target = {buffer.buffer, sizeof given[0]};
  c.count = 1;
  const auto plan = plans_.cached(c);
  const Status ran = plan ? runs_.run(*plan, muster::Nanos(0)) : plan.error();
  std::memcpy(given.data(), buffer.address, given.size() * sizeof given[0]);
  Status freed = plans_.forget_cached_over(buffer.buffer);
  if (freed.ok()) freed = buffers_.free(buffer.buffer);
  MUSTER_RETURN_IF_ERROR(ran);
  MUSTER_RETURN_IF_ERROR(freed);
  for (std::size_t i = 2; i <= members; ++i) {
    if (given[i] == given[1]) continue;
    const Status differ =
        failure(Code::kMismatch, "ranks give a mesh different deadlines: rank {} {} ns, rank {} {} ns",
                facts->ranks[0], given[1], facts->ranks[i - 1], given[i]);
    last_failure_.note(differ);
    return differ;
  }
  return {};
}

Status muster_session::set_mesh_deadline(muster_mesh mesh, muster::Nanos deadline) {
  MUSTER_ASSIGN_OR_RETURN(const muster_group all, groups_.whole(mesh));
  MUSTER_RETURN_IF_ERROR(agree_on(all, deadline));
  return groups_.set_deadline(mesh, deadline);
}

namespace muster::client {

void abort_group(muster_session* session, muster_group group, std::string_view reason) {
  static_cast<void>(session->groups().abort(group, reason));
}

Result<bool> spans_nodes(muster_session* session, muster_group group) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->groups().facts(group));
  return facts->spans;
}

muster_status_t mark_step(muster_session* session, std::uint64_t step) {
  return with_session(session, [&]() -> Status {
    const Code code = session->submission().mark_step(step);
    return code == Code::kOk ? Status() : session->submission().not_pushed(code);
  });
}

void show_units(muster_session* session, const void* set, const shm::UnitFigures* figures) {
  if (figures == nullptr)
    session->shown_units().remove(set);
  else
    session->shown_units().update(set, *figures);
}

}  // namespace muster::client
