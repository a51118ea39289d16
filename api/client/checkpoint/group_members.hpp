// GroupMembers: the members of a group, as saves and loads use them: small messages, and one outcome for all.
#pragma once

#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"

#include <muster/muster.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

// Returns the status of `body`. An exception becomes a status too; otherwise the other members would wait for
// this one in vain.
template<class F>
Status attempt(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::kNoResource, "no memory is left");
  } catch (const std::exception& error) {
    return Status(Code::kInternal, error.what());
  }
}

// Owns    the list of ranks.
// Thread  the session's.
// Bound   an object's bytes for each message.
// Fails   as muster_object_gather; of() also with kBadArgument (this rank is no member).
class GroupMembers {
 public:
  static Result<GroupMembers> of(muster_session* session, muster_group group);

  std::size_t count() const { return ranks_.size(); }
  std::size_t index() const { return index_; }  // of this rank in the group
  std::int32_t world_rank(std::size_t member) const { return ranks_[member]; }
  muster_session* session() const { return session_; }

  // Each call is a collective. `own` is this member's status so far. If some member's is a failure, all get
  // that of the first such member, with its rank. Otherwise all get the texts of all members, in group order.
  Result<std::vector<std::string>> hear(const Status& own, std::string_view said);
  // Member 0 alone gets the texts.
  Result<std::vector<std::string>> tell_first(std::string_view said) { return gather(0, said); }
  Status agree(const Status& own);
  // Whether all members are done. A member that is done asks again until all are.
  Result<bool> all_done(const Status& own, bool done);

 private:
  GroupMembers(muster_session* session, muster_group group) : session_(session), group_(group) {}
  Result<std::vector<std::string>> gather(std::int32_t root, std::string_view said);

  muster_session* session_;
  muster_group group_;
  std::size_t index_ = 0;
  std::vector<std::int32_t> ranks_;
};

// Rounds: a member that is busy for long shows the others that it is there. They wait in calls that have a
// deadline.
//
// Owns    a failure that all members know of.
// Thread  the session's.
// Bound   two rounds a second.
// Fails   with the failure that a member has reported: at all members, in tell() or in finish().
class Rounds {
 public:
  explicit Rounds(GroupMembers& members) : members_(members) {}
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  store::Pause pause() {
    return [this] { return tell(); };
  }
  // Ends when all members have come here. The failure of one member is that of all.
  Status finish(const Status& own);

 private:
  Status tell();

  GroupMembers& members_;
  std::chrono::steady_clock::time_point told_at_ = std::chrono::steady_clock::now();
  Status heard_;  // a failure that all know of; no member asks again
};

}  // namespace muster::client
