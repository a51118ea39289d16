// muster-engine: started by musterd, one for each job; not for users. Descriptor 3 is the channel to the
// supervisor.
#include "api/base/log.hpp"
#include "daemon/engine/job/conductor.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/prctl.h>
#include <sys/socket.h>

namespace {

constexpr int kChannelDescriptor = 3;

void configure_log() {
  auto level = muster::log::Level::kWarning;
  auto format = muster::log::Format::kText;
  if (const char* word = std::getenv("MUSTER_LOG")) muster::log::parse_level(word, &level);
  if (const char* word = std::getenv("MUSTER_LOG_FORMAT")) muster::log::parse_format(word, &format);
  muster::log::configure(level, format);
}

// Whether descriptor 3 is a channel. It is none if a person tries the program out.
bool has_channel() {
  int kind = 0;
  socklen_t size = sizeof kind;
  return getsockopt(kChannelDescriptor, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_SEQPACKET;
}

int explain(std::FILE* to, int code) {
  std::fputs(
      "muster-engine runs one job; musterd starts it, with its channel as descriptor 3. It takes no "
      "options.\n"
      "See `musterd --help` and `muster --help`.\n",
      to);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_DUMPABLE, 0);  // as musterd
  if (argc > 1) return std::strcmp(argv[1], "--help") == 0 ? explain(stdout, 0) : explain(stderr, 2);
  if (!has_channel()) return explain(stderr, 2);
  configure_log();
  // A terminal's Ctrl-C goes to the whole foreground group; the supervisor decides when a job ends.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // passing a file-size limit must be an error, also for memory files
  muster::SteadyClock clock;
  muster::engine::Conductor conductor(muster::shm::Descriptor(kChannelDescriptor), clock);
  return conductor.run();
}
