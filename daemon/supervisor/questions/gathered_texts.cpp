#include "daemon/supervisor/questions/gathered_texts.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

std::uint64_t word_in(const Json& part, const char* name) {
  const auto field = part.find(name);
  const bool good = field != part.end() && field->is_number_unsigned();
  return good ? field->get<std::uint64_t>() : ~std::uint64_t{0};
}

Json ranks_on(const World& world, NodeIndex node) {
  Json ranks = Json::array();
  for (std::uint32_t rank = 0; rank < world.size(); ++rank)
    if (world.node_of(Rank(rank)) == node) ranks.push_back(rank);
  return ranks;
}

}  // namespace

struct GatheredTexts::Collection {
  // How far a node's text has come.
  struct Coming {
    std::string text;
    std::uint64_t report = 0;
    std::size_t bytes = 0;
    bool begun = false;
  };

  std::string job;
  std::uint64_t epoch = 0;
  std::string kind;
  NodeIndex here;
  Instant start{0};
  Nanos time{0};
  std::vector<NodeText> texts;
  std::vector<Coming> coming;  // by node
  std::size_t open = 0;
  Gathered gathered;
};

void GatheredTexts::gather(const Job& job, const std::string& kind, Nanos time, Gathered gathered) {
  const World& world = job.spec.world;
  const auto all = std::make_shared<Collection>();
  all->job = job.spec.id();
  all->epoch = job.spec.epoch;
  all->kind = kind;
  all->here = world.here();
  all->start = clock_.now();
  all->time = time;
  all->gathered = std::move(gathered);
  const auto count = static_cast<std::uint32_t>(world.nodes().size());
  all->coming.resize(count);
  all->open = count;
  for (const std::string& node : world.nodes())
    all->texts.push_back({node, fail(Code::kPending, "no answer yet")});
  for (std::uint32_t n = 0; n < count; ++n) ask(all, n);
}

void GatheredTexts::ask(const std::shared_ptr<Collection>& all, std::uint32_t node) {
  const Job* job = table_.find(all->job, all->epoch);
  if (job == nullptr) return conclude(all, node, failure(Code::kNotFound, "job {} has ended", all->job));
  const Collection::Coming& coming = all->coming[node];
  const Nanos left = all->time - (clock_.now() - all->start);
  if (coming.begun && left <= Nanos(0))
    return conclude(
        all, node,
        failure(Code::kTimeout, "node {} has sent {} of {} bytes within {:.1f} s", all->texts[node].node,
                coming.text.size(), coming.bytes, std::chrono::duration<double>(all->time).count()));
  Json question{{"command", all->kind}};
  if (coming.begun) question.update({{"report", coming.report}, {"from", coming.text.size()}});
  questions_.ask_node(*job, NodeIndex(node), question, std::max(left, Nanos(0)),
                      [this, all, node](const Result<Json>& said) { hear(all, node, said); });
}

void GatheredTexts::hear(const std::shared_ptr<Collection>& all, std::uint32_t node,
                         const Result<Json>& said) {
  const Status taken = said ? take(*all, node, *said) : said.error();
  if (!taken.ok()) return conclude(all, node, taken);
  const Collection::Coming& coming = all->coming[node];
  coming.text.size() < coming.bytes ? ask(all, node) : conclude(all, node, {});
}

// A peer may send anything: only the part that was asked for is taken, and only in full.
Status GatheredTexts::take(Collection& all, std::uint32_t node, const Json& part) {
  Collection::Coming& coming = all.coming[node];
  const std::string& name = all.texts[node].node;
  const std::uint64_t bytes = word_in(part, "bytes");
  const std::uint64_t report = word_in(part, "report");
  if (bytes > KeptTexts::kTextBytesMax)
    return failure(Code::kProtocol, "node {}: its text has no length, or more than {} bytes", name,
                   KeptTexts::kTextBytesMax);
  if (!coming.begun && held_ + bytes > kBytesMax)
    return failure(Code::kNoResource,
                   "the texts of nodes that are gathered have {} bytes together at most; node {} has {} more",
                   kBytesMax, name, bytes);
  if (!coming.begun) {
    coming.begun = true;
    coming.bytes = static_cast<std::size_t>(bytes);
    coming.report = report;
    held_ += coming.bytes;
  }
  const std::size_t part_max = NodeIndex(node) == all.here ? KeptTexts::kTextBytesMax : KeptTexts::kPartBytes;
  const auto text = part.find("text");
  const bool is_next = bytes == coming.bytes && report == coming.report &&
                       word_in(part, "from") == coming.text.size() && text != part.end() &&
                       text->is_binary() &&
                       text->get_binary().size() == std::min(coming.bytes - coming.text.size(), part_max);
  if (!is_next)
    return failure(Code::kProtocol, "node {}: what it sent is not the part of its text from {} on", name,
                   coming.text.size());
  const auto& added = text->get_binary();
  coming.text.append(added.begin(), added.end());
  return {};
}

void GatheredTexts::conclude(const std::shared_ptr<Collection>& all, std::uint32_t node, Status why) {
  Collection::Coming& coming = all->coming[node];
  if (why.ok())
    all->texts[node].text = std::move(coming.text);
  else
    all->texts[node].text = fail(std::move(why));
  if (--all->open > 0) return;
  for (const Collection::Coming& each : all->coming) held_ -= each.bytes;
  all->gathered(all->texts);
}

GatheredTexts::AnswerOfAll texts_of_nodes(const World& world,
                                          const std::vector<GatheredTexts::NodeText>& texts) {
  GatheredTexts::AnswerOfAll all;
  Json nodes = Json::array();
  for (std::uint32_t n = 0; n < texts.size(); ++n) {
    Json node{{"node", texts[n].node}, {"ranks", ranks_on(world, NodeIndex(n))}};
    const Result<std::string>& text = texts[n].text;
    if (text) {
      node["bytes"] = text->size();
      all.text += *text;
    } else {
      node["why"] = text.error().message();
      node["status"] = static_cast<muster_status_t>(text.error().code());
    }
    nodes.push_back(std::move(node));
  }
  all.result = {{"nodes", std::move(nodes)}};
  return all;
}

Json text_of_one_node(const World& world, std::size_t bytes) {
  const Json node{
      {"node", world.name_of(world.here())}, {"ranks", ranks_on(world, world.here())}, {"bytes", bytes}};
  return {{"nodes", Json::array({node})}};
}

}  // namespace muster::supervisor
