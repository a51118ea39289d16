#include "daemon/engine/job/job_buffers.hpp"

#include "api/shm/message.hpp"

#include <algorithm>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::engine {
namespace {

constexpr std::uint32_t kNamesPerRankMax = 1024;

// As many bytes as all arenas together.
std::uint64_t names_bytes_max(const control::JobSpec& spec) {
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(spec.arena_bytes_max, spec.world.local_count(), &bytes) ? UINT64_MAX : bytes;
}

// Which memory a group shares by that name: a number that is the same on all nodes of the group (D19), and
// not 0. A group of this node alone has its place in the table; one that spans nodes has its key.
std::uint64_t shared_memory_of(GroupId id, const scheduler::Group& group, std::string_view name) {
  const std::uint64_t sharers[] = {group.key, group.spans() ? 0 : id.value};
  const std::uint64_t seed = XXH3_64bits(sharers, sizeof sharers);
  return std::max<std::uint64_t>(1, XXH3_64bits_withSeed(name.data(), name.size(), seed));
}

}  // namespace

JobBuffers::JobBuffers(const control::JobSpec& spec, EngineLock& lock, const RankDevices& devices,
                       const scheduler::Graph& graph, const RankSlots& slots, DirectPages* direct_pages)
    : lock_(lock),
      devices_(devices),
      graph_(graph),
      slots_(slots),
      direct_pages_(direct_pages),
      arenas_(spec.world,
              [&](Rank rank) {
                return std::make_unique<Arena>(*devices.table()[rank],
                                               Arena::Options{spec.arena_bytes_max, spec.segment_bytes});
              }),
      named_(devices.first(), {names_bytes_max(spec), spec.world.local_count() * kNamesPerRankMax}) {}

// The arena belongs to the conductor and may take long to reserve a segment, so it works without the lock.
// The session's table of buffers is written under the lock, because its holder reads it for new counts.
Result<Handle> JobBuffers::alloc(Session& session, const shm::BufferAlloc& request, int imported,
                                 shm::BufferGrant* grant, int* descriptor) {
  MUSTER_ASSIGN_OR_RETURN(const std::string_view name, shm::checked_text(request.name, "name"));
  const bool special = !name.empty() || request.shared_by != 0 || request.imported != 0;
  if (request.bytes == 0) return fail(Code::kBadArgument, "a buffer needs at least one byte");
  if (special && !devices_.all(&device::Device::Info::node_memory))
    return fail(Code::kUnsupported, "named, shared and imported buffers exist on host devices only");
  if (!name.empty() && request.imported != 0)
    return fail(Code::kBadArgument, "the imported buffer '{}' cannot have a name: its memory is the caller's",
                name);
  if (name.empty() && request.shared_by != 0)
    return fail(Code::kBadArgument, "a node-shared buffer needs a name, by which its members find it");
  MUSTER_RETURN_IF_ERROR(session.buffers().check_limit());
  const auto made = request.imported != 0 ? import(session, request, imported)
                    : !name.empty()       ? alloc_named(session, request, name)
                                          : carve(session, request.bytes);
  MUSTER_ASSIGN_OR_RETURN(const Handle handle, made);
  const Buffer& buffer = *session.buffers().find(handle);
  const Arena& own = arena(session.options().rank);
  const device::Memory& memory = *own.segment(buffer.grant.segment);
  grant->buffer = handle.bits;
  grant->segment = buffer.grant.segment;
  grant->segment_is_new = session.buffers().introduce_segment(buffer.grant.segment) ? 1 : 0;
  grant->segment_bytes = memory.bytes();
  grant->offset = buffer.grant.offset;
  grant->shared_memory = buffer.shared_memory;
  grant->found = buffer.name.valid() && buffer.name.found() ? 1 : 0;
  *descriptor = grant->segment_is_new != 0 ? memory.descriptor() : -1;
  return handle;
}

