// Messages of other nodes' engines while nodes agree on the survivors of a group: random bytes, and valid
// messages that are changed on the way.
#include "daemon/engine/nodes/agreement_wire.hpp"

#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"
#include "transport/collective/job_links.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {
namespace {

constexpr std::size_t kStepsMax = 100;
constexpr std::uint32_t kNodesMax = 4;
constexpr std::uint64_t kMembersMax = 12;
constexpr std::uint64_t kRoundFar = std::uint64_t{1} << 61;
constexpr std::uint32_t kBallotFar = std::uint32_t{1} << 30;

using Kind = AgreementMessage::Kind;

// Owns    one node's part.
// Thread  one.
// Bound   kStepsMax events.
// Fails   a broken promise.
class Part {
 public:
  explicit Part(fuzz::Bytes& bytes)
      : bytes_(bytes), options_(drawn_options(bytes)), agreement_(options_), round_(0) {}

  void run() {
    for (std::size_t step = 0; step < kStepsMax && !bytes_.empty(); ++step) {
      one_step();
      look();
    }
  }

 private:
  static SurvivorAgreement::Options drawn_options(fuzz::Bytes& bytes) {
    SurvivorAgreement::Options options;
    options.nodes = static_cast<std::uint32_t>(2 + bytes.below(kNodesMax - 1));
    options.here = static_cast<std::uint32_t>(bytes.below(options.nodes));
    for (std::uint32_t place = 0; place < options.nodes; ++place) options.place_of.push_back(place);
    for (std::uint64_t more = bytes.below(kMembersMax - options.nodes + 1); more > 0; --more)
      options.place_of.push_back(static_cast<std::uint32_t>(bytes.below(options.nodes)));
    if (bytes.flag()) options.tie_breaker = static_cast<std::uint32_t>(bytes.below(options.nodes));
    for (std::uint32_t place = 0; place < options.nodes; ++place) options.known.push_back(bytes.flag());
    return options;
  }

  std::size_t members_on(std::uint32_t place) const {
    return static_cast<std::size_t>(std::count(options_.place_of.begin(), options_.place_of.end(), place));
  }
  MemberBits bits(std::size_t count) {
    MemberBits drawn(count);
    const auto mask = bytes_.take<std::uint16_t>();
    for (std::size_t i = 0; i < count; ++i) drawn[i] = (mask >> (i % 16) & 1) != 0;
    return drawn;
  }
  std::uint32_t other() {
    const auto drawn = static_cast<std::uint32_t>(bytes_.below(options_.nodes - 1));
    return drawn < options_.here ? drawn : drawn + 1;
  }

  void one_step() {
    const std::uint32_t from = other();
    switch (bytes_.below(6)) {
      case 0: {
        const std::size_t here = members_on(options_.here);
        MemberBits asked = bits(here);
        agreement_.set_local(asked, bits(here));
        break;
      }
      case 1:
        agreement_.set_fate(from, static_cast<NodeFate>(bytes_.below(4)));
        break;
      case 2:
        now_ += std::chrono::milliseconds(bytes_.below(256) * 2);
        agreement_.tick(now_);
        break;
      case 3: {
        const auto raw = bytes_.some(bytes_.below(80));
        hear(from, {reinterpret_cast<const std::byte*>(raw.data()), raw.size()});
        break;
      }
      default: {
        std::vector<std::byte> message = bytes_of_agreement({7, drawn(from)});
        for (std::uint64_t changes = bytes_.below(3); changes > 0; --changes)
          message[bytes_.below(message.size())] = std::byte(bytes_.take<std::uint8_t>());
        if (bytes_.below(8) == 1) message.resize(bytes_.below(message.size() + 8));
        hear(from, message);
      }
    }
  }
  AgreementMessage drawn(std::uint32_t from) {
    AgreementMessage message;
    message.kind = static_cast<Kind>(1 + bytes_.below(9));
    message.round = round_ + bytes_.below(3);
    message.ballot = {static_cast<std::uint32_t>(bytes_.below(5)), from};
    message.accepted = {static_cast<std::uint32_t>(bytes_.below(5)), from};
    message.wants_answer = bytes_.flag();
    message.votes = bytes_.flag();
    if (message.kind == Kind::kSaid) {
      message.asked = bits(members_on(from));
      message.waited = bits(members_on(from));
    } else {
      message.value = bits(options_.place_of.size());
    }
    return message;
  }
  // A message that can be read has the same content when it is written again.
  void hear(std::uint32_t from, std::span<const std::byte> message) {
    const auto word = read_agreement(message);
    if (!word) return;
    const auto written = bytes_of_agreement(*word);
    MUSTER_PROMISE(written.size() == message.size());
    const auto again = read_agreement(written);
    MUSTER_PROMISE(again && bytes_of_agreement(*again) == written);
    agreement_.hear(from, word->message);
  }

  // The agreement sends to other nodes alone, in messages that fit, and decides each round once.
  void look() {
    for (const auto& [to, message] : agreement_.take_outgoing()) {
      MUSTER_PROMISE(to < options_.nodes && to != options_.here);
      const auto written = bytes_of_agreement({7, message});
      MUSTER_PROMISE(written.size() <= transport::JobLinks::kMessageMax);
      // Peers may reject a message near the last round or ballot.
      const bool counts = message.round < kRoundFar && message.ballot.count < kBallotFar;
      MUSTER_PROMISE(!counts || read_agreement(written).has_value());
    }
    while (const auto decision = agreement_.take_decision()) {
      MUSTER_PROMISE(decision->survivors.size() == options_.place_of.size());
      MUSTER_PROMISE(!decided_ || decision->round > *decided_);
      decided_ = decision->round;
      round_ = decision->round;
    }
  }

  fuzz::Bytes& bytes_;
  const SurvivorAgreement::Options options_;
  SurvivorAgreement agreement_;
  std::uint64_t round_;
  std::optional<std::uint64_t> decided_;
  Instant now_{0};
};

}  // namespace
}  // namespace muster::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::engine::Part(bytes).run();
  return 0;
}
