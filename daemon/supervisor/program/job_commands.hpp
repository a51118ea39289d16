// JobCommands: the commands about one job: make it, end it, issue tokens, and whatever its engine answers.
// The table of commands is in daemon/control/README.md.
#pragma once

#include "daemon/supervisor/jobs/retries.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/questions/gathered_texts.hpp"
#include "daemon/supervisor/questions/peer_questions.hpp"
#include "daemon/supervisor/ranks/evictions.hpp"
#include "daemon/supervisor/spanning/spanning_jobs.hpp"

#include <functional>
#include <string>

namespace muster::supervisor {

// Owns    nothing: commands change the table and the running jobs.
// Thread  the supervisor's loop.
// Bound   as Connections and RunningJobs, for commands that wait.
// Fails   never: each command is answered once, also with its failure. A field of a wrong type throws
//         Json::exception.
class JobCommands {
 public:
  using Caller = Connections::Caller;

  JobCommands(JobTable& table, RunningJobs& jobs, SpanningJobs& spanning, Evictions& evictions,
              PeerQuestions& questions, GatheredTexts& texts, Retries& retries,
              const Connections& connections, const Options& options, std::function<void()> save);

  // False: `command` is not about one job.
  bool run(const std::string& command, const Caller& caller, const control::Json& body);

 private:
  // `attempts`: how often there was no place for the job.
  void create(const Caller& caller, const control::Json& body, int attempts);
  bool create_later(const Caller& caller, const std::string& name, int attempts,
                    std::function<void(int attempts)> again);
  void create_on_nodes(const Caller& caller, const control::Json& body);
  void answer_created(const Caller& caller, const std::string& name);
  void destroy(const Caller& caller, const control::Json& body);
  void end_of(const Caller& caller, const control::Json& body);
  void token(const Caller& caller, const control::Json& body);
  void absent(const Caller& caller, const control::Json& body);
  void hang(const Caller& caller, const control::Json& body);
  void reports(const Caller& caller, const control::Json& body);
  void counters(const Caller& caller, const control::Json& body);
  void forward(const Caller& caller, const control::Json& body, const control::Json& question);
  Result<const Job*> job_for(const Caller& caller, const control::Json& body) const;

  JobTable& table_;
  RunningJobs& jobs_;
  SpanningJobs& spanning_;
  Evictions& evictions_;
  PeerQuestions& questions_;
  GatheredTexts& texts_;
  Retries& retries_;
  const Connections& connections_;
  const Options& options_;
  std::function<void()> save_;
};

}  // namespace muster::supervisor