Result<Handle> JobBuffers::carve(Session& session, std::uint64_t bytes) {
  Buffer buffer;
  Arena& own = arena(session.options().rank);
  MUSTER_ASSIGN_OR_RETURN(buffer.grant, own.allocate(bytes));
  buffer.bytes = bytes;
  const std::lock_guard lock(lock_);
  return session.buffers().add(std::move(buffer));
}

Result<Handle> JobBuffers::alloc_named(Session& session, const shm::BufferAlloc& request,
                                       std::string_view name) {
  const Rank rank = session.options().rank;
  if (slots_.lingers(rank))
    return fail(Code::kBusy, "work of the former session of rank {} still runs; ask for '{}' again",
                rank.value, name);
  Buffer buffer;
  NameScope scope{NameScope::Kind::kRank, rank.value};
  if (request.shared_by != 0 && request.shared_by != MUSTER_GROUP_SELF) {
    MUSTER_ASSIGN_OR_RETURN(const GroupId group,
                            find_group(session.scope(graph_.groups()), request.shared_by));
    const auto& ranks = graph_.groups()[group.value].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
      return fail(Code::kBadArgument, "rank {} is not a member of group {}, which shares the buffer '{}'",
                  rank.value, graph_.groups()[group.value].name, name);
    scope = {NameScope::Kind::kGroup, group.value};
    buffer.shared_by = group;
    buffer.shared_memory = shared_memory_of(group, graph_.groups()[group.value], name);
  }
  MUSTER_ASSIGN_OR_RETURN(buffer.name, named_.open(scope, std::string(name), request.bytes));
  if (session.buffers().holds(buffer.name.identity()))
    return fail(Code::kDuplicate, "this session has the buffer '{}' already", name);
  auto grant = arena(rank).adopt(buffer.name.memory(), 0, request.bytes);
  if (!grant) {
    if (!buffer.name.found()) buffer.name.drop();
    return fail(grant.error());
  }
  buffer.grant = *grant;
  buffer.bytes = request.bytes;
  const std::lock_guard lock(lock_);
  return session.buffers().add(std::move(buffer));
}

Result<Handle> JobBuffers::import(Session& session, const shm::BufferAlloc& request, int memory) {
  if (memory < 0)
    return fail(Code::kNoResource,
                "the memory to import did not arrive: the engine has no descriptor free; "
                "raise its open-files limit (ulimit -n, LimitNOFILE)");
  if (request.shared_by != 0)
    return fail(Code::kBadArgument,
                "an imported buffer cannot be shared by a group: its memory is the "
                "caller's");
  if (request.memory_offset % Arena::kAlignment != 0)
    return fail(Code::kBadArgument,
                "the imported buffer begins at byte {} of its memory: not a multiple of {}",
                request.memory_offset, Arena::kAlignment);
  MUSTER_ASSIGN_OR_RETURN(
      std::shared_ptr<device::Memory> imported,
      devices_.table()[session.options().rank]->import(memory, request.memory_offset, request.bytes));
  Buffer buffer;
  Arena& own = arena(session.options().rank);
  MUSTER_ASSIGN_OR_RETURN(buffer.grant, own.adopt(std::move(imported), request.memory_offset, request.bytes));
  buffer.bytes = request.bytes;
  const std::lock_guard lock(lock_);
  return session.buffers().add(std::move(buffer));
}

Status JobBuffers::free(Session& session, Handle handle) {
  SessionBuffers::Gone gone;  // outlives the lock
  const std::lock_guard lock(lock_);
  session.plans().forget_former();
  MUSTER_RETURN_IF_ERROR(session.buffers().free(handle, gone));
  tell_retired(session.options().rank);
  return {};
}

void JobBuffers::give_back(Session& session, SessionBuffers::Gone& gone) {
  session.buffers().give_back(gone);
  tell_retired(session.options().rank);
}

void JobBuffers::tell_retired(Rank rank) {
  if (direct_pages_ != nullptr) direct_pages_->segments().set_retired(rank, arena(rank).retired());
}

}  // namespace muster::engine
