// MusterRank: one rank of Muster's side, opened through the environment that `muster run` gives it.
#pragma once

#include "tests/bench/cells.hpp"

#include <optional>
#include <string>
#include <vector>

#include <muster/muster.h>

namespace muster::bench {

// Ends the process with the library's words, unless all is well.
void must(muster_status_t status, const char* what);

// Measures all of `cells`. Their path is how a plan is brought to its end: "direct", run; "engine", start and
// wait. Another way, such as one result that all ranks of a node share, would be another path.
int run_muster_rank(const Cells& cells);

// A buffer of the session that only grows.
struct Memory {
  muster_buffer buffer = 0;
  void* address = nullptr;
  std::size_t bytes = 0;
};

// Owns    the session, the plans of one operation and their two buffers, and the plans by which ranks meet
//         and agree on a number.
// Thread  one.
// Bound   as Contender.
// Fails   as Contender.
class MusterRank final : public Contender {
 public:
  explicit MusterRank(const std::string& path);
  ~MusterRank() override;

  const char* name() const override { return "muster"; }
  std::string version() const override;
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void barrier() override { finish(meet_, MUSTER_LANE_SMALL); }
  double maximum(double mine) override;
  Prepared prepare(const Shape& shape) override;
  std::optional<Prepared> prepare_shared(const Shape& shape) override;
  std::optional<Overlap> prepare_overlap(std::size_t bytes) override;
  bool make_group() override;
  void forget_group() override;

  muster_session* session() const { return session_; }
  // The smallest kernel there is: its time is the way to the engine and back.
  muster_plan prepare_kernel();
  muster_point start(muster_plan plan, muster_lane lane);
  void wait(muster_point point) { must(muster_point_wait(session_, point, -1), "muster_point_wait"); }

 private:
  muster_collective collective(muster_op op, muster_dtype dtype, muster_redop redop) const;
  muster_collective collective_of(const Shape& shape) const;
  muster_plan plan_of(const muster_collective& what, const char* name);
  Prepared prepared_of(const Shape& shape);
  Prepared prepare_ping_pong(const Shape& shape);
  Prepared prepare_exchange(const Shape& shape);
  void finish(muster_plan plan, muster_lane lane);
  void grow(Memory& memory, std::size_t bytes);
  void forget_plans();

  bool direct_;
  muster_session* session_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  muster_group group_ = MUSTER_GROUP_SELF;
  muster_group made_ = MUSTER_GROUP_SELF;
  Memory number_;
  muster_plan agree_ = 0;
  muster_plan meet_ = 0;
  std::vector<muster_plan> plans_;
  Memory source_;
  Memory target_;
  Memory work_;
  Memory shared_;
};

}  // namespace muster::bench
