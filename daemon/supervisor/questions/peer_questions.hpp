// PeerQuestions: the questions between supervisors about a job that their nodes share, and the answers. It
// also asks all nodes of a job at once, this one too.
//
// A question is {"question": N, "job", "epoch", "command"}, and {"answer": N, …} has the rest of an answer to
// a command: "ok" with "result", or "status" and "error". Only commands that change nothing may be asked, and
// only about a job that has ranks on both nodes. An answer that does not fit a frame is an error that says
// so. Any number of equal questions of peers is one question to the engine.
//
// A command of node_texts.hpp is answered with a text in parts (kept_texts.hpp). This node's own text comes
// as one part, of any length up to KeptTexts::kTextBytesMax.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/engine_process.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"
#include "daemon/supervisor/questions/kept_texts.hpp"
#include "daemon/supervisor/questions/node_texts.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Owns    the open questions of this node, those of peers until the engine has answered, and texts for them.
// Thread  the supervisor's loop.
// Bound   kOpenMax questions of this node to each node, and of each peer about each job; kTime for an answer.
// Fails   each question: the other node's error; kDaemonLost (it is away), kTimeout, kBusy, kProtocol.
class PeerQuestions {
 public:
  static constexpr std::size_t kOpenMax = 32;
  static constexpr Nanos kTime = std::chrono::seconds(2);

  struct Ways {
    std::function<bool(const std::string& peer, const control::Json&)> send;  // false: the peer is not up
    std::function<std::string(const std::string& peer)> why_not;              // it is not up
    std::function<void(const std::string& job, const control::Json& command, EngineProcess::Answered)>
        ask_engine;
    std::function<void(const std::string& job, const std::string& kind, NodeTexts::Said)> text_of;
  };
  PeerQuestions(control::Loop& loop, const Clock& clock, const JobTable& table, Ways ways);
  ~PeerQuestions();
  PeerQuestions(const PeerQuestions&) = delete;
  PeerQuestions& operator=(const PeerQuestions&) = delete;

  struct NodeAnswer {
    std::string node;
    Result<control::Json> result;
    Instant heard{0};
  };
  using Answered = std::function<void(Result<control::Json>)>;
  using AllAnswered = std::function<void(std::vector<NodeAnswer>)>;
  // Asks the engines of all of the job's nodes. `all_answered` gets an answer of each, in the order of the
  // world's nodes, once all are there, perhaps at once. A node that has not answered within `time` gives
  // kTimeout.
  void ask_nodes(const Job& job, const std::string& command, Nanos time, AllAnswered all_answered);

  // Asks one of the job's nodes, perhaps this one. `question`: "command", and what belongs to it.
  void ask_node(const Job& job, NodeIndex node, const control::Json& question, Nanos time, Answered answered);

  // This node's own text, as it is.
  void ask_own_text(const std::string& job, const std::string& kind, const NodeTexts::Said& said) const {
    ways_.text_of(job, kind, said);
  }

  // Whether a peer's message is for this object.
  static bool is_one(const control::Json& message);
  void heard(const std::string& peer, const control::Json& message);
  void on_down(const std::string& peer, const Status& why);

 private:
  struct Question {
    std::string node;
    bool own = false;  // to this node's engine
    Answered answered;
    control::Loop::Watch timer = 0;
  };
  struct Asker {
    std::string peer;
    std::uint64_t number = 0;
  };
  // The subject of peers' questions to one job's engine.
  using Subject = std::pair<std::uint64_t, std::string>;  // the job's epoch, the command

  void ask_here(const std::string& job, const std::string& command, std::uint64_t number);
  void conclude(std::uint64_t number, Result<control::Json> result);
  void hear_question(const std::string& peer, std::uint64_t number, const control::Json& message);
  void hear_answer(const std::string& peer, std::uint64_t number, const control::Json& message);
  Status may_ask(const std::string& peer, const Job* job, const std::string& command) const;
  // `result_for`: gives the result for the peer of that name.
  using ResultFor = std::function<Result<control::Json>(const std::string& peer)>;
  void answer_all(const Subject& subject, const ResultFor& result_for);
  void answer(const Asker& asker, control::Json body) const;

  control::Loop& loop_;
  const Clock& clock_;
  const JobTable& table_;
  const Ways ways_;
  std::map<std::uint64_t, Question> questions_;  // by number
  std::map<Subject, std::vector<Asker>> asked_;
  KeptTexts kept_;
  std::uint64_t next_ = 1;
};

}  // namespace muster::supervisor
