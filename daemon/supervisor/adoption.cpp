// How a supervisor takes over from one that was killed or has given way: what it finds, what it asks, what it
// leaves to its own successor.
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"
#include "api/shm/headroom.hpp"
#include "api/shm/segment.hpp"
#include "daemon/supervisor/socket_role.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAskAgain = std::chrono::milliseconds(20);
constexpr Nanos kAskCountersAgain = std::chrono::seconds(1);
constexpr Nanos kStrangerEndTime = std::chrono::seconds(10);  // from "stop" to SIGKILL

// The number in "channel-1f3a", if the name is of that kind.
std::optional<std::uint64_t> number_in(const std::string& name, std::string_view kind) {
  if (!name.starts_with(kind)) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kind.size(), end, number, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// The serial of the first message that nobody has read yet; 0: there is none.
std::uint32_t first_unread(const shm::Descriptor& socket) {
  shm::MessageHeader header;
  const ssize_t n = recv(socket.get(), &header, sizeof header, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
  return n >= static_cast<ssize_t>(sizeof header) ? header.serial : 0;
}

Result<std::vector<Attachment>> attachments_of(const Packet& answer) {
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(answer));
  std::vector<Attachment> attachments;
  for (const Json& rank : result.at("ranks"))
    attachments.push_back({rank.at("attached").get<bool>(), rank.at("pid").get<std::int32_t>(),
                           rank.at("attachments").get<std::uint32_t>()});
  return attachments;
}

// Where nothing tells how much there is, more than any machine has.
std::uint64_t usual_memory_max() {
  const std::uint64_t capacity = shm::memory_capacity();
  return capacity != 0 ? capacity / 4 * 3 : control::kJobBytesMax;
}

}  // namespace

Entrance::Options entrance_of(const Options& options) {
  return {options.socket_path,
          {static_cast<mode_t>(options.socket_mode), std::nullopt, options.socket_gid},
          options.runtime_directory,
          options.transient};
}

struct Supervisor::Legacy {
  bool understood = true;  // its engines speak as we do, as far as is known
  struct Engine {
    shm::Descriptor channel, pidfd, counters;
  };
  std::optional<ListenSocket> socket, managers;
  std::optional<PlaceLock> lock;
  std::optional<RuntimeDirectory> directory;
  shm::Descriptor state;
  std::map<std::uint64_t, Engine> engines;            // by epoch of the job
  std::map<std::uint64_t, shm::Descriptor> memories;  // by user
  std::map<ConnectionId, shm::Descriptor> owners;
  std::set<std::string> names;  // that the service manager keeps, until somebody needs them

  void put(Inherited inherited, const Options& options);
  // What of it belongs together.
  Entrance::Kept entrance(const std::string& socket_path);

 private:
  void put_socket(shm::Descriptor listening, ListenSocket::Path whose, const std::string& name);
};

void Supervisor::Legacy::put_socket(shm::Descriptor listening, ListenSocket::Path whose,
                                    const std::string& name) {
  auto adopted = ListenSocket::adopt(std::move(listening), whose, name);
  if (!adopted) {
    MUSTER_LOG(kWarning, "supervisor", "{}: {}", name, adopted.error().message());
    return;
  }
  std::optional<ListenSocket>& place = whose == ListenSocket::Path::kOurs ? socket : managers;
  if (!place) place.emplace(*std::move(adopted));
}

// With two sockets, the manager's: it is the one that the unit names. But one of ours that has taken its path
// is the one that is found. One of ours elsewhere is of no use: settings have changed since.
Entrance::Kept Supervisor::Legacy::entrance(const std::string& socket_path) {
  const bool healed = socket && managers && socket->path() == managers->path() && socket->stands();
  if (managers && !healed) {
    socket.reset();
    socket.emplace(*std::move(managers));
    managers.reset();
  } else if (!healed && socket && socket->path() != socket_path) {
    socket.reset();
  }
  return {std::move(socket), std::move(managers), std::move(lock), std::move(directory)};
}

