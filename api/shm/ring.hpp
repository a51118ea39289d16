// The command ring of a session: one client writes, one engine reads.
//
//   writer:  slot words, slot.sequence = index + 1 (release), tail (seq_cst), then: is the engine asleep?
//   reader:  tail (seq_cst), bound check, slot.sequence, slot words once each, slot.sequence again,
//            head (release)
//
// Cursors are private; the shared copies only report them to the other side. The sleep handshake is Dekker's:
// each side writes its own word and then reads the other's, so at least one sees the other. The operations
// themselves are sequentially consistent, because ThreadSanitizer does not see separate fences.
//
// Policy and Record are parameters, so that a memory-model checker can run this source on a small record.
// slot_words(Record) gives a record's words.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/result.hpp"
#include "api/shm/layout.hpp"
#include "api/shm/untrusted.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace muster::shm {

// A slot as 64-bit words; the first is its sequence. Small fields share a word with their neighbours, so each
// byte of a slot is read once.
template<class Record>
struct SlotWords {
  static_assert(sizeof(Record) % sizeof(std::uint64_t) == 0 && offsetof(Record, sequence) == 0);
  static constexpr std::size_t kCount = sizeof(Record) / sizeof(std::uint64_t);
  using Array = std::array<std::uint64_t, kCount>;
};

// The client's side.
//
// Owns    its cursor; not the memory.
// Thread  one, the client's.
// Bound   capacity slots; push and doorbell_due take no lock, no heap and no system call.
// Fails   push returns kBusy when full, and kProtocol for good once the engine's head is impossible.
template<class Policy = StdAtomics, class Record = Command>
class RingWriter {
 public:
  using Word64 = typename Policy::template Word<std::uint64_t>;
  using Word32 = typename Policy::template Word<std::uint32_t>;
  struct Words {
    Word64* tail;
    Word64* slots;  // capacity records
    const Word64* head;
    const Word32* engine_asleep;
  };

  // `capacity` is a power of two. `first` is the first cursor; only tests give another than 0.
  RingWriter(Words words, std::uint32_t capacity, std::uint64_t first = 0)
      : words_(words), capacity_(capacity), tail_(first), known_head_(first) {
    MUSTER_ASSERT(std::has_single_bit(capacity));
  }

  // Writes and publishes one record; its sequence field is set here.
  [[nodiscard]] Code push(const Record& record) {
    if (tail_ - known_head_ == capacity_)
      if (const Code code = refresh_head(); code != Code::kOk) return code;
    write(record);
    Published<std::uint64_t, Policy>(words_.tail).store_ordered(tail_);
    return Code::kOk;
  }

  // Writes several records and publishes them as one; writes none if they do not all fit.
  [[nodiscard]] Code push_all(std::span<const Record> records) {
    if (capacity_ - (tail_ - known_head_) < records.size()) {
      const Code code = refresh_head();
      if (code != Code::kOk && code != Code::kBusy) return code;
      if (capacity_ - (tail_ - known_head_) < records.size()) return Code::kBusy;
    }
    for (const Record& record : records) write(record);
    Published<std::uint64_t, Policy>(words_.tail).store_ordered(tail_);
    return Code::kOk;
  }

  // Call after the last push of a burst. True: the engine sleeps and this nap had no ring yet, so ring the
  // doorbell.
  [[nodiscard]] bool doorbell_due() {
    const std::uint32_t nap = Untrusted<std::uint32_t, Policy>(words_.engine_asleep).load_ordered();
    if (nap == 0 || nap == rung_nap_) return false;
    rung_nap_ = nap;
    return true;
  }

  std::uint64_t written() const { return tail_; }

 private:
  void write(const Record& record) {
    const typename SlotWords<Record>::Array values = slot_words(record);
    const std::uint64_t next = tail_ + 1;
    Word64* slot = words_.slots + (tail_ & (capacity_ - 1)) * SlotWords<Record>::kCount;
    store_all(slot, values, std::make_index_sequence<SlotWords<Record>::kCount - 1>());
    Published<std::uint64_t, Policy>(slot).store_release(next);
    tail_ = next;
  }

  // Stores all words but the sequence.
  template<std::size_t... I>
  static void store_all(Word64* slot, const typename SlotWords<Record>::Array& values,
                        std::index_sequence<I...>) {
    (Published<std::uint64_t, Policy>(slot + I + 1).store(values[I + 1]), ...);
  }

