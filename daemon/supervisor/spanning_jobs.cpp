#include "daemon/supervisor/spanning_jobs.hpp"

#include "api/base/log.hpp"
#include "daemon/control/frame.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::size_t kWhyBytesMax = 1024;
constexpr std::size_t kHeadBytesMax = 16;  // of an item of a message
static_assert(control::kAddressesBytesMax + control::kNodesMax * kHeadBytesMax + kWhyBytesMax <
              control::kFrameBytesMax);

// A message about a part; other fields depend on `step`.
Json about(const std::string& job, std::uint64_t epoch, const char* step) {
  return {{"job", job}, {"epoch", epoch}, {"step", step}};
}

std::string text_in(const Json& message, const char* name) {
  const auto field = message.find(name);
  return field != message.end() && field->is_string() ? field->get<std::string>().substr(0, kWhyBytesMax)
                                                      : std::string();
}

std::uint64_t number_in(const Json& message, const char* name) {
  const auto field = message.find(name);
  return field != message.end() && field->is_number_unsigned() ? field->get<std::uint64_t>() : 0;
}

// A peer and an engine may give long reasons, and a message is bounded.
Status cut(const Status& status) {
  return Status(status.code(), status.message().substr(0, kWhyBytesMax));
}

Status status_in(const Json& message) {
  const auto code = message.find("status");
  if (code == message.end() || !code->is_number_integer()) return {};
  return cut(control::status_of(message));
}

// What a peer answers to `prepare`.
Result<control::EngineAddress> prepared_in(const Json& message) {
  MUSTER_RETURN_IF_ERROR(status_in(message));
  return control::address_in(message);
}

}  // namespace

SpanningJobs::SpanningJobs(control::Loop& loop, const JobTable& table, RunningJobs& jobs, Peers& peers,
                           const Options& options)
    : loop_(loop), table_(table), jobs_(jobs), peers_(peers), options_(options) {
  for (const control::JobSpec& spec : options_.jobs) {
    if (spec.world.nodes().size() < 2 || peers_.alone()) continue;
    Part& part = parts_[spec.name];
    part.spec = spec;
    part.leader = spec.world.nodes().front();
    for (const std::string& node : spec.world.nodes())
      if (node != peers_.here()) part.others.push_back(node);
  }
}

SpanningJobs::~SpanningJobs() {
  for (const auto& [name, part] : parts_) loop_.unwatch(part.timer);
}

void SpanningJobs::start() {
  if (peers_.alone()) return;
  std::vector<std::string> unknown;
  for (const auto& [name, job] : table_.jobs()) {
    if (job.spec.world.nodes().size() < 2) continue;
    const auto it = parts_.find(name);
    if (it == parts_.end()) {
      unknown.push_back(name);
    } else if (job.state != JobState::kEnding) {
      it->second.stage = Stage::kReady;
      it->second.epoch = job.spec.epoch;
    }
  }
  for (const std::string& name : unknown) jobs_.end(name, "the cluster file does not name it any more");
  for (auto& [name, part] : parts_) try_begin(part);
}

Json SpanningJobs::parts() const {
  Json parts = Json::array();
  for (const auto& [name, part] : parts_)
    if (part.stage == Stage::kReady) parts.push_back({{"job", name}, {"epoch", part.epoch}});
  return parts;
}

Status SpanningJobs::awaited(const std::string& job) const {
  const auto it = parts_.find(job);
  if (it == parts_.end()) return {};
  const Part& part = it->second;
  if (part.stage == Stage::kReady && table_.find(job) != nullptr) return {};
  if (part.stage == Stage::kOver)
    return failure(Code::kJobEnded, "job {} of the cluster file has ended: {}", job, part.why.message());
  for (const std::string& node : part.others)
    if (!peers_.is_up(node))
      return failure(Code::kBusy, "job {} waits for its nodes: {}; try again (`muster status`)", job,
                     peers_.why_not(node));
  const std::string before = part.why.ok() ? "" : ": " + part.why.message();
  if (!is_made(part.stage)) return failure(Code::kBusy, "job {} is not made yet{}; try again", job, before);
  return failure(Code::kBusy, "job {} is being made on {} nodes, and {}{}; try again", job,
                 part.others.size() + 1, lacks(part),
                 part.why.ok() ? "" : "; the last attempt failed" + before);
}

