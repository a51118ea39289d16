#include "daemon/supervisor/questions/peer_questions.hpp"

#include "daemon/control/link/frame.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr std::size_t kErrorBytesMax = 512;  // of a peer's reason

// They change nothing, and have no descriptor in their answer.
constexpr std::array<std::string_view, 2> kAllowed{"snapshot", "report"};

std::optional<std::uint64_t> number_field(const Json& message, const char* name) {
  const auto field = message.find(name);
  if (field == message.end() || !field->is_number_unsigned()) return std::nullopt;
  return field->get<std::uint64_t>();
}

bool may_be_asked(const std::string& command) {
  return NodeTexts::is_kind(command) ||
         std::find(kAllowed.begin(), kAllowed.end(), command) != kAllowed.end();
}

Json body_of(const Result<Json>& result) {
  return result ? control::success(*result) : control::failed(result.error());
}

// A text of this node, as one part.
Result<Json> whole(const Result<shm::Descriptor>& text) {
  if (!text) return fail(text.error());
  MUSTER_ASSIGN_OR_RETURN(const std::size_t bytes, control::text_bytes(*text, KeptTexts::kTextBytesMax));
  MUSTER_ASSIGN_OR_RETURN(auto all, control::read_text(*text, 0, bytes));
  return Json{{"report", 0u}, {"bytes", bytes}, {"from", 0u}, {"text", Json::binary(std::move(all))}};
}

Result<Json> result_from(const std::string& peer, const Json& message) {
  const Status why = control::status_of(message);
  if (!why.ok()) return fail(why.code(), "node {}: {}", peer, why.message().substr(0, kErrorBytesMax));
  const auto result = message.find("result");
  if (result == message.end() || !result->is_object())
    return fail(Code::kProtocol, "node {}: its answer has no result", peer);
  return *result;
}

}  // namespace

PeerQuestions::PeerQuestions(control::Loop& loop, const Clock& clock, const JobTable& table, Ways ways)
    : loop_(loop), clock_(clock), table_(table), ways_(std::move(ways)), kept_(loop) {}

PeerQuestions::~PeerQuestions() {
  for (const auto& [number, question] : questions_) loop_.unwatch(question.timer);
}

// ---- questions of this node --------------------------------------------------------------------

void PeerQuestions::ask_nodes(const Job& job, const std::string& command, Nanos time,
                              AllAnswered all_answered) {
  struct AllNodes {
    std::vector<NodeAnswer> answers;
    std::size_t open = 0;
    AllAnswered all_answered;

    void close() {
      if (--open == 0) all_answered(std::move(answers));
    }
  };
  const World& world = job.spec.world;
  const auto all = std::make_shared<AllNodes>();
  all->all_answered = std::move(all_answered);
  all->open = world.nodes().size() + 1;
  for (const std::string& node : world.nodes())
    all->answers.push_back({node, fail(Code::kPending, "no answer yet"), Instant(0)});
  for (std::uint32_t n = 0; n < world.nodes().size(); ++n)
    ask_node(job, NodeIndex(n), {{"command", command}}, time, [this, all, n](Result<Json> result) {
      all->answers[n].result = std::move(result);
      all->answers[n].heard = clock_.now();
      all->close();
    });
  all->close();
}

void PeerQuestions::ask_node(const Job& job, NodeIndex node, const Json& question, Nanos time,
                             Answered answered) {
  const std::string& name = job.spec.world.name_of(node);
  const bool own = node == job.spec.world.here();
  const auto open = std::count_if(questions_.begin(), questions_.end(),
                                  [&](const auto& entry) { return entry.second.node == name; });
  if (open >= static_cast<std::ptrdiff_t>(kOpenMax))
    return answered(fail(Code::kBusy, "{} questions wait for node {}, the limit; try again", kOpenMax, name));
  const std::uint64_t number = next_++;
  const std::string who = (own ? "the engine of node " : "node ") + name;
  const auto late = [this, number, who, seconds = std::chrono::duration<double>(time).count()] {
    conclude(number, fail(Code::kTimeout, "{} did not answer within {:.1f} s", who, seconds));
  };
  questions_[number] = {name, own, std::move(answered), loop_.after(time, late)};
  if (own) return ask_here(job.spec.id(), question.at("command"), number);
  Json message{{"question", number}, {"job", job.spec.id()}, {"epoch", job.spec.epoch}};
  message.update(question);
  if (!ways_.send(name, message)) conclude(number, fail(Code::kDaemonLost, "{}", ways_.why_not(name)));
}

void PeerQuestions::ask_here(const std::string& job, const std::string& command, std::uint64_t number) {
  if (NodeTexts::is_kind(command))
    return ways_.text_of(
        job, command, [this, number](const Result<shm::Descriptor>& text) { conclude(number, whole(text)); });
  ways_.ask_engine(job, {{"command", command}}, [this, number](Result<Packet> answer) {
    conclude(number, answer ? control::result_of(*answer) : fail(answer.error()));
  });
}

