// JobJoiner: brings a run into its job. It joins the job of that name, or waits for it, or creates it.
#pragma once

#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/run/run_plan.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace muster::cli {

// Owns    what it knows of the job.
// Thread  the loop's. It stays until the loop has stopped.
// Bound   one job, and one question at a time; it waits no longer than the link's timeout for a job.
// Fails   with on_trouble, once: the job is not as the run was told, or the daemon refuses.
class JobJoiner {
 public:
  // The job that a run is in.
  struct Job {
    std::string name;
    std::int64_t world = 0;
    std::string mesh;                 // canonical
    std::string node;                 // of the daemon, if it was asked
    std::vector<std::uint32_t> here;  // the ranks that the run starts, rising
    std::vector<std::string> tokens;  // one for each of them
    bool stays = false;               // after the run
  };
  struct Events {
    std::function<void(const Job&)> on_joined;
    std::function<void(const Trouble&)> on_trouble;
  };

  JobJoiner(control::Loop& loop, DaemonLink& link, const RunPlan& plan, Events events);

  void seek();
  // The run ends: no event any more.
  void cancel() { over_ = true; }

 private:
  void find();
  void await(const std::string& why);
  void ask_later();
  void join(const Json& job);
  void place(bool spans);
  void expect_ranks(bool tokens);
  void fetch_token(std::size_t index);
  void create();
  void on_created(const OrTrouble<DaemonAnswer>& answer);
  void step(const Json& command, std::function<void(const Json&)> next);
  void take(const OrTrouble<DaemonAnswer>& answer, const std::function<void(const Json&)>& next,
            int not_found);
  void fail(const Trouble& trouble);

  control::Loop& loop_;
  DaemonLink& link_;
  const RunPlan& plan_;
  Events events_;
  Job job_;
  const SteadyClock clock_;
  const Instant give_up_at_;  // for a job's end
  bool over_ = false;
};

}  // namespace muster::cli