// What comes twice is closed: the first counts.
void Supervisor::Legacy::put(Inherited inherited, const Options& options) {
  const std::string& name = inherited.name;
  const auto place = [&](shm::Descriptor& target) {
    names.insert(name);
    if (!target.valid()) target = std::move(inherited.descriptor);
  };
  if (name == kStateName) return place(state);
  const auto place_connection = [&](shm::Descriptor& target) {
    if (has_role(inherited.descriptor, SocketRole::kIsConnected)) return place(target);
    names.insert(name);  // what is no socket may always be readable: the daemon would never come to rest
    MUSTER_LOG(kWarning, "supervisor", "{} is no connection; it is closed", name);
  };
  if (const auto epoch = number_in(name, "channel-")) return place_connection(engines[*epoch].channel);
  if (const auto epoch = number_in(name, "pidfd-")) return place(engines[*epoch].pidfd);
  if (const auto epoch = number_in(name, "counters-")) return place(engines[*epoch].counters);
  if (const auto uid = number_in(name, "memory-")) return place(memories[*uid]);
  if (const auto id = number_in(name, "owner-")) return place_connection(owners[*id]);
  const bool locks = name.starts_with(PlaceLock::kNamePrefix);
  const bool folds = name.starts_with(RuntimeDirectory::kNamePrefix);
  const bool ours = name.starts_with(ListenSocket::kNamePrefix);
  if (locks || folds || ours) names.insert(name);
  if (locks && !lock) {
    lock = PlaceLock::adopt(std::move(inherited.descriptor), name);
  } else if (folds && !directory) {
    directory = RuntimeDirectory::adopt(std::move(inherited.descriptor), options.runtime_directory, name);
  } else if (!locks && !folds) {
    put_socket(std::move(inherited.descriptor),
               ours ? ListenSocket::Path::kOurs : ListenSocket::Path::kManagers, name);
  }
}

Result<std::unique_ptr<Supervisor>> Supervisor::open(Options options, const Clock& clock,
                                                     std::vector<Inherited> inherited) {
  Legacy legacy;
  for (Inherited& one : inherited) legacy.put(std::move(one), options);
  MUSTER_ASSIGN_OR_RETURN(Entrance entrance,
                          Entrance::open(entrance_of(options), legacy.entrance(options.socket_path)));
  MUSTER_ASSIGN_OR_RETURN(StateFile state, StateFile::create());
  MUSTER_ASSIGN_OR_RETURN(SignalQueue signals, SignalQueue::open());
  std::unique_ptr<Supervisor> supervisor(
      new Supervisor(std::move(options), clock, std::move(entrance), std::move(state), std::move(signals)));
  supervisor->take_over(std::move(legacy));
  supervisor->look_at_entrance();
  for (const control::JobSpec& job : supervisor->options_.jobs) {
    const std::string name = job.name;
    if (supervisor->table_.find(name) != nullptr) continue;
    const auto tell = [name](const Status& status) {
      if (!status.ok()) MUSTER_LOG(kError, "supervisor", "job {}: {}", name, status.text());
    };
    const auto start = [made = supervisor.get(), job, tell] {
      return made->start_job(job, {.gid = getgid()}, tell);
    };
    if (supervisor->table_.place_is_coming(job.owner_uid)) {
      supervisor->wait_for_place(
          {job.owner_uid, name, [] { return false; }, [start, tell] { tell(start()); }});
      continue;
    }
    const Status started = start();
    if (started.ok()) continue;
    if (supervisor->running_.empty()) return fail(started);
    tell(started);  // no reason to take down those that run
  }
  return supervisor;
}

