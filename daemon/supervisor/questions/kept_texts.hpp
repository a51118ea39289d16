// KeptTexts: texts that other nodes fetch in parts, because one may be larger than a message between nodes.
//
// A part is {"report": R, "bytes": of the text, "from": offset, "text": bytes}: kPartBytes, or what is left.
// The first part is the answer to a question. For each further part the peer asks again, with "report" and
// "from", so it never gets more than it reads.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace muster::supervisor {

// Owns    the descriptors of texts that have not been fetched to their end.
// Thread  the supervisor's loop.
// Bound   kOfPeerMax texts for each peer, each of kTextBytesMax; kTime from one question for it to the next.
// Fails   first: kProtocol (it is no text, or too large), kBusy. part: kNotFound, kBadArgument.
class KeptTexts {
 public:
  static constexpr std::size_t kPartBytes = std::size_t{512} << 10;
  static constexpr std::size_t kTextBytesMax = std::size_t{32} << 20;
  static constexpr std::size_t kOfPeerMax = 8;
  static constexpr Nanos kTime = std::chrono::seconds(5);

  using Text = std::shared_ptr<const shm::Descriptor>;

  explicit KeptTexts(control::Loop& loop) : loop_(loop) {}
  ~KeptTexts();
  KeptTexts(const KeptTexts&) = delete;
  KeptTexts& operator=(const KeptTexts&) = delete;

  // The first part. If there is more, the text is kept for the peer.
  Result<control::Json> first(const std::string& peer, const Text& text);
  Result<control::Json> part(const std::string& peer, std::uint64_t report, std::uint64_t from);
  // The peer is away.
  void forget(const std::string& peer);

 private:
  struct Kept {
    std::string peer;
    Text text;
    std::size_t bytes = 0;
    control::Loop::Watch timer = 0;
  };
  void expire_later(std::uint64_t report);
  void drop(std::uint64_t report);

  control::Loop& loop_;
  std::map<std::uint64_t, Kept> kept_;  // by report
  std::uint64_t next_ = 1;
};

}  // namespace muster::supervisor