// What an attempt still waits for, as far as this node knows.
std::string SpanningJobs::lacks(const Part& part) const {
  const bool connects = part.stage == Stage::kConnecting || part.stage == Stage::kConnected;
  const char* what = connects ? "connected with the others" : "started";
  if (leads(part) && !part.unanswered.empty())
    return fmt::format("the engine of node {}{} has not {} yet", *part.unanswered.begin(),
                       part.unanswered.size() == 1
                           ? std::string()
                           : fmt::format(" (and of {} more)", part.unanswered.size() - 1),
                       what);
  const bool own = part.stage == Stage::kPreparing || part.stage == Stage::kConnecting;
  return own ? fmt::format("the engine of this node has not {} yet", what)
             : fmt::format("the engines of other nodes may not have {} yet", what);
}

Json SpanningJobs::report() const {
  Json waiting = Json::array();
  for (const auto& [name, part] : parts_)
    if (part.stage != Stage::kReady || table_.find(name) == nullptr)
      waiting.push_back({{"job", name}, {"why", awaited(name).message()}});
  return waiting;
}

// ---- making ------------------------------------------------------------------------------------

void SpanningJobs::try_begin(Part& part) {
  const std::string& name = part.spec.name;
  if (!leads(part) || part.stage != Stage::kWaiting || table_.find(name, part.epoch) != nullptr) return;
  if (jobs_.closed() || std::as_const(table_).find(name) != nullptr) return;
  for (const std::string& node : part.others)
    if (!peers_.is_up(node)) return;
  const std::uint64_t epoch = RunningJobs::draw_epoch(options_);
  await_all(part);
  part.addresses.assign(part.others.size() + 1, {});
  loop_.unwatch(part.timer);
  part.timer = loop_.after(kPrepareTime, [this, &part] {
    part.timer = 0;
    if (is_made(part.stage))
      give_up(part,
              failure(Code::kTimeout, "{}, after {} s", lacks(part), kPrepareTime / std::chrono::seconds(1)));
  });
  MUSTER_LOG(kInfo, "supervisor", "job {} is being made on {} nodes", name, part.others.size() + 1);
  for (const std::string& node : part.others) peers_.send(node, about(name, epoch, "prepare"));
  begin_part(part, epoch);
}

void SpanningJobs::begin_part(Part& part, std::uint64_t epoch) {
  part.stage = Stage::kPreparing;
  part.epoch = epoch;
  part.told = false;
  const std::string name = part.spec.name;
  const auto held = [this, name, epoch](const Result<control::EngineAddress>& address) {
    on_held(name, epoch, address);
  };
  const Status started = jobs_.start(part.spec, {.gid = getgid(), .held_epoch = epoch, .on_held = held}, {});
  if (!started.ok()) on_held(name, epoch, fail(started));
}

// This node's engine has answered, or could not be started.
void SpanningJobs::on_held(const std::string& job, std::uint64_t epoch,
                           const Result<control::EngineAddress>& address) {
  Part& part = parts_.at(job);
  if (part.epoch != epoch || part.stage != Stage::kPreparing) return;
  part.stage = address ? Stage::kHeld : Stage::kWaiting;
  if (leads(part)) return prepared(part, peers_.here(), address);
  Json answer = about(job, epoch, "prepared");
  if (address) {
    control::write_address(*address, answer);
  } else {
    part.why = cut(address.error());
    answer.update(control::failed(part.why));
  }
  peers_.send(part.leader, answer);
}

void SpanningJobs::await_all(Part& part) {
  part.unanswered = {part.others.begin(), part.others.end()};
  part.unanswered.insert(peers_.here());
}

// Notes a node's answer. The first failure ends the attempt.
bool SpanningJobs::all_answered(Part& part, const std::string& node, const Status& status) {
  if (!status.ok()) {
    give_up(part, failure(status.code(), "node {}: {}", node, status.message()));
    return false;
  }
  part.unanswered.erase(node);
  return part.unanswered.empty();
}

void SpanningJobs::prepared(Part& part, const std::string& node,
                            const Result<control::EngineAddress>& address) {
  const auto nodes = part.spec.world.nodes();
  const auto index = std::find(nodes.begin(), nodes.end(), node) - nodes.begin();
  if (address) part.addresses[static_cast<std::size_t>(index)] = *address;
  if (!all_answered(part, node, address ? Status() : address.error())) return;
  Json message = about(part.spec.name, part.epoch, "connect");
  if (const Status written = control::write_addresses(part.addresses, message); !written.ok())
    return give_up(part, written);
  part.addresses.clear();
  await_all(part);
  for (const std::string& other : part.others) peers_.send(other, message);
  connect(part, message["addresses"]);
}

