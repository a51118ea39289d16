#include "daemon/cli/daemon_link.hpp"

namespace muster::cli {
namespace {

bool may_ask_again(const Json& command) {
  return may_repeat(command) ||
         (command.value("command", "") == "job_create" && !command.value("keep", false));
}

}  // namespace

Result<std::unique_ptr<DaemonLink>> DaemonLink::open(control::Loop& loop, const DaemonAddress& address,
                                                     std::function<void()> on_lost) {
  const SteadyClock clock;
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor socket,
                          connect_to_daemon(address, clock.now() + address.timeout, clock));
  return std::unique_ptr<DaemonLink>(new DaemonLink(loop, address, std::move(socket), std::move(on_lost)));
}

DaemonLink::DaemonLink(control::Loop& loop, const DaemonAddress& address, shm::Descriptor socket,
                       std::function<void()> on_lost)
    : loop_(loop), address_(address), socket_(std::move(socket)), on_lost_(std::move(on_lost)) {
  listen();
}

void DaemonLink::listen() {
  watch_ = loop_.watch(socket_.get(), [this] { on_readable(); });
}

DaemonLink::~DaemonLink() {
  loop_.unwatch(watch_);
  for (const auto& [serial, open] : open_) loop_.unwatch(open.timer);
}

void DaemonLink::ask(const Json& command, Answered answered) {
  const std::uint32_t serial = ++serial_;
  const bool gone = !socket_.valid();
  const auto timer = loop_.after(gone ? Nanos(0) : address_.timeout, [this, serial, gone] {
    conclude(
        serial,
        tl::unexpected(
            gone ? Trouble{kUnreachable, "the daemon has gone away"}
                 : Trouble{kTimedOut, "the daemon did not answer in time; --timeout sets how long to wait"}));
  });
  open_.emplace(serial, Open{command, std::move(answered), timer, false});
  if (gone) return;
  if (const Status sent = send(serial); !sent.ok()) conclude(serial, troubled(sent));
}

Status DaemonLink::send(std::uint32_t serial) {
  Open& open = open_.at(serial);
  const Status sent =
      control::send_packet(socket_, shm::MessageKind::kCommand, serial, address_.with_key(open.command));
  open.sent = sent.ok();
  // A daemon that has refused us may have left its reason in the socket: on_readable() reports it.
  return sent.code() == Code::kDaemonLost ? Status() : sent;
}

void DaemonLink::on_readable() {
  auto packet = control::receive_packet(socket_);
  if (packet) {
    connects_ = 0;
    if (packet->kind == shm::MessageKind::kCommand) return on_adopted(packet->body);
    const std::uint32_t serial = packet->serial;
    return conclude(serial, answer_of(std::move(packet)));
  }
  if (packet.error().code() == Code::kPending) return;
  loop_.unwatch(std::exchange(watch_, 0));
  socket_.reset();
  // A refusal instead of an answer is final; an ended connection may be a restart.
  packet.error().code() == Code::kDaemonLost ? reconnect(packet.error()) : lose(packet.error());
}

// Asks open questions before question `end` again, if they were never sent or `may` allows it. Answers come
// last, because they may destroy this link.
template<class May>
void DaemonLink::repeat(std::uint32_t end, May&& may) {
  std::vector<std::pair<Answered, Trouble>> over;
  for (auto it = open_.begin(); it != open_.end() && it->first < end;) {
    const bool again = !it->second.sent || may(it->second.command);
    const Status sent = again ? send(it->first) : Status();
    if (again && sent.ok()) {
      ++it;
      continue;
    }
    loop_.unwatch(it->second.timer);
    over.emplace_back(std::move(it->second.answered),
                      again ? trouble_of(sent) : lost_in_the_middle(address_, it->second.command));
    it = open_.erase(it);
  }
  for (const auto& [answered, trouble] : over) answered(tl::unexpected(trouble));
}

// A restarted daemon has this connection. The former daemon has read the questions before `next`: their
// answers are here by now, or never come.
void DaemonLink::on_adopted(const Json& event) {
  const auto field = event.find("next");
  const bool known = field != event.end() && field->is_number_unsigned();
  const std::uint32_t next = known ? field->get<std::uint32_t>() : 0;
  // A repeated job_create from the job's owner makes no second job: the daemon answers for the first.
  repeat(next == 0 ? serial_ + 1 : next, may_ask_again);
}

void DaemonLink::reconnect(const Status& why) {
  const SteadyClock clock;
  auto socket = ++connects_ <= kConnectsMax ? connect_to_daemon(address_, clock.now() + kConnectPause, clock)
                                            : Result<shm::Descriptor>(fail(why));
  if (!socket) return lose(why);
  socket_ = *std::move(socket);
  // A pause, so that a daemon that refuses us again and again does not keep the loop busy.
  watch_ = loop_.after(connects_ > 1 ? kConnectPause : Nanos(0), [this] { listen(); });
  // A job that belongs to the former connection ends with it. Without an open question ask one: the daemon
  // drops a silent connection.
  if (open_.empty()) return ask({{"command", "version"}}, [](const OrTrouble<DaemonAnswer>&) {});
  repeat(serial_ + 1, may_ask_again);
}

void DaemonLink::lose(const Status& why) {
  const auto on_lost = std::move(on_lost_);
  // An answer may destroy this link, so the members are moved out first.
  std::vector<Answered> waiting;
  for (auto& [serial, open] : open_) {
    loop_.unwatch(open.timer);
    waiting.push_back(std::move(open.answered));
  }
  open_.clear();
  // A refusal says more than an ended connection.
  const Trouble trouble =
      why.code() == Code::kDaemonLost ? Trouble{kUnreachable, "the daemon has gone away"} : trouble_of(why);
  for (const Answered& answered : waiting) answered(tl::unexpected(trouble));
  on_lost();
}

void DaemonLink::conclude(std::uint32_t serial, OrTrouble<DaemonAnswer> outcome) {
  const auto it = open_.find(serial);
  if (it == open_.end()) return;  // the answer came too late
  loop_.unwatch(it->second.timer);
  const Answered answered = std::move(it->second.answered);
  open_.erase(it);
  answered(std::move(outcome));
}

}  // namespace muster::cli
