// An engine of one rank, driven by hand under callgrind, which counts the instructions of its turns. The rank
// has so many lanes (argument 1), and starts a kernel on its last one over and over. Callgrind writes its
// count to the file of argument 2, and the number of starts goes to stdout.
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/manual_clock.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <muster/kernels.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

namespace {

using namespace muster;

constexpr int kWarm = 20;
constexpr int kStarts = 200;

void run_under_callgrind(char** argv) {
  const std::string out = std::string("--callgrind-out-file=") + argv[2];
  execlp("valgrind", "valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
         "--toggle-collect=muster::engine::Engine::do_work()", out.c_str(), argv[0], argv[1], argv[2],
         nullptr);
  std::perror("valgrind");
  std::exit(1);
}

int count(std::uint32_t lanes) {
  muster::test::ManualClock clock;
  auto engine =
      engine::Engine::create(engine::test::small_job(1), clock, nullptr, engine::Engine::Pooling::kByHand);
  if (!engine) return std::fprintf(stderr, "%s\n", engine.error().text().c_str()), 1;
  auto attached = (*engine)->attach(Rank(0), 1);
  if (!attached) return std::fprintf(stderr, "%s\n", attached.error().text().c_str()), 1;
  engine::test::RingClient client(*attached->session);
  muster_lane lane = MUSTER_LANE_COPY;
  while (lane + 1 < lanes) {
    const auto opened = (*engine)->lanes().open(*attached->session, MUSTER_LANE_COPY, std::to_string(lane));
    if (!opened) return std::fprintf(stderr, "%s\n", opened.error().text().c_str()), 1;
    lane = *opened;
  }
  const std::uint64_t buffer = client.buffer(**engine, 4096);
  const auto plan =
      (*engine)->plans().kernel(client.session(), muster_fill(muster_view1(buffer, 0, MUSTER_F32, 4), 1.0));
  if (!plan) return std::fprintf(stderr, "%s\n", plan.error().text().c_str()), 1;
  for (int i = 0; i < kWarm + kStarts; ++i) {
    if (i == kWarm) CALLGRIND_ZERO_STATS;
    client.start(plan->bits, lane);
    while (client.latest(lane) == Code::kPending) (*engine)->run_once();
  }
  std::printf("%d\n", kStarts);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (!RUNNING_ON_VALGRIND) run_under_callgrind(argv);
  return count(static_cast<std::uint32_t>(std::stoul(argv[1])));
}
