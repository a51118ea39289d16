// DirectMemory: the shared memory of the direct path that this process maps. It has its own direct segment,
// the group page, and, once needed, the segments and arenas of its peers.
#pragma once

#include "api/base/result.hpp"
#include "api/client/direct/epoch_view.hpp"
#include "api/client/direct/flight.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace muster::client {

// Owns    all mappings; peers' are read-only.
// Thread  the session's.
// Bound   one direct segment per peer, one mapping per arena segment of a peer that was read.
// Fails   open: PROTOCOL for memory that is too small, VERSION for a page of another layout. segment_of:
//         PROTOCOL for a segment that is too small, and the registrar's errors. arena: nullptr.
class DirectMemory {
 public:
  // Where mappings of peers' memory come from: the engine, asked over the session's socket.
  //
  // Owns    nothing. Thread  the session's. Bound  one question a call. Fails  as the engine says.
  class Registrar {
   public:
    virtual ~Registrar() = default;
    virtual Result<shm::Mapping> direct_segment(std::int32_t rank) = 0;
    virtual Result<shm::Mapping> arena_segment(std::int32_t rank, std::uint32_t segment) = 0;
    // Memory of the own arena of at least that size. It is kept for later calls.
    struct Scratch {
      std::byte* data = nullptr;
      shm::PayloadLocation location;  // Kind::kArena
    };
    virtual Result<Scratch> scratch(std::uint64_t bytes) = 0;
  };

  static Result<DirectMemory> open(shm::Mapping own, shm::Mapping groups, Registrar& registrar);

  std::byte* own() const { return own_.writable(); }
  std::size_t own_bytes() const { return own_.size(); }
  const std::byte* groups() const { return groups_.data(); }
  std::uint32_t group_count() const { return group_count_; }
  // RankLine::life of the rank; nullptr: the page has no such rank.
  const std::uint64_t* life_of(std::int32_t rank) const {
    const shm::RankLine* line = rank_line(rank);
    return line != nullptr ? &line->life : nullptr;
  }

  struct View {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  Result<View> segment_of(std::int32_t rank);
  // Bytes [offset, offset + bytes) of a segment of the rank's arena. nullptr: they could not be mapped, as
  // take_trouble() says; without a trouble, the peer that announced them has broken the protocol. The result
  // is valid until the next call for that rank, which unmaps all if segments of the rank are gone.
  const std::byte* arena(std::int32_t rank, std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes);
  // nullopt: see take_trouble().
  std::optional<Registrar::Scratch> scratch(std::uint64_t bytes);
  // The latest error of the registrar in arena() or scratch(). The call clears it.
  Status take_trouble() { return std::exchange(trouble_, Status()); }
  FlightRing& flight() { return flight_; }

 private:
  DirectMemory(shm::Mapping own, shm::Mapping groups, std::uint32_t group_count,
               std::vector<std::int32_t> ranks, Registrar& registrar)
      : own_(std::move(own)),
        groups_(std::move(groups)),
        group_count_(group_count),
        ranks_(std::move(ranks)),
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
  std::vector<std::int32_t> ranks_;  // of this node, by line of the group page, rising
  Registrar* registrar_;
  FlightRing flight_;
  Status trouble_;
  std::unordered_map<std::int32_t, shm::Mapping> segments_;
  std::unordered_map<std::int32_t, Arena> arenas_;  // by rank
};

class Channel;
class WaitPolicy;
enum class Waited : std::uint8_t;

// The two stages of the own segment, used in turn.
//
// Owns    the latest use of each stage, whose readers it awaits. Thread  the session's.
// Bound   kStages of kStageBytes. A wait for readers ends at the policy's deadline.
// Fails   never: a peer that is still reading at the deadline finds the stage changed.
class Stages {
 public:
  // The own segment, and the flight recorder, where the rank publishes that it waits for readers.
  Stages(std::byte* segment, FlightRing& flight);

  struct Stage {
    std::byte* data = nullptr;
    shm::PayloadLocation location;
  };
  // A stage to be filled for the next operation of `channel`. Waits, at most until the deadline, until all
  // have read its last content. No data: the wait was interrupted, and the stage is not taken.
  Stage take(Channel& channel, const WaitPolicy& policy);
  // Forgets a stage that was taken for an operation of `channel` that did not begin: no peer reads that
  // stage.
  void forget_unbegun(const Channel& channel);
  // Waits, at most until the deadline, until all have read the data that `channel` has staged. Then forgets
  // these uses, because the channel's regions may soon belong to another group.
  void drain(Channel& channel, const WaitPolicy& policy);

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
