#include "api/base/status.hpp"

#include <algorithm>
#include <iterator>

namespace muster {
namespace {

// One row per code of muster.h: its name and one sentence with the remedy.
constexpr struct {
  Code code;
  const char* name;
  const char* sentence;
} kEntries[] = {
    {Code::kOk, "MUSTER_OK", "success"},
    {Code::kPending, "MUSTER_PENDING", "not finished yet; test or wait again"},
    {Code::kBadArgument, "MUSTER_ERR_BAD_ARGUMENT", "an argument is wrong; correct it and call again"},
    {Code::kBusy, "MUSTER_ERR_BUSY", "a ring, window or buffer is in use; wait for a point and retry"},
    {Code::kUnsupported, "MUSTER_ERR_UNSUPPORTED", "this build or device cannot do that"},
    {Code::kNoResource, "MUSTER_ERR_NO_RESOURCE", "a limit was reached; raise it or use less"},
    {Code::kStale, "MUSTER_ERR_STALE", "the handle names something that is gone; create it again"},
    {Code::kDenied, "MUSTER_ERR_DENIED", "this user or token may not do that"},
    {Code::kDuplicate, "MUSTER_ERR_DUPLICATE", "the rank or name is taken already"},
    {Code::kNotFound, "MUSTER_ERR_NOT_FOUND", "no such object"},
    {Code::kConfig, "MUSTER_ERR_CONFIG", "the configuration or the mesh is not valid here"},
    {Code::kState, "MUSTER_ERR_STATE", "the call does not fit the object's state"},
    {Code::kWaitTimeout, "MUSTER_ERR_WAIT_TIMEOUT", "the wait's own time ran out; the operation goes on"},
    {Code::kWaitInterrupted, "MUSTER_ERR_WAIT_INTERRUPTED",
     "the wait was interrupted; the operation goes on, so wait again or abort its group"},
    {Code::kMismatch, "MUSTER_ERR_MISMATCH", "the ranks of a group disagree about an operation"},
    {Code::kTimeout, "MUSTER_ERR_TIMEOUT", "an operation passed its deadline"},
    {Code::kPeerLost, "MUSTER_ERR_PEER_LOST", "a member of the group has ended, or was lost"},
    {Code::kAborted, "MUSTER_ERR_ABORTED", "a member aborted the group; it may run again when all know"},
    {Code::kDependency, "MUSTER_ERR_DEPENDENCY", "work that this depended on failed before"},
    {Code::kCorrupt, "MUSTER_ERR_CORRUPT",
     "members hold different bytes where they must be equal; move the rank that is named"},
    {Code::kInterrupted, "MUSTER_ERR_INTERRUPTED",
     "this rank was interrupted in an operation, which ended for its group; run again when all know"},
    {Code::kMinority, "MUSTER_ERR_MINORITY",
     "nodes are silent, and the members on this side are too few to go on without them"},
    {Code::kProtocol, "MUSTER_ERR_PROTOCOL", "the session broke the protocol and was closed"},
    {Code::kVersion, "MUSTER_ERR_VERSION", "library and daemon do not speak the same version"},
    {Code::kDaemonLost, "MUSTER_ERR_DAEMON_LOST", "the daemon is not reachable; reopen the session"},
    {Code::kJobEnded, "MUSTER_ERR_JOB_ENDED", "the job was ended; close the session"},
    {Code::kDevice, "MUSTER_ERR_DEVICE", "the device failed; move the rank"},
    {Code::kInternal, "MUSTER_ERR_INTERNAL", "a defect of Muster; please report it"},
};

// Null for a number that is no code.
auto* find(Code code) {
  const auto* entry = std::find_if(std::begin(kEntries), std::end(kEntries),
                                   [code](const auto& each) { return each.code == code; });
  return entry != std::end(kEntries) ? entry : nullptr;
}

}  // namespace

const char* code_name(Code code) noexcept {
  const auto* entry = find(code);
  return entry != nullptr ? entry->name : "MUSTER_ERR_UNKNOWN";
}

const char* code_sentence(Code code) noexcept {
  const auto* entry = find(code);
  return entry != nullptr ? entry->sentence : "a number that is no status";
}

bool is_known(muster_status_t value) noexcept {
  return find(static_cast<Code>(value)) != nullptr;
}

std::string Status::text() const {
  if (message_.empty()) return code_name(code_);
  return fmt::format("{}: {}", code_name(code_), message_);
}

}  // namespace muster
