// State: the facts that a supervisor leaves to its successor, and their bytes. It holds only facts that
// engines cannot report; engines report which ranks are attached.
//
//   State::Header | body: JSON, `length` bytes
//
// A reader takes a state if it understands its version, or a later one that allows it (oldest_reader). It
// keeps unknown fields of the state, of a job and of its spec, unread, so that a later version finds them
// again after a step back. A version that cannot accept this names itself as the oldest reader. A newer field
// may be missing when it is read. The bytes are checked as if any program had written them.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/control.hpp"
#include "daemon/control/job.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::supervisor {

constexpr std::uint64_t kMagicState = 0x315441545354534dULL;  // "MSTSTAT1"
constexpr std::size_t kStateBytesMax = std::size_t{64} << 20;

struct SavedJob {
  // One that was issued, and has not been used as far as is known.
  struct Token {
    std::uint32_t rank = 0;
    std::uint32_t attachments = 0;  // of the rank at the token's issue: one more, and it is spent
    std::string text;
  };
  // The Slurm job of which a rank is, or was last: as the daemon has seen it, and as the rank has claimed.
  struct Origin {
    std::uint32_t rank = 0;
    std::string seen, said;
  };
  control::JobSpec spec;
  std::uint32_t gid = 0;
  std::int32_t engine_pid = 0;
  std::uint64_t owner = 0;  // connection whose end is the job's end; 0: none
  bool made = false;        // by a Hello: it ends when its ranks have left
  bool held = false;        // a part of a job of several nodes, which may not have theirs
  std::string ending;       // why it was told to end; empty: it was not
  std::vector<Token> tokens;
  std::vector<Origin> origins;
  control::Json later = control::Json::object();       // fields that this version does not know
  control::Json spec_later = control::Json::object();  // the same for the spec
};

struct State {
  struct Header {
    std::uint64_t magic = kMagicState;
    std::uint32_t version = 0;
    std::uint32_t oldest_reader = 0;  // the oldest version that may read this
    std::uint64_t sequence = 0;       // number of the write; the highest whole one counts
    std::uint64_t length = 0;         // of the body
    std::uint64_t checksum[2] = {};   // XXH3, 128 bits, of header (with zeros here) and body
  };
  static_assert(sizeof(Header) == 48);
  // A version: its number, its oldest reader, and first values of fields beyond those of `State`. `protocol`:
  // the version of messages that this program speaks with engines and command lines.
  struct Format {
    std::uint32_t version = 1;
    std::uint32_t oldest_reader = 1;
    control::Json first_values = control::Json::object();
    std::uint32_t protocol = shm::kAbiVersion;
  };
  std::uint64_t epoch = 0;      // drawn at the first start
  std::uint64_t instance = 0;   // supervisors since then
  std::int64_t started_ns = 0;  // of the first supervisor, on the steady clock
  std::int64_t upgrade_ns = 0;  // when this instance gave way to the next on purpose; 0: it did not
  std::uint32_t protocol = shm::kAbiVersion;  // of the writer, and so of its engines; 0: not said
  bool managers_socket_stood = false;         // the daemon has seen the file of the service manager's socket
  std::vector<SavedJob> jobs;
  control::Json later = control::Json::object();  // fields that this version does not know
};

// The format of this program. Defined in a file of its own, so that a test can link the next release's.
State::Format state_format();

// Header and body as bytes, with the header's checksum filled in.
std::vector<std::byte> seal(State::Header header, std::span<const std::byte> body);
// The state as bytes. `format` adds its first values to `later` where they are missing.
std::vector<std::byte> encode(const State& state, const State::Format& format, std::uint64_t sequence);

struct Decoded {
  State state;
  std::uint32_t version = 0;  // of the writer
  std::uint64_t sequence = 0;
};
// Errors: kProtocol (not a state, not whole, a field missing or out of range), kVersion (not for `reader`).
Result<Decoded> decode(std::span<const std::byte> bytes, std::uint32_t reader);
// Whether this program speaks the protocol of the state's engines. kVersion.
Status check_protocol(const State& state, const State::Format& format);

// The header, if the bytes begin with a state of at most `room` bytes. kProtocol.
Result<State::Header> check_state_header(std::span<const std::byte> bytes, std::size_t room);
// The header of a whole state, also of one that this version may not read. kProtocol.
Result<State::Header> check_whole(std::span<const std::byte> bytes);

}  // namespace muster::supervisor