// Once for each question: later messages are no answers to it.
void PeerQuestions::conclude(std::uint64_t number, Result<Json> result) {
  auto node = questions_.extract(number);
  if (node.empty()) return;
  loop_.unwatch(node.mapped().timer);
  node.mapped().answered(std::move(result));
}

// ---- messages of peers -------------------------------------------------------------------------

bool PeerQuestions::is_one(const Json& message) {
  return message.contains("question") || message.contains("answer");
}

void PeerQuestions::heard(const std::string& peer, const Json& message) {
  if (const auto number = number_field(message, "answer")) return hear_answer(peer, *number, message);
  if (const auto number = number_field(message, "question")) return hear_question(peer, *number, message);
}

void PeerQuestions::hear_answer(const std::string& peer, std::uint64_t number, const Json& message) {
  const auto it = questions_.find(number);
  if (it == questions_.end() || it->second.own || it->second.node != peer) return;
  conclude(number, result_from(peer, message));
}

Status PeerQuestions::may_ask(const std::string& peer, const Job* job, const std::string& command) const {
  if (!may_be_asked(command))
    return failure(Code::kBadArgument, "nodes do not ask each other '{}'", command.substr(0, kErrorBytesMax));
  const auto is_peer = [&](const std::string& node) { return node == peer; };
  if (job == nullptr || std::none_of(job->spec.world.nodes().begin(), job->spec.world.nodes().end(), is_peer))
    return failure(Code::kNotFound, "it has no such job with ranks on node {}, or a later one", peer);
  std::size_t open = 0;
  for (auto it = asked_.lower_bound({job->spec.epoch, ""});
       it != asked_.end() && it->first.first == job->spec.epoch; ++it) {
    const auto& askers = it->second;
    open += static_cast<std::size_t>(
        std::count_if(askers.begin(), askers.end(), [&](const Asker& asker) { return asker.peer == peer; }));
  }
  if (open >= kOpenMax)
    return failure(Code::kBusy, "{} questions of node {} wait for the job's engine, the limit", open, peer);
  return {};
}

void PeerQuestions::hear_question(const std::string& peer, std::uint64_t number, const Json& message) {
  const std::string name = said_text(message, "job");
  const std::string command = said_text(message, "command");
  const std::uint64_t epoch = said_number(message, "epoch");
  const Asker asker{peer, number};
  if (const Status may = may_ask(peer, table_.find(name, epoch), command); !may.ok())
    return answer(asker, control::failed(may));
  if (message.contains("report")) {  // a further part of a text
    const std::uint64_t report = said_number(message, "report");
    return answer(asker, body_of(kept_.part(peer, report, said_number(message, "from"))));
  }
  const Subject subject{epoch, command};
  const bool is_asked = asked_.contains(subject);
  asked_[subject].push_back(asker);
  if (is_asked) return;
  if (NodeTexts::is_kind(command))
    return ways_.text_of(name, command, [this, subject](Result<shm::Descriptor> said) {
      const auto text = said ? std::make_shared<const shm::Descriptor>(*std::move(said)) : nullptr;
      answer_all(subject, [&](const std::string& asks) -> Result<Json> {
        return text ? kept_.first(asks, text) : fail(said.error());
      });
    });
  ways_.ask_engine(name, {{"command", command}}, [this, subject](const Result<Packet>& said) {
    const Result<Json> result = said ? control::result_of(*said) : fail(said.error());
    answer_all(subject, [&](const std::string&) { return result; });
  });
}

void PeerQuestions::answer_all(const Subject& subject, const ResultFor& result_for) {
  const auto node = asked_.extract(subject);
  if (node.empty()) return;
  for (const Asker& asker : node.mapped()) answer(asker, body_of(result_for(asker.peer)));
}

void PeerQuestions::answer(const Asker& asker, Json body) const {
  body["answer"] = asker.number;
  if (!control::fits_frame(body)) {
    body = control::failed(failure(Code::kNoResource,
                                   "what its engine says is more than a message between nodes may have: {} "
                                   "bytes and {} items",
                                   control::kFrameBytesMax, control::kOfFrames.items_max));
    body["answer"] = asker.number;
  }
  ways_.send(asker.peer, body);
}

void PeerQuestions::on_down(const std::string& peer, const Status& why) {
  kept_.forget(peer);
  for (auto& [subject, askers] : asked_)
    std::erase_if(askers, [&](const Asker& asker) { return asker.peer == peer; });
  std::vector<std::uint64_t> lost;
  for (const auto& [number, question] : questions_)
    if (!question.own && question.node == peer) lost.push_back(number);
  for (const std::uint64_t number : lost)
    conclude(number, fail(Code::kDaemonLost, "node {} is away: {}", peer, why.message()));
}

}  // namespace muster::supervisor
