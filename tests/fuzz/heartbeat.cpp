// Datagrams from anybody: sealed by peers, then changed, repeated or late; and forged ones. Opened datagrams
// go on to Liveness, between ticks at any times.
#include "daemon/control/link/heartbeat.hpp"
#include "daemon/supervisor/peers/liveness.hpp"

#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace muster::supervisor {
namespace {

using control::Heartbeat;

constexpr std::size_t kStepsMax = 200;
constexpr std::size_t kSealedMax = 16;
constexpr std::uint32_t kPeer = 1;
constexpr std::uint32_t kHere = 0;

struct Sealed {
  Heartbeat heartbeat;
  std::uint8_t key;
  Heartbeat::Bytes bytes;
};

Heartbeat::Key key_of(std::uint8_t number) {
  Heartbeat::Key key;
  key.fill(std::byte(number));
  return key;
}

// A node that opens what its peer has sealed by key 1.
//
// Owns    the node's reader and its Liveness.
// Thread  one.
// Bound   kStepsMax steps, kSealedMax datagrams.
// Fails   a broken promise.
class Node {
 public:
  void run(fuzz::Bytes& bytes) {
    for (std::size_t step = 0; step < kStepsMax && !bytes.empty(); ++step) {
      switch (bytes.below(6)) {
        case 0:
          seal_one(bytes);
          break;
        case 1:
          send_one(bytes);
          break;
        case 2:
          come(std::as_bytes(bytes.some(bytes.below(100))), nullptr);
          break;
        case 3:
          now_ += std::chrono::milliseconds(bytes.below(256) * 16);
          tick();
          break;
        case 4:
          now_ += std::chrono::milliseconds(bytes.below(256));
          break;
        default:
          watch();
      }
    }
  }

 private:
  void seal_one(fuzz::Bytes& bytes) {
    if (sealed_.size() == kSealedMax) return;
    Sealed one;
    one.heartbeat.from = bytes.flag() ? kPeer : static_cast<std::uint32_t>(bytes.number());
    one.heartbeat.to = bytes.flag() ? kHere : static_cast<std::uint32_t>(bytes.number());
    one.heartbeat.sequence = bytes.number();
    one.heartbeat.silence = Nanos(std::chrono::milliseconds(bytes.below(65'536)));
    one.key = static_cast<std::uint8_t>(bytes.below(3));
    const auto made = control::seal(one.heartbeat, key_of(one.key));
    MUSTER_PROMISE(made);
    one.bytes = *made;
    sealed_.push_back(one);
  }
  // As it was, or with some bytes changed.
  void send_one(fuzz::Bytes& bytes) {
    if (sealed_.empty()) return;
    const Sealed& one = sealed_[bytes.below(sealed_.size())];
    Heartbeat::Bytes sent = one.bytes;
    for (std::uint64_t changes = bytes.below(4); changes > 0; --changes)
      sent[bytes.below(sent.size())] = std::byte(bytes.take<std::uint8_t>());
    const auto length = bytes.flag() ? sent.size() : bytes.below(sent.size() + 1);
    come(std::span(sent).first(length), length == sent.size() && sent == one.bytes ? &one : nullptr);
  }
  // `as`: what has come is that, unchanged.
  void come(std::span<const std::byte> datagram, const Sealed* as) {
    const bool good = as != nullptr && as->key == 1 && as->heartbeat.from == kPeer &&
                      as->heartbeat.to == kHere && as->heartbeat.sequence > last_;
    const auto opened = reader_.open(datagram);
    MUSTER_PROMISE(opened.has_value() == good);
    if (!opened) return;
    MUSTER_PROMISE(opened->sequence == as->heartbeat.sequence && opened->silence == as->heartbeat.silence);
    last_ = opened->sequence;
    liveness_.heard("peer", now_, now_);
    heard_ = now_;
    if (const auto loss = liveness_.echo("peer", opened->silence, now_)) {
      MUSTER_PROMISE(opened->silence >= Liveness::kLostAfter);
      lose(*loss);
    }
  }
  void watch() {
    liveness_.watch("peer", now_);
    heard_ = now_;
    lost_ = false;
  }
  void tick() {
    const Liveness::Turn turn = liveness_.tick(now_);
    if (watched()) MUSTER_PROMISE(lost_ || turn.beats.size() == 1);
    for (const auto& loss : turn.lost) {
      MUSTER_PROMISE(now_ - *heard_ >= Liveness::kLostAfter);
      lose(loss);
    }
    MUSTER_PROMISE(turn.suspect.empty() || now_ - *heard_ >= Liveness::kSuspectAfter);
  }
  void lose(const Liveness::Loss& loss) {
    MUSTER_PROMISE(watched() && !lost_ && loss.why.code() == Code::kPeerLost);
    lost_ = true;
  }
  bool watched() const { return !liveness_.peers().empty(); }

  control::HeartbeatReader reader_{key_of(1), kPeer, kHere};
  std::vector<Sealed> sealed_;
  std::uint64_t last_ = 0;
  Instant now_{0};
  Liveness liveness_{now_};
  std::optional<Instant> heard_;
  bool lost_ = false;
};

}  // namespace
}  // namespace muster::supervisor

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::supervisor::Node().run(bytes);
  return 0;
}