  Code refresh_head() {
    if (broken_) return Code::kProtocol;
    const std::uint64_t head = Untrusted<std::uint64_t, Policy>(words_.head).load_acquire();
    if (head - known_head_ > tail_ - known_head_) {  // head went back, or passed the tail
      broken_ = true;
      return Code::kProtocol;
    }
    known_head_ = head;
    return tail_ - known_head_ == capacity_ ? Code::kBusy : Code::kOk;
  }

  Words words_;
  std::uint64_t capacity_;
  std::uint64_t tail_;
  std::uint64_t known_head_;
  std::uint32_t rung_nap_ = 0;
  bool broken_ = false;
};

// The engine's side. Every byte that it reads may come from an attacker.
//
// Owns    its cursor and its count of naps; not the memory.
// Thread  one at a time, the engine's.
// Bound   a drain copies at most out.size() records; nothing here waits or uses the heap unless it fails.
// Fails   kProtocol, for good, once tail or a slot is impossible: close the session then.
template<class Policy = StdAtomics, class Record = Command>
class RingReader {
 public:
  using Word64 = typename Policy::template Word<std::uint64_t>;
  using Word32 = typename Policy::template Word<std::uint32_t>;
  struct Words {
    const Word64* tail;
    const Word64* slots;  // capacity records
    Word64* head;
    Word32* engine_asleep;
  };

  RingReader(Words words, std::uint32_t capacity, std::uint64_t first = 0)
      : words_(words), capacity_(capacity), cursor_(first) {
    MUSTER_ASSERT(std::has_single_bit(capacity));
  }

  // Copies the next records, at most out.size(), and gives their slots back. The copies are private: check
  // them, not the ring. Good records before a bad one are delivered; the next call then fails.
  Result<std::size_t> drain(std::span<Record> out) {
    if (broken_) return fail(Code::kProtocol, "the ring was found corrupt at command {}", cursor_);
    const std::uint64_t tail = Untrusted<std::uint64_t, Policy>(words_.tail).load_ordered();
    const std::uint64_t pending = tail - cursor_;
    if (pending > capacity_) {
      broken_ = true;
      return fail(Code::kProtocol, "ring tail {} is not within {} of the {} commands taken", tail, capacity_,
                  cursor_);
    }
    const std::size_t wanted = std::min<std::size_t>(static_cast<std::size_t>(pending), out.size());
    std::size_t taken = 0;
    while (taken < wanted && copy(&out[taken])) ++taken;
    if (taken > 0) Published<std::uint64_t, Policy>(words_.head).store_release(cursor_);
    if (broken_ && taken == 0)
      return fail(Code::kProtocol, "slot of command {} was not published, or was rewritten while it was read",
                  cursor_);
    return taken;
  }

  [[nodiscard]] bool has_work() const {
    return !broken_ && Untrusted<std::uint64_t, Policy>(words_.tail).load_ordered() != cursor_;
  }

  // Announces a nap. True: any later push rings the doorbell, so the engine may block on it. False: a record
  // has come meanwhile, and the nap is cancelled.
  [[nodiscard]] bool try_sleep() {
    if (++nap_ == 0) ++nap_;
    Published<std::uint32_t, Policy>(words_.engine_asleep).store_ordered(nap_);
    if (!has_work()) return true;
    awake();
    return false;
  }

  // Ends a nap. Call it before the first drain after waking, whatever the reason. A writer that still saw the
  // nap wrote its tail before this store, so that drain finds its record.
  void awake() { Published<std::uint32_t, Policy>(words_.engine_asleep).store_ordered(0); }

 private:
  bool copy(Record* out) {
    const Word64* slot = words_.slots + (cursor_ & (capacity_ - 1)) * SlotWords<Record>::kCount;
    const Untrusted<std::uint64_t, Policy> sequence(slot);
    typename SlotWords<Record>::Array values;
    values[0] = sequence.load_acquire();
    // Acquire, so that the second load of the sequence cannot move before these loads.
    for (std::size_t i = 1; i < values.size(); ++i)
      values[i] = Untrusted<std::uint64_t, Policy>(slot + i).load_acquire();
    if (values[0] != cursor_ + 1 || sequence.load() != values[0]) {
      broken_ = true;
      return false;
    }
    *out = std::bit_cast<Record>(values);
    ++cursor_;
    return true;
  }

  Words words_;
  std::uint64_t capacity_;
  std::uint64_t cursor_;
  std::uint32_t nap_ = 0;
  bool broken_ = false;
};

}  // namespace muster::shm
