#include "daemon/engine/job/conductor.hpp"

#include "api/shm/message.hpp"

#include "api/base/log.hpp"
#include "daemon/control/engine_address.hpp"
#include "daemon/engine/nodes/job_network.hpp"
#include "daemon/engine/session/process_end.hpp"
#include "daemon/engine/session/process_state.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {
namespace {

using control::Json;
using control::Packet;
using shm::MessageKind;

constexpr Nanos kAgreePeriod = std::chrono::milliseconds(2);
constexpr Nanos kLifePeriod = std::chrono::milliseconds(200);
constexpr const char* kCaughtUp = "caught_up";  // of an `attach` that has waited
constexpr const char* kWaits = "waits";         // of a `create` that waits for memory, or
constexpr const char* kNoLonger = "no longer";
constexpr Nanos kTimerPeriod = std::chrono::milliseconds(50);
// A dying process closes its socket before its pidfd says so.
constexpr Nanos kDeathWait = std::chrono::milliseconds(200);

Json refused(const Status& status) {
  return control::failed(status);
}

bool is_failure(std::span<const std::byte> message) {
  shm::MessageHeader header;
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  return header.kind == MessageKind::kFailure;
}

}  // namespace

// A client's message that has been received. `session`: of the sender.
struct Conductor::Request {
  Rank rank;
  SessionId session;
  std::span<const std::byte> bytes;
  std::vector<std::byte> kept;  // owns the bytes while the request waits
  shm::Descriptor imported;
  Instant until{0};  // it waits no longer for memory
};

Conductor::Conductor(shm::Descriptor channel, const Clock& clock)
    : clock_(clock),
      channel_(loop_, std::move(channel)),
      memory_waits_(loop_, clock, [this](std::uint64_t bytes) {
        channel_.tell({MessageKind::kCommand, 0, {{"event", "short_of_memory"}, {"bytes", bytes}}, {}});
      }) {}

Conductor::~Conductor() = default;

int Conductor::run() {
  channel_.listen([this] { on_supervisor(); });
  on_timer();
  agree();
  loop_.run();
  return exit_code_;
}

// ---- the supervisor ----------------------------------------------------------------------------

void Conductor::on_supervisor() {
  auto packet = channel_.receive();
  if (packet) return answer(*std::move(packet));
  if (packet.error().code() == Code::kPending) return;
  if (packet.error().code() == Code::kNoResource) {
    // No descriptor was free: that command is lost, the channel is not.
    MUSTER_LOG(kWarning, "engine", "a supervisor's command: {}", packet.error().message());
    return;
  }
  MUSTER_LOG(kWarning, "engine", "supervisor lost: {}", packet.error().message());
  channel_.close();
  memory_waits_.on_no_room();
  end_if_alone();
}

void Conductor::answer(Packet packet) {
  const Json answer = answer_to(packet);
  if (answer.is_null()) return;  // it comes later
  Packet reply{MessageKind::kReply, packet.serial, answer, {}};
  if (commands_)
    if (shm::Descriptor own = commands_->take_descriptor(); own.valid())
      reply.descriptors.push_back(std::move(own));
  channel_.tell(std::move(reply));
  if (ending_) loop_.stop();
}

Json Conductor::answer_to(Packet& packet) {
  try {
    return execute(packet);
  } catch (const Json::exception& error) {  // a field of a wrong type
    return refused(failure(Code::kProtocol, "a supervisor's command is not well-formed: {}", error.what()));
  }
}

Json Conductor::execute(Packet& packet) {
  const std::string command = packet.body.value("command", "");
  if (command == "create") return create(packet);
  if (command == "memory") {
    packet.body.value("room", false) ? memory_waits_.on_room() : memory_waits_.on_no_room();
    return control::success(Json::object());
  }
  if (command == "stop") return stop(packet.body);
  if (!engine_) return refused(failure(Code::kState, "the job does not exist yet"));
  if (command == "attach" && !packet.body.contains(kCaughtUp)) {
    const Rank rank(static_cast<std::uint32_t>(packet.body.value("rank", std::int64_t{-1})));
    if (const auto question = engine_->other_nodes().question_for(rank)) {
      packet.body[kCaughtUp] = true;
      attaching_.emplace_back(*question, std::move(packet));
      loop_.unwatch(agrees_);
      agrees_ = loop_.after(kAgreePeriod, [this] { agree(); });
      return nullptr;
    }
  }
  if (command == "attach") return attach(packet);
  // A supervisor that takes over learns of the waiting ranks by this report.
  if (command == "report" && packet.body.value("takes_over", false)) attach_waiting(true);
  return commands_->execute(command, packet.body);
}

