// A node whose supervisor is killed over and over: a service manager that keeps descriptors for it, engines
// that are the only witnesses of ranks, and clients that want to attach. All but the supervisor are models.
// Each model checks the messages that it gets.
#pragma once

#include "daemon/supervisor/base/kept_names.hpp"
#include "daemon/supervisor/program/supervisor.hpp"
#include "tests/fuzz/bytes.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// A service manager with FileDescriptorStoreMax=.
//
// Owns    a copy of each descriptor that it was given.
// Thread  one.
// Bound   -
// Fails   a line that no manager understands is a broken promise.
class Keeper {
 public:
  bool hear(const std::string& text, std::span<const int> descriptors);
  void keep(const std::string& name, shm::Descriptor descriptor);
  // The descriptors for a process that starts now: all that are kept, in the order of their arrival.
  std::vector<DescriptorStore::Inherited> hand_over() const;
  // The first under that name; -1.
  int find(const std::string& name) const;
  std::vector<std::string> names() const;
  void lose(std::size_t index);
  std::size_t size() const { return kept_.size(); }

 private:
  std::vector<std::pair<std::string, shm::Descriptor>> kept_;
};

struct FuzzClient {
  shm::Descriptor socket;
  std::string job;
  std::int32_t rank = 0;
  std::string token;
};

struct FuzzToken {
  std::string job, text;
  std::uint32_t rank = 0;
  bool used = false;
};

// An engine at the other end of its channel. The fuzz input alone decides when it sends.
//
// Owns    its end of the channel, and the descriptor that stands for its life.
// Thread  one.
// Bound   -
// Fails   -
struct FuzzEngine {
  struct Seat {
    bool attached = false;
    std::uint32_t attachments = 0;
  };
  control::JobSpec spec;
  shm::Descriptor channel;
  shm::Descriptor death;  // an eventfd: readable once it has ended, as a pidfd is
  std::vector<Seat> seats;
  bool honest = true;
  bool alive = true;

  void end();
};

// Owns    the node.
// Thread  one: the supervisor has none of its own here.
// Bound   kStepsMax steps, kStartsMax supervisors, kTurnsMax turns in a row.
// Fails   a broken promise.
class FuzzedTakeover {
 public:
  explicit FuzzedTakeover(fuzz::Bytes& bytes);
  ~FuzzedTakeover();
  void run();

 private:
  void found();  // the node as a first supervisor would have left it, or worse
  void found_job(State& state, std::uint32_t index);
  void found_state(const State& state);
  void keep_oddly(const std::string& name, int descriptor);
  void start();  // a supervisor, after the one before was killed
  void tear_a_write();
  std::vector<std::string> sound_names() const;
  void check_successor(const std::optional<State>& left, const State& state,
                       const std::vector<std::string>& names);
  void check_names(const State& state) const;
  std::optional<State> state_now() const;
  void step();
  void turns(std::uint64_t count);
  void settle();
  // Clients, owners and engines.
  void claim();
  void owner_speaks();
  void owner_hears();
  bool engine_hears(FuzzEngine& engine);
  void engine_lies(FuzzEngine& engine);
  control::Json answer_to(FuzzEngine& engine, const control::Packet& question, shm::Descriptor* with);
  control::Json let_in(FuzzEngine& engine, const control::Packet& question);
  void rank_leaves(FuzzEngine& engine);
  FuzzEngine* any_engine();

  fuzz::Bytes& bytes_;
  SteadyClock clock_;
  Keeper keeper_;
  std::vector<std::unique_ptr<FuzzEngine>> engines_;
  std::vector<FuzzClient> clients_;
  std::vector<FuzzToken> tokens_;
  std::vector<std::pair<std::uint64_t, shm::Descriptor>> owners_;  // by the number of their connection
  std::vector<std::pair<std::string, std::uint32_t>> asked_;       // tokens: by serial of the command
  std::set<std::uint64_t> to_end_;                                 // jobs that were told to end, by epoch
  std::optional<Result<shm::MemoryPage>> memory_;                  // of the jobs' user
  std::uint64_t words_ = 0;                                        // of chance
  std::uint32_t starts_ = 0;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace muster::supervisor