// Asks this node's engine to connect with the others. An event tells how that ended.
void SpanningJobs::connect(Part& part, const Json& addresses) {
  part.stage = Stage::kConnecting;
  jobs_.ask(part.spec.name, Json{{"command", "connect"}, {"addresses", addresses}}, {},
            [this, name = part.spec.name, epoch = part.epoch](const Result<control::Packet>& answer) {
              const Status begun = answer ? control::status_of(answer->body) : answer.error();
              if (!begun.ok() && parts_.at(name).epoch == epoch) on_connected(name, begun);
            });
}

void SpanningJobs::on_connected(const std::string& job, const Status& status) {
  const auto it = parts_.find(job);
  if (it == parts_.end() || it->second.stage != Stage::kConnecting) return;
  Part& part = it->second;
  if (table_.find(job, part.epoch) == nullptr) return;  // of an earlier attempt
  Status outcome;
  if (!status.ok())
    outcome = cut(failure(status.code(), "its engine cannot connect with the others: {}", status.message()));
  if (outcome.ok()) part.stage = Stage::kConnected;
  if (leads(part)) return connected(part, peers_.here(), outcome);
  Json answer = about(job, part.epoch, "connected");
  if (!outcome.ok()) {
    part.why = outcome;
    part.told = true;  // the leader is told now, and ends it on all nodes
    answer.update(control::failed(outcome));
  }
  peers_.send(part.leader, answer);
}

void SpanningJobs::connected(Part& part, const std::string& node, const Status& status) {
  if (!all_answered(part, node, status)) return;
  loop_.unwatch(std::exchange(part.timer, 0));
  part.stage = Stage::kReady;
  part.why = {};
  for (const std::string& other : part.others)
    peers_.send(other, about(part.spec.name, part.epoch, "commit"));
  MUSTER_LOG(kInfo, "supervisor", "job {} is ready on {} nodes", part.spec.name, part.others.size() + 1);
  jobs_.commit(part.spec.name);
}

// The leader ends what was begun, and tries again later.
void SpanningJobs::give_up(Part& part, const Status& why) {
  if (part.why.text() != why.text())
    MUSTER_LOG(kWarning, "supervisor", "job {} cannot be made: {}", part.spec.name, why.message());
  part.why = why;
  end_part(part, why.message(), Again::kYes);
  retry_later(part);
}

void SpanningJobs::retry_later(Part& part) {
  loop_.unwatch(part.timer);
  part.timer = loop_.after(kRetry, [this, &part] {
    part.timer = 0;
    try_begin(part);
  });
}

// ---- ending ------------------------------------------------------------------------------------

void SpanningJobs::tell_end(Part& part, const std::string& why, Again again) {
  if (std::exchange(part.told, true)) return;
  Json message = about(part.spec.name, part.epoch, "end");
  message["why"] = why.substr(0, kWhyBytesMax);
  message["again"] = again == Again::kYes;
  for (const std::string& other : part.others) peers_.send(other, message);
}

void SpanningJobs::end_part(Part& part, const std::string& why, Again again) {
  tell_end(part, why, again);
  part.stage = again == Again::kYes ? Stage::kWaiting : Stage::kOver;
  if (table_.find(part.spec.name, part.epoch) != nullptr) jobs_.end(part.spec.name, why);
}

// Ends that began here, by a user's wish or with the daemon, are told to the other nodes.
void SpanningJobs::on_ending(const std::string& job, const Status& why) {
  const auto it = parts_.find(job);
  if (it == parts_.end() || it->second.told) return;
  Part& part = it->second;
  part.why = why;
  const Again again = jobs_.closed() || part.stage == Stage::kWaiting ? Again::kYes : Again::kNo;
  tell_end(part, fmt::format("node {}: {}", peers_.here(), why.message()), again);
  part.stage = again == Again::kYes ? Stage::kWaiting : Stage::kOver;
}

void SpanningJobs::on_gone(const std::string& job, const Status& why) {
  const auto it = parts_.find(job);
  if (it == parts_.end()) return;
  Part& part = it->second;
  // The engine has ended early. While it starts, its answer says so.
  if (!part.told && part.stage == Stage::kReady) on_ending(job, why);
  if (!part.told && is_made(part.stage) && part.stage != Stage::kPreparing) {
    part.why = why;
    tell_end(part, fmt::format("node {}: {}", peers_.here(), why.message()), Again::kYes);
    part.stage = Stage::kWaiting;
  }
  if (part.stage == Stage::kWaiting && leads(part)) retry_later(part);
}

