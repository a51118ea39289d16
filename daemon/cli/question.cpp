#include "daemon/cli/question.hpp"

#include "api/base/bootstrap.hpp"
#include "api/base/words.hpp"
#include "api/shm/endpoint.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>

#include <fmt/ranges.h>
#include <unistd.h>

namespace muster::cli {

Trouble unreachable(const Status& status) {
  if (status.code() == Code::kDaemonLost || status.code() == Code::kDenied)
    return {kUnreachable, status.message(), status.code()};
  return trouble_of(status);
}

Json DaemonAddress::with_key(Json command) const {
  if (!job_key.empty()) command["job_key"] = job_key;
  return command;
}

std::string DaemonAddress::option() const {
  const auto usual = bootstrap::process_environment()(bootstrap::kEndpointVariable);
  if (endpoint.empty() || !usual || usual->empty()) return shm::endpoint_option(endpoint);
  return " --endpoint " + shell_word(endpoint);
}

Result<shm::Descriptor> connect_to_daemon(const DaemonAddress& address, Instant deadline,
                                          const Clock& clock) {
  const std::string control = shm::control_socket(shm::directory_of(address.endpoint));
  if (access(control.c_str(), W_OK) == 0)
    if (auto socket = shm::connect_to(control, deadline, clock)) return socket;
  return shm::connect_to(shm::ranks_socket_at(address.endpoint), deadline, clock);
}

OrTrouble<DaemonAnswer> answer_of(Result<control::Packet> packet) {
  if (!packet) return troubled(packet.error());
  auto result = control::result_of(*packet);
  if (!result) return troubled(result.error());
  return DaemonAnswer{*std::move(result), std::move(packet->descriptors)};
}

bool may_repeat(const Json& command) {
  // A repeated "token" voids the former token, which nobody has received.
  static constexpr std::array<std::string_view, 13> kRepeatable{
      "costs", "version",  "status",      "jobs",   "groups",     "hang",   "flight",
      "token", "counters", "trace_begin", "absent", "expect_all", "reports"};
  const auto name = command.find("command");
  return name != command.end() && name->is_string() &&
         std::find(kRepeatable.begin(), kRepeatable.end(), name->get_ref<const std::string&>()) !=
             kRepeatable.end();
}

Trouble lost_in_the_middle(const DaemonAddress& address, const Json& command) {
  return {kFailed, fmt::format("the daemon was restarted in the middle of '{}'; whether it was done is not "
                               "known: `muster status{}` and `muster jobs{}` show what is",
                               command.value("command", ""), address.option(), address.option())};
}

namespace {

// kDaemonLost: the connection ended without an answer. kWaitInterrupted: the user has ended the wait.
Result<control::Packet> ask_once(const shm::Descriptor& socket, const Json& command, Instant deadline,
                                 const Clock& clock, Attention* attention) {
  const Status sent = control::send_packet(socket, shm::MessageKind::kCommand, 1, command);
  // A daemon that has refused us may have left its reason in the socket.
  if (!sent.ok() && sent.code() != Code::kDaemonLost) return fail(sent);
  if (attention != nullptr && attention->wait(socket.get(), deadline, clock) == Attention::Came::kUserEnds)
    return fail(Code::kWaitInterrupted, "interrupted");
  return control::receive_packet(socket, deadline, clock);
}

// A stuck engine may be the cause: the daemon passes questions about a job on to it.
Trouble not_answered(const DaemonAddress& address, const Json& command) {
  const double seconds = std::chrono::duration<double>(address.timeout).count();
  std::string text =
      fmt::format("the daemon at {} did not answer within {:.1f} s; ", address.endpoint, seconds);
  if (command.contains("job"))
    text += fmt::format("`muster jobs{}` says whether it is the engine of the job that does not; ",
                        address.option());
  return {kTimedOut, text + "--timeout sets how long to wait"};
}

}  // namespace

OrTrouble<DaemonAnswer> ask(const DaemonAddress& address, const Json& command, Attention* attention) {
  const SteadyClock clock;
  const Instant deadline = clock.now() + address.timeout;
  for (int connects = 1;; ++connects) {
    const auto socket = connect_to_daemon(address, deadline, clock);
    if (!socket) return tl::unexpected(unreachable(socket.error()));
    auto packet = ask_once(*socket, address.with_key(command), deadline, clock, attention);
    if (attention != nullptr && !packet && packet.error().code() == Code::kWaitInterrupted)
      return tl::unexpected(Trouble{attention->exit_code(), "", Code::kWaitInterrupted});
    if (!packet && packet.error().code() == Code::kWaitTimeout)
      return tl::unexpected(not_answered(address, command));
    const bool replaced = !packet && packet.error().code() == Code::kDaemonLost;
    if (!replaced) return answer_of(std::move(packet));
    if (!may_repeat(command)) return tl::unexpected(lost_in_the_middle(address, command));
    if (connects == kConnectsMax || clock.now() >= deadline) return answer_of(std::move(packet));
    std::this_thread::sleep_for(kConnectPause);
  }
}

void tell(const DaemonAddress& address, const Json& command) {
  constexpr Nanos kPatience = std::chrono::milliseconds(100);  // the user wants this program to end
  const SteadyClock clock;
  const auto socket = connect_to_daemon(address, clock.now() + kPatience, clock);
  if (socket)
    static_cast<void>(
        control::send_packet(*socket, shm::MessageKind::kCommand, 1, address.with_key(command)));
}

std::vector<std::string> living_jobs(const Json& status) {
  std::vector<std::string> names;
  for (const Json& job : status.at("jobs"))
    if (job.at("state") != "ending") names.push_back(job.at("name"));
  return names;
}

OrTrouble<std::string> named_or_only_job(const DaemonAddress& address, const std::string& name) {
  if (!name.empty()) return name;
  const auto answer = ask(address, {{"command", "status"}});
  if (!answer) return tl::unexpected(answer.error());
  try {
    const std::vector<std::string> names = living_jobs(answer->result);
    if (names.size() == 1) return names.front();
    if (names.empty()) return tl::unexpected(Trouble{kNoObject, "there is no job"});
    return tl::unexpected(
        Trouble{kUsage, fmt::format("say which job with --job: {}", fmt::join(names, ", "))});
  } catch (const Json::exception& error) {  // a daemon of another version
    return tl::unexpected(not_as_expected(error));
  }
}

}  // namespace muster::cli
