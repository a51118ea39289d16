// Launches between nodes under callgrind, which counts the instructions of all nodes, but for those of the
// network. Nodes are in one process, on a network in memory.
//
//   counted_launches OPERATION NODES MEMBERS OUT
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/launch_bench.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>
#include <valgrind/callgrind.h>

namespace {

using namespace muster::transport::test;

constexpr int kWarm = 20;
constexpr int kLaunches = 100;

void run_under_callgrind(char** argv) {
  const std::string out = std::string("--callgrind-out-file=") + argv[4];
  execlp("valgrind", "valgrind", "-q", "--tool=callgrind", "--collect-atstart=no", out.c_str(), argv[0],
         argv[1], argv[2], argv[3], argv[4], nullptr);
  std::perror("valgrind");
  std::exit(1);
}

void toggle() {
  CALLGRIND_TOGGLE_COLLECT;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  if (!RUNNING_ON_VALGRIND) run_under_callgrind(argv);
  bool counts = false;
  const LibraryCalls calls{[&] {
                             if (counts) toggle();
                           },
                           [&] {
                             if (counts) toggle();
                           }};
  LaunchBench bench(static_cast<std::uint32_t>(std::stoul(argv[2])),
                    static_cast<std::uint32_t>(std::stoul(argv[3])), calls);
  bench.make(static_cast<muster_op>(std::stoul(argv[1])));
  for (int i = 0; i < kWarm; ++i) bench.launch();
  for (int i = 0; i < kLaunches; ++i) {
    counts = true;
    toggle();
    bench.launch();
    toggle();
    counts = false;
  }
  std::printf("%d\n", kLaunches);
  return 0;
}
