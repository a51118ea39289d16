// DirectMemory: what this process sees of its node's shared memory on the direct path: its own direct
// segment, the group page, and, once needed, the segments and arenas of its peers.
#pragma once

#include "api/base/result.hpp"
#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/flight.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/segment.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace muster::client {

// Where mappings of peers' memory come from: the engine, asked over the session's socket.
//
// Owns    nothing. Thread  the session's. Bound  one question a call. Fails  as the engine says.
class Registrar {
 public:
  virtual ~Registrar() = default;
  virtual Result<shm::Mapping> direct_segment(std::int32_t rank) = 0;
  virtual Result<shm::Mapping> arena_segment(std::int32_t rank, std::uint32_t segment) = 0;
  // Memory of the own arena of at least that size, kept for the next time.
  struct Scratch {
    std::byte* data = nullptr;
    shm::PayloadLocation location;  // Kind::kArena
  };
  virtual Result<Scratch> scratch(std::uint64_t bytes) = 0;
};

// Owns    all mappings; peers' are read-only.
// Thread  the session's.
// Bound   one direct segment per peer, one mapping per arena segment of a peer that was read.
// Fails   open, segment_of: PROTOCOL for memory that is not what it should be, and what the registrar says.
// arena: nullptr.
class DirectMemory {
 public:
  static Result<DirectMemory> open(shm::Mapping own, shm::Mapping groups, Registrar& registrar);

  std::byte* own() const { return own_.writable(); }
  std::size_t own_bytes() const { return own_.size(); }
  const std::byte* groups() const { return groups_.data(); }
  std::uint32_t group_count() const { return group_count_; }
  // The word that says whether the rank lives; nullptr: the page has no such rank.
  const std::uint64_t* life_of(std::int32_t rank) const {
    const shm::RankLine* line = rank_line(rank);
    return line != nullptr ? &line->life : nullptr;
  }

  struct View {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  Result<View> segment_of(std::int32_t rank);
  // Bytes [offset, offset + bytes) of a segment of the rank's arena, or nullptr if there are no such bytes: a
  // peer that says so has broken the protocol, unless there is trouble(). Once segments of the rank are gone,
  // its mappings are made anew: what it returned is good until the next call for that rank.
  const std::byte* arena(std::int32_t rank, std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes);
  // Nothing: see trouble().
  std::optional<Registrar::Scratch> scratch(std::uint64_t bytes);
  // Why memory was not to be had, once.
  Status take_trouble() { return std::exchange(trouble_, Status()); }
  FlightRing& flight() { return flight_; }

 private:
  DirectMemory(shm::Mapping own, shm::Mapping groups, std::uint32_t group_count, std::uint32_t rank_count,
               Registrar& registrar)
      : own_(std::move(own)),
        groups_(std::move(groups)),
        group_count_(group_count),
        rank_count_(rank_count),
        registrar_(&registrar),
        flight_(own_.writable(), &reinterpret_cast<const shm::GroupPageHeader*>(groups_.data())->recording) {}

  const shm::RankLine* rank_line(std::int32_t rank) const;

  struct Arena {
    std::uint64_t retired = 0;  // RankLine::retired when it was mapped
    std::unordered_map<std::uint32_t, shm::Mapping> segments;
  };
  shm::Mapping own_;
  shm::Mapping groups_;
  std::uint32_t group_count_ = 0;
  std::uint32_t rank_count_ = 0;
  Registrar* registrar_;
  FlightRing flight_;
  Status trouble_;
  std::unordered_map<std::int32_t, shm::Mapping> segments_;
  std::unordered_map<std::int32_t, Arena> arenas_;  // by rank
};

// The two stages of the own segment, taken in turn.
class Channel;
class WaitPolicy;
enum class Waited : std::uint8_t;

// Owns    who may still read each stage. Thread  the session's.
// Bound   kStages of kStageBytes.
// Fails   never: a peer that does not get done with a stage finds it changed.
class Stages {
 public:
  // The own segment and its records, which say for whom the rank waits.
  Stages(std::byte* segment, FlightRing& flight);

  struct Stage {
    std::byte* data = nullptr;
    shm::PayloadLocation location;
  };
  // A stage to be filled for the next operation of `channel`. Waits until all who were to read its last
  // content are done. No data: the wait was interrupted, and they may read on.
  Stage take(Channel& channel, const WaitPolicy& policy);
  // The operation of `channel` for which a stage was taken did not begin: nobody reads that stage.
  void forget_unbegun(const Channel& channel);
  // Waits until all are done with what `channel` has staged, and forgets that it has: its regions may be
  // another group's soon. Whoever still reads then finds it changed.
  void settle(Channel& channel, const WaitPolicy& policy);

 private:
  struct Use;
  Waited await_readers(const Use& use, const WaitPolicy& policy);
  struct Use {
    Channel* channel = nullptr;
    At at;
    std::uint64_t record = 0;
  };
  std::byte* segment_;
  FlightRing& flight_;
  Use uses_[shm::kStages];
  std::uint32_t next_ = 0;
};

}  // namespace muster::client
