// GatheredTexts: one text of each node of a job (node_texts.hpp), for a command line that shows all of them.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/supervisor/questions/peer_questions.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    nothing: each gathering lives as long as its questions are open.
// Thread  the supervisor's loop.
// Bound   kTime for a gathering; KeptTexts::kTextBytesMax for each node's text, and kBytesMax for all texts
//         that are held at once. Answers of peers are checked: each has the parts that were asked for, in
//         full.
// Fails   each node: as PeerQuestions; kProtocol; kNoResource. Each names the node.
class GatheredTexts {
 public:
  // The answer to a command line: {"nodes": [{"node", "ranks", "bytes"}]}, and all texts end to end in that
  // order. A node without a text has "why" and "status" in the place of "bytes".
  struct AnswerOfAll {
    control::Json result;
    std::string text;
  };
  static constexpr Nanos kTime = std::chrono::seconds(10);
  static constexpr std::size_t kBytesMax = std::size_t{128} << 20;

  struct NodeText {
    std::string node;
    Result<std::string> text;
  };
  using Gathered = std::function<void(const std::vector<NodeText>&)>;

  GatheredTexts(const Clock& clock, const JobTable& table, PeerQuestions& questions)
      : clock_(clock), table_(table), questions_(questions) {}

  // The text of a job that has all its ranks on this node, which nobody here reads.
  void ask_alone(const Job& job, const std::string& kind, const NodeTexts::Said& said) {
    questions_.ask_own_text(job.spec.id(), kind, said);
  }

  // `gathered` gets a text of each node of the job, in the order of the world's nodes, or why there is none,
  // once all are there or `time` is over; perhaps at once.
  void gather(const Job& job, const std::string& kind, Nanos time, Gathered gathered);

 private:
  struct Collection;
  void ask(const std::shared_ptr<Collection>& all, std::uint32_t node);
  void hear(const std::shared_ptr<Collection>& all, std::uint32_t node, const Result<control::Json>& said);
  Status take(Collection& all, std::uint32_t node, const control::Json& part);
  void conclude(const std::shared_ptr<Collection>& all, std::uint32_t node, Status why);

  const Clock& clock_;
  const JobTable& table_;
  PeerQuestions& questions_;
  std::size_t held_ = 0;  // bytes that open gatherings have received or expect
};

GatheredTexts::AnswerOfAll texts_of_nodes(const World& world,
                                          const std::vector<GatheredTexts::NodeText>& texts);
// The result of a job whose only node has a text of that length.
control::Json text_of_one_node(const World& world, std::size_t bytes);

}  // namespace muster::supervisor