// ---- peers -------------------------------------------------------------------------------------

void SpanningJobs::on_up(const std::string& peer, const Json& its_parts) {
  std::map<std::string, std::uint64_t> theirs;
  if (its_parts.is_array())
    for (const Json& entry : its_parts)
      if (entry.is_object()) theirs[text_in(entry, "job")] = number_in(entry, "epoch");
  for (auto& [name, part] : parts_) {
    if (std::find(part.others.begin(), part.others.end(), peer) == part.others.end()) continue;
    const auto its = theirs.find(name);
    const bool same = its != theirs.end() && its->second == part.epoch;
    if (part.stage == Stage::kReady && !same) {
      part.why = failure(Code::kPeerLost, "node {} came back without its part", peer);
      end_part(part, part.why.message(), Again::kYes);
    }
    try_begin(part);
  }
}

void SpanningJobs::on_down(const std::string& peer, const Status& why) {
  for (auto& [name, part] : parts_) {
    if (!is_made(part.stage) || std::find(part.others.begin(), part.others.end(), peer) == part.others.end())
      continue;
    const Status lost =
        failure(Code::kPeerLost, "node {} was lost while the job was being made: {}", peer, why.message());
    if (leads(part)) {
      give_up(part, lost);
    } else if (peer == part.leader) {
      part.why = lost;
      part.told = true;
      end_part(part, lost.message(), Again::kYes);
    }
  }
}

void SpanningJobs::heard(const std::string& peer, const Json& message) {
  const auto it = parts_.find(text_in(message, "job"));
  const std::string step = text_in(message, "step");
  const std::uint64_t epoch = number_in(message, "epoch");
  if (it == parts_.end() || epoch == 0) return;  // of a job that this node has no part of
  Part& part = it->second;
  if (std::find(part.others.begin(), part.others.end(), peer) == part.others.end()) return;
  if (step == "prepare") {
    if (peer == part.leader) hear_prepare(part, peer, epoch);
    return;
  }
  if (epoch != part.epoch) return;  // of an earlier attempt
  const bool prepares = part.stage == Stage::kPreparing || part.stage == Stage::kHeld;
  const bool connects = part.stage == Stage::kConnecting || part.stage == Stage::kConnected;
  const bool is_asked = leads(part) && part.unanswered.contains(peer);
  if (step == "prepared" && is_asked && prepares) {
    prepared(part, peer, prepared_in(message));
  } else if (step == "connect" && peer == part.leader && part.stage == Stage::kHeld) {
    hear_connect(part, message);
  } else if (step == "connected" && is_asked && connects) {
    connected(part, peer, status_in(message));
  } else if (step == "commit" && peer == part.leader && part.stage == Stage::kConnected) {
    part.stage = Stage::kReady;
    part.why = {};
    jobs_.commit(part.spec.name);
  } else if (step == "end" && part.stage != Stage::kOver) {
    hear_end(part, message);
  }
}

void SpanningJobs::hear_connect(Part& part, const Json& message) {
  const auto addresses = control::addresses_in(message, part.spec.world.nodes().size());
  if (addresses) return connect(part, message["addresses"]);
  part.stage = Stage::kConnecting;
  on_connected(part.spec.name, addresses.error());
}

void SpanningJobs::hear_end(Part& part, const Json& message) {
  const std::string why = text_in(message, "why");
  part.told = !leads(part);  // the leader passes it on, because two others may not see each other
  part.why = failure(Code::kJobEnded, "{}", why);
  const auto again = message.find("again");
  const bool yes = again != message.end() && again->is_boolean() && again->get<bool>();
  end_part(part, why, yes ? Again::kYes : Again::kNo);
  if (leads(part) && part.stage == Stage::kWaiting) retry_later(part);
}

void SpanningJobs::hear_prepare(Part& part, const std::string& peer, std::uint64_t epoch) {
  const std::string& name = part.spec.name;
  const Job* job = table_.find(name);
  if (job == nullptr && !jobs_.closed()) return begin_part(part, epoch);
  if (job != nullptr && job->state != JobState::kEnding) {
    part.told = true;
    end_part(part, fmt::format("node {} makes it anew", peer), Again::kYes);
  }
  Json answer = about(name, epoch, "prepared");
  answer.update(control::failed(jobs_.closed() ? failure(Code::kState, RunningJobs::kShuttingDown)
                                               : failure(Code::kBusy, "its earlier part still ends")));
  peers_.send(peer, answer);
}

}  // namespace muster::supervisor
