#include "api/base/status.hpp"

#include <array>

namespace muster {
namespace {

struct CodeText {
  Code code;
  const char* name;
  const char* sentence;
};

// One row per code of muster.h: its name and one sentence with the remedy.
constexpr std::array kEntries{
    CodeText{Code::kOk, "MUSTER_OK", "success"},
    CodeText{Code::kPending, "MUSTER_PENDING", "not finished yet; test or wait again"},
    CodeText{Code::kBadArgument, "MUSTER_ERR_BAD_ARGUMENT",
             "an argument is wrong; correct it and call again"},
    CodeText{Code::kBusy, "MUSTER_ERR_BUSY",
             "a ring, window or buffer is in use; wait for a point and retry"},
    CodeText{Code::kUnsupported, "MUSTER_ERR_UNSUPPORTED", "this build or device cannot do that"},
    CodeText{Code::kNoResource, "MUSTER_ERR_NO_RESOURCE", "a limit was reached; raise it or use less"},
    CodeText{Code::kStale, "MUSTER_ERR_STALE", "the handle names something that is gone; create it again"},
    CodeText{Code::kDenied, "MUSTER_ERR_DENIED", "this user or token may not do that"},
    CodeText{Code::kDuplicate, "MUSTER_ERR_DUPLICATE", "the rank or name is taken already"},
    CodeText{Code::kNotFound, "MUSTER_ERR_NOT_FOUND", "no such object"},
    CodeText{Code::kConfig, "MUSTER_ERR_CONFIG", "the configuration or the mesh is not valid here"},
    CodeText{Code::kState, "MUSTER_ERR_STATE", "the call does not fit the object's state"},
    CodeText{Code::kWaitTimeout, "MUSTER_ERR_WAIT_TIMEOUT",
             "the wait's own time ran out; the operation goes on"},
    CodeText{Code::kWaitInterrupted, "MUSTER_ERR_WAIT_INTERRUPTED",
             "the wait was interrupted; the operation goes on, so wait again or abort its group"},
    CodeText{Code::kMismatch, "MUSTER_ERR_MISMATCH", "the ranks of a group disagree about an operation"},
    CodeText{Code::kTimeout, "MUSTER_ERR_TIMEOUT", "an operation passed its deadline"},
    CodeText{Code::kPeerLost, "MUSTER_ERR_PEER_LOST", "a member of the group has ended, or was lost"},
    CodeText{Code::kAborted, "MUSTER_ERR_ABORTED",
             "a member aborted the group; it may run again when all know"},
    CodeText{Code::kDependency, "MUSTER_ERR_DEPENDENCY", "work that this depended on failed before"},
    CodeText{Code::kCorrupt, "MUSTER_ERR_CORRUPT",
             "members hold different bytes where they must be equal; move the rank that is named"},
    CodeText{Code::kInterrupted, "MUSTER_ERR_INTERRUPTED",
             "this rank was interrupted in an operation, which ended for its group; run again when all know"},
    CodeText{Code::kMinority, "MUSTER_ERR_MINORITY",
             "nodes are silent, and the members on this side are too few to go on without them"},
    CodeText{Code::kProtocol, "MUSTER_ERR_PROTOCOL", "the session broke the protocol and was closed"},
    CodeText{Code::kVersion, "MUSTER_ERR_VERSION", "library and daemon do not speak the same version"},
    CodeText{Code::kDaemonLost, "MUSTER_ERR_DAEMON_LOST", "the daemon is not reachable; reopen the session"},
    CodeText{Code::kJobEnded, "MUSTER_ERR_JOB_ENDED", "the job was ended; close the session"},
    CodeText{Code::kDevice, "MUSTER_ERR_DEVICE", "the device failed; move the rank"},
    CodeText{Code::kInternal, "MUSTER_ERR_INTERNAL", "a defect of Muster; please report it"},
};

const CodeText* find(Code code) {
  for (const CodeText& entry : kEntries)
    if (entry.code == code) return &entry;
  return nullptr;
}

}  // namespace

const char* code_name(Code code) noexcept {
  const CodeText* entry = find(code);
  return entry != nullptr ? entry->name : "MUSTER_ERR_UNKNOWN";
}

const char* code_sentence(Code code) noexcept {
  const CodeText* entry = find(code);
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
