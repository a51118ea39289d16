// Calls of the C API that every set makes, and the buffers and plans that it owns.
#pragma once

#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

// The status of a call of the C API, with its sentence.
inline Status status_of(muster_status_t code) {
  return code == MUSTER_OK ? Status() : Status(static_cast<Code>(code), muster_last_error());
}

// Repeats a call as long as it returns BUSY, for some seconds. For a start that has failed has its outcome a
// moment before the daemon has given it up.
muster_status_t repeat_while_busy(const std::function<muster_status_t()>& call);

// Why no call of the session can succeed any more.
Status check_session(muster_session* session);

// Whether the text may name a place in a program, in messages and traces: 1 to 47 bytes without control
// characters.
bool is_site(std::string_view text);

// The world ranks of a group, in its order. Asks the daemon the first time. Errors: those of
// muster_group_ranks.
Result<std::vector<std::int32_t>> ranks_of(muster_session* session, muster_group group);

// Owns    the objects that it has made, until release(). A session that ends takes them all.
// Thread  the session's.
// Bound   that of the session.
// Fails   as the calls of the C API that it makes.
class Resources {
 public:
  explicit Resources(muster_session* session) : session_(session) {}
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  muster_session* session() const { return session_; }
  std::uint64_t bytes() const { return bytes_; }  // of all buffers

  // A buffer of at least one byte.
  Result<muster_buffer> buffer(std::uint64_t bytes);
  // One that the members of a group have between them.
  Result<muster_buffer> shared_buffer(std::uint64_t bytes, muster_group group, const std::string& name);
  Result<muster_plan> plan(const muster_collective& collective);
  Result<muster_plan> plan(const muster_kernel& kernel);
  // Gives all back. A buffer that plans of the caller use stays until the session ends. Errors: BUSY, while a
  // start of a plan is in flight.
  Status release();

 private:
  muster_session* session_;
  std::vector<muster_buffer> buffers_;
  std::vector<muster_plan> plans_;
  std::uint64_t bytes_ = 0;
};

}  // namespace muster::client
