// JobByHand: a real engine in this process, whose turns a test decides on, with real client sessions.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <muster/muster.h>

namespace muster::engine {
class Engine;
}

namespace muster::test {

// The histories' access to the engine, here and in job_by_hand.cpp alone.
//
// Owns    the engine, and the conductor's end of each rank's socket.
// Thread  one. No member may be in the middle of its turn.
// Bound   the ranks of its mesh.
// Fails   the constructor and attach() end the program.
class JobByHand {
 public:
  JobByHand(std::uint32_t world, const std::string& mesh, Nanos deadline, const Clock& clock);
  ~JobByHand();

  // ---- a rank ----------------------------------------------------------------------------------
  // A session of a new process of the rank. Its owner ends it with muster_close or forget().
  muster_session* attach(std::uint32_t rank, std::int32_t pid);
  bool attached(std::uint32_t rank) const { return seats_[rank].socket.valid(); }
  // The process is gone: its memory is unmapped, and no goodbye is sent.
  static void forget(muster_session* session);
  // The error text with which the engine stopped that lane of the rank; empty: the lane runs.
  std::string stopped_by(std::uint32_t rank, muster_lane lane) const;
  // The conductor sees that the process is gone.
  void detach(std::uint32_t rank, const std::string& text);

  // ---- the engine ------------------------------------------------------------------------------
  // One part of a step, or one turn of duty. Returns the amount of work done.
  std::size_t take_turn();
  // Answers the rank's request, if there is one. kGoodbye: the rank has sent its goodbye, and is gone.
  enum class Served : std::uint8_t { kNothing, kAnswer, kGoodbye };
  Served serve(std::uint32_t rank);
  // Sessions of gone clients whose starts have not ended.
  std::size_t unreclaimed();

 private:
  struct Seat {
    shm::Descriptor socket;
    void* session = nullptr;
    bool goodbye = false;
  };
  const Clock& clock_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<Seat> seats_;
  std::vector<std::byte> buffer_;
};

}  // namespace muster::test
