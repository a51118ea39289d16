// Makes a job over several nodes as often as it is told, and prints how long each took in ms: from the
// command to the daemon's answer, when all groups of the mesh are there on all nodes.
//
//   set_up_job SOCKET MESH TIMES NODE RANKS [NODE RANKS…]
#include "api/shm/socket.hpp"
#include "daemon/control/packet.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using muster::control::Json;

constexpr auto kPatience = std::chrono::seconds(60);
const muster::SteadyClock kClock;

muster::Result<Json> ask(const muster::shm::Descriptor& socket, const Json& command) {
  MUSTER_RETURN_IF_ERROR(
      muster::control::send_packet(socket, muster::shm::MessageKind::kCommand, 1, command));
  MUSTER_ASSIGN_OR_RETURN(const auto answer,
                          muster::control::receive_packet(socket, kClock.now() + kPatience, kClock));
  return muster::control::result_of(answer);
}

// Milliseconds. The job ends with the connection.
muster::Result<double> make_once(const char* socket_path, const Json& command) {
  MUSTER_ASSIGN_OR_RETURN(const auto socket,
                          muster::shm::connect_to(socket_path, kClock.now() + kPatience, kClock));
  const auto end = kClock.now() + kPatience;
  while (true) {
    const auto begin = kClock.now();
    const auto made = ask(socket, command);
    if (made) return std::chrono::duration<double, std::milli>(kClock.now() - begin).count();
    // The one before still ends.
    if (made.error().code() != muster::Code::kBusy || kClock.now() > end) return fail(made.error());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6 || argc % 2 != 0) {
    std::fprintf(stderr, "set_up_job SOCKET MESH TIMES NODE RANKS [NODE RANKS...]\n");
    return 2;
  }
  Json nodes = Json::array();
  int world = 0;
  for (int i = 4; i < argc; i += 2) {
    nodes.push_back({{"node", argv[i]}, {"ranks", std::atoi(argv[i + 1])}});
    world += std::atoi(argv[i + 1]);
  }
  const int times = std::atoi(argv[3]);
  std::printf("[");
  for (int i = 0; i < times; ++i) {
    const Json command{
        {"command", "job_create"},
        {"spec",
         {{"name", "set-up-" + std::to_string(i)}, {"world", world}, {"mesh", argv[2]}, {"claim", "owner"}}},
        {"nodes", nodes}};
    const auto took = make_once(argv[1], command);
    if (!took) {
      std::fprintf(stderr, "%s\n", took.error().text().c_str());
      return 1;
    }
    std::printf("%s%.3f", i == 0 ? "" : ", ", *took);
  }
  std::printf("]\n");
  return 0;
}
