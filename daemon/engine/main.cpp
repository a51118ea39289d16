// muster-engine: started by musterd, one per job; not for users. Descriptor 3 is the channel to the
// supervisor.
#include "api/base/log.hpp"
#include "daemon/engine/conductor.hpp"

#include <csignal>
#include <cstdlib>

#include <sys/prctl.h>

namespace {

constexpr int kChannelDescriptor = 3;

void configure_log() {
  auto level = muster::log::Level::kWarning;
  auto format = muster::log::Format::kText;
  if (const char* word = std::getenv("MUSTER_LOG")) muster::log::parse_level(word, &level);
  if (const char* word = std::getenv("MUSTER_LOG_FORMAT")) muster::log::parse_format(word, &format);
  muster::log::configure(level, format);
}

}  // namespace

int main() {
  configure_log();
  // A terminal's Ctrl-C goes to the whole foreground group; the supervisor decides when a job ends.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_DUMPABLE, 0);
  muster::SteadyClock clock;
  muster::engine::Conductor conductor(muster::shm::Descriptor(kChannelDescriptor), clock);
  return conductor.run();
}
