// Both ends of a command ring on memory that lies: tail and head may say anything, slots are rewritten while
// they are read, each look at a word sees something else. The work of a turn is bounded, what is delivered
// has the number it should have, nothing but the reader's own two words is written, and a second ring beside
// it delivers all it was given.
#include "api/shm/ring.hpp"

#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/chameleon.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <vector>

namespace muster::shm {
namespace {

using fuzz::Bytes;
using fuzz::Chameleon;

constexpr std::uint32_t kCapacity = 8;
constexpr std::size_t kWords = SlotWords<Command>::kCount;
constexpr std::size_t kBatch = 5;
constexpr int kTurnsMax = 64;

struct Ring {
  explicit Ring(std::uint64_t first)
      : tail(first),
        head(first),
        writer({&tail, slots.data(), &head, &asleep}, kCapacity, first),
        reader({&tail, slots.data(), &head, &asleep}, kCapacity, first) {}
  std::uint64_t tail, head;
  std::uint64_t consumed = head;  // what the reader has given out, as the fuzzer counts it
  std::uint32_t asleep = 0;
  std::vector<std::uint64_t> slots = std::vector<std::uint64_t>(kCapacity * kWords);
  RingWriter<Chameleon> writer;
  RingReader<Chameleon> reader;
};

Command numbered(std::uint64_t plan) {
  Command command;
  command.kind = Command::Kind::kStart;
  command.plan = plan;
  command.deadline_ns = ~plan;
  return command;
}

// Turns of the engine on a ring whose words are the fuzzer's.
void turn(Ring& ring, Bytes& bytes) {
  const std::uint64_t before = ring.consumed;
  const std::vector<std::uint64_t> slots = ring.slots;
  std::array<Command, kBatch> out;
  Chameleon::loads = Chameleon::stores = 0;
  Chameleon::answers = &bytes;
  const auto taken = ring.reader.drain(out);
  Chameleon::answers = nullptr;
  MUSTER_PROMISE(Chameleon::loads <= 1 + kBatch * (kWords + 1) && Chameleon::stores <= 1);
  MUSTER_PROMISE(ring.slots == slots);
  if (!taken) {
    MUSTER_PROMISE(taken.error().code() == Code::kProtocol && !ring.reader.has_work());
    return;
  }
  MUSTER_PROMISE(*taken <= out.size());
  ring.consumed += *taken;
  if (*taken > 0) MUSTER_PROMISE(ring.head == ring.consumed);
  for (std::size_t i = 0; i < *taken; ++i) MUSTER_PROMISE(out[i].sequence == before + i + 1);
}

// An attacker's writes between two turns.
void meddle(Ring& ring, Bytes& bytes) {
  switch (bytes.below(6)) {
    case 0:
      static_cast<void>(ring.writer.push(numbered(ring.writer.written())));
      break;
    case 1:
      ring.tail = bytes.number();
      break;
    case 2:
      ring.tail += bytes.number();
      break;
    case 3:
      ring.slots[bytes.below(ring.slots.size())] = bytes.number();
      break;
    case 4:
      ring.slots[bytes.below(kCapacity) * kWords] = ring.consumed + bytes.below(4);
      break;
    default:
      if (ring.reader.try_sleep()) static_cast<void>(ring.writer.doorbell_due());
      ring.reader.awake();
  }
}

// A client whose engine lies about its head: it never writes over a command that may not have been read, as
// far as it was told, and never writes elsewhere.
void lie_to_client(Bytes& bytes) {
  Ring ring(bytes.number());
  std::uint64_t known = ring.tail;
  for (int i = 0; i < kTurnsMax && !bytes.empty(); ++i) {
    if (bytes.flag()) ring.head = bytes.flag() ? ring.head + bytes.below(kCapacity + 2) : bytes.number();
    if (ring.head - known <= ring.writer.written() - known) known = ring.head;
    const std::uint64_t before = ring.writer.written();
    Chameleon::loads = 0;
    const Code code = ring.writer.push(numbered(before));
    MUSTER_PROMISE(Chameleon::loads <= 1);
    MUSTER_PROMISE(code == Code::kOk || code == Code::kBusy || code == Code::kProtocol);
    MUSTER_PROMISE(ring.writer.written() == before + (code == Code::kOk ? 1 : 0));
    if (code == Code::kOk) MUSTER_PROMISE(ring.writer.written() - known <= kCapacity);
    MUSTER_PROMISE(ring.tail == ring.writer.written());
  }
}

// The neighbour of the ring under attack.
struct Bystander {
  explicit Bystander(std::uint64_t first) : ring(first), given(first), taken(first) {}
  void work(std::uint64_t commands) {
    for (std::uint64_t i = 0; i < commands; ++i) {
      const Code code = ring.writer.push(numbered(given));
      if (code == Code::kBusy) break;
      MUSTER_PROMISE(code == Code::kOk);
      ++given;
    }
    std::array<Command, kBatch> out;
    const auto drained = ring.reader.drain(out);
    MUSTER_PROMISE(drained);
    for (std::size_t i = 0; i < *drained; ++i, ++taken)
      MUSTER_PROMISE(out[i].plan == taken && out[i].deadline_ns == ~taken && out[i].sequence == taken + 1);
    MUSTER_PROMISE(ring.reader.has_work() == (given != taken));
  }
  Ring ring;
  std::uint64_t given, taken;
};

void attack(Bytes& bytes) {
  Ring ring(bytes.number());
  Bystander bystander(bytes.number());
  for (int i = 0; i < kTurnsMax && !bytes.empty(); ++i) {
    for (std::uint64_t n = bytes.below(4); n > 0; --n) meddle(ring, bytes);
    turn(ring, bytes);
    bystander.work(bytes.below(4));
  }
}

}  // namespace
}  // namespace muster::shm

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  if (bytes.flag())
    muster::shm::lie_to_client(bytes);
  else
    muster::shm::attack(bytes);
  return 0;
}
