#include "daemon/cli/ask/upgrade_command.hpp"

#include <filesystem>

namespace muster::cli {
namespace {

// Success has no answer: the connection ends with the program. A refusal has a reason.
OrTrouble<DaemonAnswer> send_upgrade(const DaemonAddress& address, const std::string& program) {
  const SteadyClock clock;
  const Instant deadline = clock.now() + address.timeout;
  const auto socket = connect_to_daemon(address, deadline, clock);
  if (!socket) return tl::unexpected(unreachable(socket.error()));
  const std::string path = program.empty() ? "" : std::filesystem::absolute(program).string();
  const Json command{{"command", "upgrade"}, {"program", path}};
  const Status sent = control::send_packet(*socket, shm::MessageKind::kCommand, 1, command);
  if (!sent.ok()) return troubled(sent);
  auto packet = control::receive_packet(*socket, deadline, clock);
  if (!packet && packet.error().code() == Code::kDaemonLost) return DaemonAnswer{};
  return answer_of(std::move(packet));
}

Json upgraded(const Json& before, const Json& after, Nanos took) {
  return {{"from", before.at("version")},
          {"version", after.at("version")},
          {"program", after.at("program")},
          {"pid", after.at("pid")},
          {"instance", after.at("instance")},
          {"took_ms", std::chrono::duration<double, std::milli>(took).count()}};
}

std::string upgraded_text(const Json& result) {
  return fmt::format("musterd {} has given way to {} ({}, process {}) in {:.0f} ms\n",
                     result.at("from").get<std::string>(), result.at("version").get<std::string>(),
                     result.at("program").get<std::string>(), result.at("pid").get<std::int64_t>(),
                     result.at("took_ms").get<double>());
}

}  // namespace

int run_upgrade(const DaemonAddress& address, const std::string& program, Output output) {
  const SteadyClock clock;
  const auto before = ask(address, {{"command", "version"}});
  if (!before) return complain(before.error());
  const Instant begin = clock.now();
  if (const auto refused = send_upgrade(address, program); !refused) return complain(refused.error());
  const auto after = ask(address, {{"command", "version"}});  // of the new daemon, once it listens
  if (!after) return complain(after.error());
  try {
    const Json result = upgraded(before->result, after->result, clock.now() - begin);
    if (result.at("instance") == before->result.at("instance"))
      return complain({kFailed, "the daemon ended the connection and did not give way; its log says why"});
    // A failed program that a service manager restarted counts from 1, without the kept jobs.
    if (result.at("instance").get<std::uint64_t>() < before->result.at("instance").get<std::uint64_t>())
      return complain(
          {kFailed, "the daemon gave way, but another one listens now, without its jobs; its log says why"});
    return output == Output::kJson ? print_json(result) : print_text(upgraded_text(result));
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain(not_as_expected(error));
  }
}

}  // namespace muster::cli
