// The members of a group, as saves and loads speak with them: small messages, and one outcome for all.
#pragma once

#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

// What `body` returns. An exception, which would keep this member from telling the others, is a status too.
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
  // that of the first such member, with its rank. Else all get what each member says, in group order.
  Result<std::vector<std::string>> hear(const Status& own, std::string_view said);
  // As above, but member 0 alone gets what they say.
  Result<std::vector<std::string>> tell_first(const Status& own, std::string_view said);
  Status agree(const Status& own);
  // Whether all are done. A member that is done asks again until they are.
  Result<bool> all_done(const Status& own, bool done);

 private:
  GroupMembers(muster_session* session, muster_group group) : session_(session), group_(group) {}
  Result<std::vector<std::string>> gather(std::int32_t root, std::string_view said);

  muster_session* session_;
  muster_group group_;
  std::size_t index_ = 0;
  std::vector<std::int32_t> ranks_;
};

}  // namespace muster::client