Supervisor::Supervisor(Options options, const Clock& clock, Entrance entrance, StateFile state,
                       SignalQueue signals)
    : options_(std::move(options)),
      clock_(clock),
      entrance_(std::move(entrance)),
      signals_(std::move(signals)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      table_(Shares(Shares::limits_of(options_.jobs_max, options_.jobs_per_user_max), geteuid())),
      state_file_(std::move(state)),
      store_(options_.notify, options_.store_room),
      silent_(kSilent, geteuid()),
      commanding_(kCommands, geteuid()),
      retrying_(kRetries, geteuid()),
      memory_(Shares::limits_of(options_.memory_max != 0 ? options_.memory_max : usual_memory_max(),
                                options_.memory_per_user_max),
              geteuid()),
      buffer_(shm::kMessageBytesMax),
      started_(clock.now()) {
  state_.epoch = options_.random_word();
  state_.protocol = state_format().protocol;
  state_.started_ns = started_.count();
}

// Whatever the state does not name is ended and discarded: nothing is left that nobody owns.
void Supervisor::take_over(Legacy legacy) {
  entrance_.keep_in(store_, legacy.names);
  std::vector<SavedJob> jobs;
  std::string why = "the daemon was restarted, and no state of its predecessor came with the job";
  bool keeps_state = false;
  if (legacy.state.valid()) {
    auto file = StateFile::adopt(std::move(legacy.state));
    auto decoded = file ? file->read(state_format().version) : Result<Decoded>(fail(file.error()));
    const Status understood = decoded ? check_protocol(decoded->state, state_format()) : decoded.error();
    if (understood.ok()) {
      state_file_ = *std::move(file);
      state_ = std::move(decoded->state);
      state_read_ = decoded->version;
      jobs = std::move(state_.jobs);
      started_ = Instant(Nanos(state_.started_ns));
      if (state_.managers_socket_stood) entrance_.believe_managers_stood();
      keeps_state = legacy.names.erase(kStateName) != 0;
    } else {
      why = fmt::format("the daemon was restarted and cannot {}: {}",
                        decoded ? "take its predecessor's jobs over" : "read its predecessor's state",
                        understood.message());
      MUSTER_LOG(kError, "supervisor", "{}; its jobs are ended", why);
      legacy.understood = !decoded;
    }
  }
  takeover_began_ = state_.upgrade_ns != 0 ? Instant(state_.upgrade_ns) : clock_.now();
  state_.upgrade_ns = 0;
  ++state_.instance;
  for (const SavedJob& job : jobs) adopt_job(job, legacy);
  share_memory();
  for (const SavedJob& job : jobs) {
    const auto socket = legacy.owners.find(job.owner);
    if (job.owner == 0 || socket == legacy.owners.end()) continue;
    legacy.names.erase(owner_name(job.owner));
    adopt_owner(job.owner, std::move(socket->second));
    legacy.owners.erase(socket);
  }
  end_strangers(legacy, why);
  for (const std::string& name : legacy.names) store_.discard(name);
  if (!keeps_state)
    store_.keep(kStateName, state_file_.descriptor());
  else
    store_.know(kStateName, state_file_.descriptor());
  save();
  for (const SavedJob& job : jobs) {
    const auto it = running_.find(job.spec.name);
    if (it == running_.end()) continue;
    const bool owned = job.owner == 0 || connections_.contains(job.owner);
    ask_report(job.spec.name, job.spec.epoch);
    if (!job.ending.empty()) end_job(job.spec.name, job.ending);
    if (!owned) end_job(job.spec.name, "whoever started the job has left");
  }
  taking_over_ = !running_.empty();
}

void Supervisor::adopt_job(const SavedJob& saved, Legacy& legacy) {
  const std::string& name = saved.spec.name;
  const std::uint64_t epoch = saved.spec.epoch;
  const auto engine = legacy.engines.find(epoch);
  const bool kept =
      engine != legacy.engines.end() && engine->second.channel.valid() && engine->second.pidfd.valid();
  if (!kept) {
    MUSTER_LOG(kError, "supervisor", "job {} is lost: its engine's descriptors were not kept", name);
    return;
  }
  std::vector<IssuedToken> tokens;
  for (const SavedToken& token : saved.tokens) tokens.push_back({token.rank, token.attachments, token.text});
  static_cast<void>(table_.adopt(saved.spec, tokens));  // a state names no job twice
  RunningJob& running = running_[name];
  running.gid = saved.gid;
  running.owner = saved.owner;
  running.made = saved.made;
  running.later = saved.later;
  running.spec_later = saved.spec_later;
  running.ending = saved.ending;  // also in what is saved before it is told so
  running.counters = std::move(engine->second.counters);
  EngineProcess::Options options = engine_options(saved.spec, saved.gid);
  options.first_serial = static_cast<std::uint32_t>(options_.random_word());
  running.engine = EngineProcess::adopt(loop_, std::move(options), saved.engine_pid,
                                        std::move(engine->second.channel), std::move(engine->second.pidfd));
  adopt_memory(saved.spec, legacy);
  store_.know(channel_name(epoch), running.engine->channel());
  store_.know(pidfd_name(epoch), running.engine->pidfd());
  if (running.counters.valid()) store_.know(counters_name(epoch), running.counters);
  legacy.engines.erase(engine);
  for (const std::string& known : {channel_name(epoch), pidfd_name(epoch), counters_name(epoch)})
    legacy.names.erase(known);
}

// The page of the job's user, with its first job.
void Supervisor::adopt_memory(const control::JobSpec& spec, Legacy& legacy) {
  const std::string kept = memory_name(spec.owner_uid);
  const auto page = legacy.memories.find(spec.owner_uid);
  if (page != legacy.memories.end() && memory_.page(spec.owner_uid) == nullptr &&
      memory_.adopt(spec.owner_uid, std::move(page->second))) {
    store_.know(kept, memory_.page(spec.owner_uid)->descriptor());
    legacy.names.erase(kept);
  }
  if (!memory_.adopt_job(spec.owner_uid, spec.epoch))
    MUSTER_LOG(kWarning, "supervisor",
               "job {}: what it holds of memory is not counted: its page was not kept", spec.name);
}

// Its questions that a predecessor took and did not answer, it must ask again: "next" is the first that is
// safe.
void Supervisor::adopt_owner(ConnectionId id, shm::Descriptor socket) {
  auto peer = shm::peer_identity(socket);
  if (!peer) return store_.discard(owner_name(id));  // it has left: its jobs end
  Connection& connection = connections_[id];
  connection.socket = std::move(socket);
  connection.peer = *std::move(peer);
  connection.commands = true;
  commanding_.enter(connection.peer.uid);
  for (const auto& [name, running] : running_)
    if (running.owner == id) connection.jobs.push_back(name);
  connection.jobs.empty() ? store_.discard(owner_name(id))  // they are lost
                          : store_.know(owner_name(id), connection.socket);
  next_connection_ = std::max(next_connection_, id + 1);
  const Json event{{"event", "adopted"}, {"next", first_unread(connection.socket)}};
  // One that does not read, or has left, shows when its socket is read.
  static_cast<void>(control::send_packet(connection.socket, shm::MessageKind::kCommand, 0, event));
  connection.watch = loop_.watch(connection.socket.get(), [this, id] { on_readable(id); });
  time_out_if_idle(id);
}

void Supervisor::ask_report(const std::string& name, std::uint64_t epoch) {
  RunningJob* running = running_job(name, epoch);
  if (running == nullptr) return;
  running->engine->ask(Json{{"command", "report"}}, {},
                       [this, name](const Result<Packet>& answer) { on_report(name, answer); });
}

// What the engine had to tell the predecessor came before this, so it speaks of what is.
void Supervisor::on_report(const std::string& name, const Result<Packet>& answer) {
  const auto it = running_.find(name);
  if (it == running_.end()) return;
  if (!answer && answer.error().code() == Code::kDaemonLost) return;  // on_engine_end() follows
  if (!answer) {  // its queue is full: it is stopped, or busy
    const std::uint64_t epoch = table_.jobs().at(name).spec.epoch;
    loop_.after(kAskAgain, [this, name, epoch] { ask_report(name, epoch); });
    return;
  }
  const auto attachments = attachments_of(*answer);
  if (!attachments && attachments.error().code() == Code::kState &&
      table_.find(name)->state == JobState::kAdopting) {
    begin_anew(name);
    return conclude_takeover();
  }
  const Status status = attachments ? table_.reconcile(name, *attachments) : attachments.error();
  if (!status.ok()) {
    end_job(name,
            fmt::format("the daemon was restarted and could not take the job over: {}", status.message()));
    return conclude_takeover();
  }
  if (!it->second.counters.valid()) ask_counters(name, table_.jobs().at(name).spec.epoch);
  conclude_takeover();
  const auto callbacks = std::move(it->second.on_ready);
  auto waiting = std::move(it->second.waiting);
  it->second.on_ready.clear();
  it->second.waiting.clear();
  for (const auto& callback : callbacks) callback({});
  for (WaitingClient& client : waiting) admit(std::move(client));
  end_if_deserted(name);
  publish_status();
  check_drained();
}

// The predecessor wrote the job down and was killed before its engine had heard of it. Whoever waits for an
// adopted job has no seat yet, as those who wait for one that starts have.
void Supervisor::begin_anew(const std::string& name) {
  MUSTER_LOG(kInfo, "supervisor", "job {} was only begun; it is made now", name);
  auto waiting = std::exchange(running_.at(name).waiting, {});
  table_.starting(name);
  ask_to_create(name);
  for (WaitingClient& client : waiting) admit(std::move(client));
}

// Once no engine's word is awaited any more: each has spoken, or is ending, or gone.
void Supervisor::conclude_takeover() {
  if (adopting() != 0 || !std::exchange(taking_over_, false)) return;
  takeover_ = clock_.now() - takeover_began_;
  MUSTER_LOG(kInfo, "supervisor", "took over {} jobs with {} sessions in {:.1f} ms", running_.size(),
             sessions(), std::chrono::duration<double, std::milli>(takeover_).count());
}

// The predecessor was killed before it had them.
void Supervisor::ask_counters(const std::string& name, std::uint64_t epoch) {
  RunningJob* running = running_job(name, epoch);
  if (running == nullptr) return;
  running->engine->ask(Json{{"command", "counters"}}, {}, [this, name, epoch](Result<Packet> answer) {
    RunningJob* asked = running_job(name, epoch);
    if (asked == nullptr || (!answer && answer.error().code() == Code::kDaemonLost)) return;
    if (!answer || answer->descriptors.empty()) {  // its channel was full, or a descriptor was wanting
      loop_.after(kAskCountersAgain, [this, name, epoch] { ask_counters(name, epoch); });
      return;
    }
    asked->counters = std::move(answer->descriptors.front());
    store_.keep(counters_name(epoch), asked->counters);
  });
}

// Engines whose job is not known any more: their clients hear why, and have the time to go.
void Supervisor::end_strangers(Legacy& legacy, const std::string& why) {
  for (auto& [epoch, engine] : legacy.engines) {
    if (!engine.pidfd.valid()) continue;  // without its channel it ends with its last client
    const std::size_t index = strangers_.size();
    EngineProcess::Options options;
    options.first_serial = static_cast<std::uint32_t>(options_.random_word());
    options.on_event = [](const Json&) {};
    options.on_end = [this, index](const std::string&) {
      loop_.post([this, index] {
        strangers_[index].reset();
        check_drained();
      });
    };
    const bool talks = engine.channel.valid() && legacy.understood;
    strangers_.push_back(EngineProcess::adopt(loop_, std::move(options), 0, std::move(engine.channel),
                                              std::move(engine.pidfd)));
    if (!talks) {
      strangers_.back()->kill();
      continue;
    }
    ask_stranger_to_stop(index, why);
    loop_.after(kStrangerEndTime, [this, index] {
      if (strangers_[index]) strangers_[index]->kill();
    });
  }
}

// As ask_to_stop().
void Supervisor::ask_stranger_to_stop(std::size_t index, const std::string& why) {
  if (!strangers_[index]) return;
  const Json stop{
      {"command", "stop"}, {"text", why}, {"status", static_cast<muster_status_t>(Code::kDaemonLost)}};
  strangers_[index]->ask(stop, {}, [this, index, why](const Result<Packet>& answer) {
    if (answer || answer.error().code() == Code::kDaemonLost) return;
    loop_.after(kAskAgain, [this, index, why] { ask_stranger_to_stop(index, why); });
  });
}

std::size_t Supervisor::adopting() const {
  return static_cast<std::size_t>(
      std::count_if(table_.jobs().begin(), table_.jobs().end(),
                    [](const auto& entry) { return entry.second.state == JobState::kAdopting; }));
}

void Supervisor::save() {
  state_.jobs.clear();
  for (const auto& [name, running] : running_) {
    const Job& job = table_.jobs().at(name);
    SavedJob saved{job.spec,       running.gid, running.engine->pid(), running.owner,     running.made,
                   running.ending, {},          running.later,         running.spec_later};
    for (std::uint32_t rank = 0; rank < job.claims.size(); ++rank)
      if (const Claim& claim = job.claims[rank]; !claim.token.empty())
        saved.tokens.push_back({rank, claim.token_at, claim.token});
    state_.jobs.push_back(std::move(saved));
  }
  state_.managers_socket_stood = entrance_.managers_stood();
  const Status written = state_file_.write(state_, state_format());
  if (!written.ok())
    MUSTER_LOG(kError, "supervisor", "{}; a restart would find what was before", written.message());
}

}  // namespace muster::supervisor