// The packet brings the user's memory page; without one, the job's memory is not counted.
Json Conductor::create(Packet& packet) {
  if (engine_) return refused(failure(Code::kState, "the job exists already"));
  if (!packet.body.contains(kWaits)) creating_.reset();
  auto spec = control::job_from_json(packet.body.value("spec", Json()));
  if (!spec) return refused(spec.error());
  if (!packet.descriptors.empty()) {
    auto attached =
        MemoryAccount::attach(packet.descriptors[0], packet.body.value("memory_slot", shm::kMemorySlots));
    if (!attached) return refused(attached.error());
    account_ = *std::move(attached);
  }
  const auto give_up = [this](const Status& why) {
    ending_ = true;
    exit_code_ = 1;
    return refused(why);
  };
  auto transport = open_job_network(*spec, clock_, account_.get());
  if (!transport) return give_up(transport.error());
  auto engine =
      Engine::create(*spec, clock_, nullptr, Engine::Pooling::kThreads, account_, *std::move(transport));
  if (!engine && wait_for_memory(packet)) return nullptr;
  if (!engine) return give_up(engine.error());
  auto counters = (*engine)->reports().counters();
  if (!counters) return give_up(counters.error());
  watchdog_.emplace((*engine)->lock(), clock_);
  if (const Status watched = watchdog_->start(); !watched.ok()) {
    watchdog_.reset();
    return give_up(watched);
  }
  engine_ = *std::move(engine);
  commands_.emplace(loop_, clock_, channel_, *engine_, *std::move(counters));
  cores_.emplace(engine_->spec(), engine_->pool());
  Json result{{"groups", engine_->meshes().list().size()}, {"hash", engine_->meshes().list().hash().hex()}};
  control::write_address(engine_->other_nodes().links().address(), result);
  return control::success(std::move(result));
}

// True: takes the command that makes the job, for which the owner has no memory left now. A supervisor that
// was started anew sends another one, which takes the place of the first.
bool Conductor::wait_for_memory(Packet& packet) {
  const std::uint64_t bytes = account_ ? account_->take_shortage() : 0;
  const bool again = packet.body.contains(kWaits);
  if (bytes == 0 || !channel_.is_open() || packet.body.value(kWaits, "") == kNoLonger) return false;
  if (!again) create_until_ = clock_.now() + MemoryWaits::kTime;
  creating_ = std::make_shared<Packet>(std::move(packet));
  memory_waits_.wait(bytes, create_until_, [this, kept = creating_](MemoryWaits::Try which) {
    if (kept != creating_) return;
    kept->body[kWaits] = which == MemoryWaits::Try::kLast ? kNoLonger : "";
    answer(std::move(*kept));
  });
  return true;
}

Json Conductor::attach(Packet& packet) {
  if (packet.descriptors.size() != 2)
    return refused(failure(Code::kProtocol, "attach needs a socket and a pidfd"));
  const auto rank_value = packet.body.value("rank", std::int64_t{-1});
  const Rank rank(static_cast<std::uint32_t>(rank_value));
  Client client;
  client.socket = std::move(packet.descriptors[0]);
  client.pidfd = std::move(packet.descriptors[1]);
  client.pid = packet.body.value("pid", 0);
  client.patience = Nanos(packet.body.value("timeout_ns", Nanos::rep{0}));
  const auto serial = packet.body.value("serial", 0u);

  // A rank whose process has just died may come back before its death has been seen.
  if (const auto former = clients_.find(rank); former != clients_.end() && has_ended(former->second.pidfd))
    on_death(rank);
  auto attached = engine_->attach(rank, client.pid);
  if (!attached) return refused(attached.error());
  cores_->attached(rank, client.pid, client.pidfd);
  client.session = attached->session;
  shm::Welcome welcome = attached->welcome;
  welcome.header.kind = MessageKind::kWelcome;
  welcome.header.serial = serial;
  welcome.header.bytes = sizeof welcome;
  std::vector<int> descriptors = {client.session->submission().descriptor().get(),
                                  client.session->page().descriptor().get(), attached->doorbell.get()};
  if (attached->direct_segment >= 0) {
    descriptors.push_back(attached->direct_segment);
    descriptors.push_back(attached->group_page);
  }
  const Status sent = shm::send_message(client.socket, std::as_bytes(std::span(&welcome, 1)), descriptors);
  if (!sent.ok()) {
    cores_->left(rank);
    engine_->detach(rank,
                    fmt::format("rank {} (pid {}) left before it was welcomed", rank.value, client.pid));
    Json answer = refused(sent);
    answer["attachments"] = welcome.attachments + 1;  // it counts although it failed
    return answer;
  }
  client.socket_watch = loop_.watch(client.socket.get(), [this, rank] { on_client(rank); });
  client.death_watch = loop_.watch(client.pidfd.get(), [this, rank] { on_death(rank); });
  clients_.emplace(rank, std::move(client));
  lost_before_ = false;
  Json answer = control::success({{"session", welcome.session}});
  answer["attachments"] = welcome.attachments + 1;  // this one too
  return answer;
}

// In the order in which they came.
void Conductor::attach_waiting(bool all) {
  while (!attaching_.empty() && (all || engine_->other_nodes().answered(attaching_.front().first))) {
    Packet packet = std::move(attaching_.front().second);
    attaching_.pop_front();
    answer(std::move(packet));
  }
}

Json Conductor::stop(const Json& body) {
  const auto status = body.value("status", static_cast<muster_status_t>(Code::kJobEnded));
  const Code code = status < 0 && is_known(status) ? static_cast<Code>(status) : Code::kJobEnded;
  if (engine_)
    engine_->close(code, fmt::format("job {} was ended: {}", engine_->spec().name,
                                     body.value("text", "nobody says why")));
  ending_ = true;
  return control::success(Json::object());
}

// ---- clients -----------------------------------------------------------------------------------

void Conductor::on_client(Rank rank) {
  Client& client = clients_.at(rank);
  // A message may bring memory to import. If its descriptor is slow to close, only this job waits.
  const std::span<std::byte> buffer = buffer_.all();
  auto message = shm::receive_message(client.socket, buffer);
  if (!message && message.error().code() == Code::kPending) return;
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  if (!message && message.error().code() == Code::kNoResource &&
      std::all_of(buffer.begin(), buffer.begin() + sizeof(shm::MessageHeader), is_zero)) {
    MUSTER_LOG(kWarning, "engine", "a message of rank {} waits: {}", rank.value, message.error().message());
    return;
  }
  // The message came without its descriptor: tell the sender why.
  const std::span<const std::byte> request = buffer.first(sizeof(shm::BufferAlloc));
  const bool lost = !message && message.error().code() == Code::kNoResource &&
                    shm::checked<shm::BufferAlloc>(request, MessageKind::kBufferAlloc);
  if (lost) message = shm::Message{request.size(), {}};
  if (!message) {
    return depart(rank, true,
                  fmt::format("rank {} (pid {}) broke the protocol: {}", rank.value, client.pid,
                              message.error().message()));
  }
  if (message->bytes == 0) {
    if (client.said_goodbye)
      return depart(rank, false, fmt::format("rank {} (pid {}) detached", rank.value, client.pid));
    if (has_ended(client.pidfd)) return on_death(rank);
    return await_death(rank);
  }
  engine_->heard(rank);
  Request made{rank, client.session->options().id, buffer.first(message->bytes), {}, {}};
  if (!message->descriptors.empty()) made.imported = std::move(message->descriptors[0]);
  serve_client(std::move(made), MemoryWaits::Try::kMayWaitAgain);
}

// A request waits if other jobs of the owner hold the memory that it needs. The client's next ones wait
// behind it. It is answered before the client gives up.
void Conductor::serve_client(Request request, MemoryWaits::Try which) {
  const auto it = clients_.find(request.rank);
  if (it == clients_.end() || it->second.session->options().id != request.session) return;
  const Rank rank = request.rank;
  Client& client = it->second;
  auto answer = serve(*engine_, *client.session, request.bytes, request.imported.get());
  const std::uint64_t bytes = account_ ? account_->take_shortage() : 0;
  const bool may_wait = which != MemoryWaits::Try::kLast && channel_.is_open();
  if (bytes != 0 && may_wait && answer && is_failure(answer->bytes)) {
    loop_.unwatch(std::exchange(client.socket_watch, 0));
    const auto waits = std::make_shared<Request>(std::move(request));
    if (waits->kept.empty()) {
      waits->kept.assign(waits->bytes.begin(), waits->bytes.end());
      waits->bytes = waits->kept;
      waits->until = clock_.now() + std::min<Nanos>(MemoryWaits::kTime, client.patience / 2);
    }
    return memory_waits_.wait(
        bytes, waits->until, [this, waits](MemoryWaits::Try next) { serve_client(std::move(*waits), next); });
  }
  if (client.socket_watch == 0)
    client.socket_watch = loop_.watch(client.socket.get(), [this, rank] { on_client(rank); });
  if (!answer)
    return depart(rank, true,
                  fmt::format("rank {} (pid {}) broke the protocol: {}", rank.value, client.pid,
                              answer.error().message()));
  client.said_goodbye = client.said_goodbye || answer->goodbye;
  const int descriptor = answer->descriptor;
  const Status sent =
      shm::send_message(client.socket, answer->bytes, std::span(&descriptor, descriptor >= 0 ? 1 : 0));
  if (!sent.ok() && sent.code() != Code::kDaemonLost)
    depart(rank, true, fmt::format("rank {} (pid {}) does not read its answers", rank.value, client.pid));
}

// A process that closes its connection without a goodbye is usually dying; its pidfd will say so.
void Conductor::await_death(Rank rank) {
  Client& client = clients_.at(rank);
  loop_.unwatch(std::exchange(client.socket_watch, 0));
  // By session id: a later session of this rank may lie at the same address.
  loop_.after(kDeathWait, [this, rank, session = client.session->options().id] {
    const auto it = clients_.find(rank);
    if (it == clients_.end() || it->second.session->options().id != session) return;
    depart(rank, true,
           fmt::format("rank {} (pid {}) closed its connection without muster_close", rank.value,
                       it->second.pid));
  });
}

void Conductor::on_death(Rank rank) {
  const Client& client = clients_.at(rank);
  if (client.said_goodbye)
    return depart(rank, false, fmt::format("rank {} (pid {}) detached", rank.value, client.pid));
  depart(rank, true,
         fmt::format("rank {} (pid {}) {}", rank.value, client.pid,
                     text_of(how_ended(client.pidfd, client.pid))));
}

void Conductor::depart(Rank rank, bool lost, const std::string& text) {
  const auto it = clients_.find(rank);
  if (it == clients_.end()) return;
  loop_.unwatch(it->second.socket_watch);
  loop_.unwatch(it->second.death_watch);
  const std::int32_t pid = it->second.pid;
  cores_->left(rank);
  engine_->detach(rank, text);
  clients_.erase(it);
  // One loss takes others with it: the first is a warning, until a rank attaches again.
  if (lost && !std::exchange(lost_before_, true))
    MUSTER_LOG(kWarning, "engine", "job {}: {}", engine_->spec().name, text);
  else if (lost)
    MUSTER_LOG(kInfo, "engine", "job {}: {}", engine_->spec().name, text);
  channel_.tell({MessageKind::kCommand,
                 0,
                 {{"event", "detached"}, {"rank", rank.value}, {"pid", pid}, {"lost", lost}, {"text", text}},
                 {}});
  engine_->reclaim();
  end_if_alone();
}

// While nodes agree, messages of others wait for this loop.
void Conductor::agree() {
  const bool soon = engine_ && engine_->groups().progress();
  attach_waiting(false);
  agrees_ = loop_.after(soon ? kAgreePeriod : kTimerPeriod, [this] { agree(); });
}

void Conductor::on_timer() {
  channel_.tell_rest();
  if (engine_) {
    while (const auto offender = engine_->faults().take_offender())
      depart(offender->first, true,
             fmt::format("rank {} broke the protocol: {}", offender->first.value, offender->second));
    engine_->reclaim();
    engine_->reports().write();
    if (const Instant now = clock_.now(); now - alive_at_ >= kLifePeriod) {
      alive_at_ = now;
      engine_->other_nodes().links().stay_alive();
    }
    // A supervisor that has begun another connection meanwhile sees by the generation that it is not this
    // one.
    for (const transport::JobLinks::Lost& link : engine_->other_nodes().take_lost()) {
      if (commands_->awaits(link.node, link.generation)) continue;  // the end of the attempt tells it
      Json event = refused(link.why);
      event["event"] = "lost";
      event["node"] = link.node.value;
      event["generation"] = link.generation;
      channel_.tell({MessageKind::kCommand, 0, std::move(event), {}});
    }
    if (const Status health = engine_->health(); !health.ok()) {
      const Json event{{"event", "failed"},
                       {"status", static_cast<muster_status_t>(health.code())},
                       {"error", health.message()}};
      if (channel_.is_open() && !channel_.tell_at_once({MessageKind::kCommand, 0, event, {}}).ok())
        MUSTER_LOG(kError, "engine", "the supervisor does not hear that the job failed: {}", health.text());
      exit_code_ = 1;
      return loop_.stop();
    }
  }
  loop_.after(kTimerPeriod, [this] { on_timer(); });
}

// Without supervisor and clients, no process could ever reach this job again.
void Conductor::end_if_alone() {
  if (!channel_.is_open() && clients_.empty()) loop_.stop();
}

}  // namespace muster::engine
