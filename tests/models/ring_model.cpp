// The shared-memory protocols under the C++ memory model: ring.hpp, wake.hpp and revision.hpp, the very
// sources of the product, on Relacy's simulated memory. Loads may return old values, threads may be cut
// anywhere, and a thread that sleeps for ever is an error.
//
//   ring_model SUITE holds|fails [full]
//
// `holds` passes if no schedule breaks the suite, `fails` if one does: the planted bugs must be found. With
// `full` all schedules within the scheduler's fairness are tried, else a fixed number of pseudo-random ones.
// The ranges are small (two threads, a ring of two slots, three commands): no claim is made beyond them.
#include "api/shm/revision.hpp"
#include "api/shm/ring.hpp"
#include "api/shm/wake.hpp"
// After the headers under test, whose words it redefines.
#include "tests/models/relacy_atomics.hpp"

#include <array>
#include <cstring>
#include <string_view>

namespace muster::models {
namespace {

// A command small enough for an exhaustive search.
struct Record {
  std::uint64_t sequence = 0;
  std::uint64_t payload = 0;
};
constexpr std::array<std::uint64_t, 2> slot_words(const Record& record) {
  return {record.sequence, record.payload};
}
constexpr std::uint32_t kCapacity = 2;
constexpr std::uint64_t kCommands = 3;

enum class Look { kAgain, kNever };  // whether the engine looks for work once more before it sleeps

// One client pushes kCommands, waiting for room; one engine drains, and sleeps whenever it finds nothing. A
// command that is lost, doubled or torn is an assertion, a lost wake is a deadlock.
template<class Orders, Look look>
struct Ring : rl::test_suite<Ring<Orders, look>, 2> {
  using Policy = RelacyAtomics<Orders>;
  rl::atomic<std::uint64_t> tail, head, slots[kCapacity * 2];
  rl::atomic<std::uint32_t> engine_asleep;
  Doorbell doorbell;

  void before() {
    clear(&tail);
    clear(&head);
    clear(&engine_asleep);
    for (auto& word : slots) clear(&word);
    doorbell.reset();
  }
  void thread(unsigned index) { index == 0 ? client() : engine(); }

  void client() {
    shm::RingWriter<Policy, Record> writer({&tail, slots, &head, &engine_asleep}, kCapacity);
    for (std::uint64_t i = 0; i < kCommands; ++i) {
      Code code = Code::kBusy;
      while ((code = writer.push({.payload = 100 + i})) == Code::kBusy) rl::yield(1, $);
      RL_ASSERT(code == Code::kOk);
      if (writer.doorbell_due()) doorbell.ring();
    }
  }

  void engine() {
    shm::RingReader<Policy, Record> reader({&tail, slots, &head, &engine_asleep}, kCapacity);
    std::uint64_t next = 0;
    while (next < kCommands) {
      Record batch[kCapacity];
      const auto taken = reader.drain(batch);
      RL_ASSERT(taken.has_value());
      for (std::size_t i = 0; i < *taken; ++i, ++next) {
        RL_ASSERT(batch[i].sequence == next + 1);
        RL_ASSERT(batch[i].payload == 100 + next);
      }
      if (*taken == 0) sleep(reader);
    }
  }

  void sleep(shm::RingReader<Policy, Record>& reader) {
    if (look == Look::kAgain) {
      if (!reader.try_sleep()) return;
    } else {
      shm::Published<std::uint32_t, Policy>(&engine_asleep).store_ordered(++nap);
    }
    doorbell.wait();
    reader.awake();
  }
  std::uint32_t nap = 0;
};

// An engine completes two points and wakes; a client sleeps for each. Without the timeout that the product
// adds.
template<class Orders, Look look>
struct Wake : rl::test_suite<Wake<Orders, look>, 2> {
  using Policy = RelacyAtomics<Orders>;
  rl::atomic<std::uint64_t> reached;
  rl::atomic<std::uint32_t> wake, client_asleep;
  static constexpr std::uint64_t kPoints = 2;

  void before() {
    clear(&reached);
    clear(&wake);
    clear(&client_asleep);
  }
  void thread(unsigned index) { index == 0 ? engine() : client(); }

  void engine() {
    shm::Waker<Policy> waker({.wake = &wake, .client_asleep = &client_asleep});
    for (std::uint64_t value = 1; value <= kPoints; ++value) {
      shm::Published<std::uint64_t, Policy>(&reached).store_release(value);
      if (waker.raise()) futex_wake(&wake);
    }
  }

  void client() {
    shm::Sleeper<Policy> sleeper({.wake = &wake, .client_asleep = &client_asleep});
    const shm::Untrusted<std::uint64_t, Policy> verdict(&reached);
    for (std::uint64_t value = 1; value <= kPoints; ++value) {
      while (verdict.load_acquire() < value) {
        const std::uint32_t seen = sleeper.begin();
        if (look == Look::kNever || verdict.load_acquire() < value) futex_wait(&wake, seen);
        sleeper.end();
      }
    }
  }
};

// A writer changes two words twice under a revision; a reader that finds it unchanged must have a pair.
template<class Orders>
struct Revision : rl::test_suite<Revision<Orders>, 2> {
  using Policy = RelacyAtomics<Orders>;
  rl::atomic<std::uint64_t> revision, first, second;

  void before() {
    clear(&revision);
    clear(&first);
    clear(&second);
  }
  void thread(unsigned index) {
    if (index == 0) {
      shm::RevisionWriter<Policy> writer;
      for (std::uint64_t value = 1; value <= 2; ++value) {
        writer.begin(&revision);
        shm::Published<std::uint64_t, Policy>(&first).store_release(value);
        shm::Published<std::uint64_t, Policy>(&second).store_release(value);
        writer.end(&revision);
      }
      return;
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      const shm::RevisionReader<Policy> reader(&revision);
      if (!reader.stable()) continue;
      const std::uint64_t a = shm::Untrusted<std::uint64_t, Policy>(&first).load_acquire();
      const std::uint64_t b = shm::Untrusted<std::uint64_t, Policy>(&second).load_acquire();
      if (reader.unchanged()) RL_ASSERT(a == b);
    }
  }
};

struct Row {
  const char* name;
  bool (*run)(rl::test_params&);
};
template<class Suite>
bool run(rl::test_params& params) {
  return rl::simulate<Suite>(params);
}
constexpr Row kRows[] = {
    {"ring", run<Ring<Exact, Look::kAgain>>},
    {"ring_without_seq_cst", run<Ring<WithoutSeqCst, Look::kAgain>>},
    {"ring_relaxed_publication", run<Ring<Relaxed, Look::kAgain>>},
    {"ring_without_second_look", run<Ring<Exact, Look::kNever>>},
    {"wake", run<Wake<Exact, Look::kAgain>>},
    {"wake_without_seq_cst", run<Wake<WithoutSeqCst, Look::kAgain>>},
    {"wake_without_second_look", run<Wake<Exact, Look::kNever>>},
    {"revision", run<Revision<Exact>>},
    {"revision_relaxed", run<Revision<Relaxed>>},
};

}  // namespace
}  // namespace muster::models

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: ring_model SUITE holds|fails random|bound|full\n");
    return 2;
  }
  const bool wanted = std::strcmp(argv[2], "holds") == 0;
  rl::test_params params;
  params.iteration_count = 300000;  // of the random search; the others end by themselves
  params.context_bound = 4;
  params.execution_depth_limit = 5000;
  params.progress_stream = &std::cerr;
  params.progress_output_period = 60;
  const std::string_view search = argv[3];
  params.search_type = search == "full"    ? rl::sched_full
                       : search == "bound" ? rl::sched_bound
                                           : rl::sched_random;
  for (const auto& row : muster::models::kRows) {
    if (std::strcmp(row.name, argv[1]) != 0) continue;
    const bool held = row.run(params);
    std::cout << row.name << (held ? " holds" : " fails") << ": " << rl::test_result_str(params.test_result)
              << " at iteration " << params.stop_iteration << std::endl;
    return held == wanted ? 0 : 1;
  }
  std::fprintf(stderr, "no suite \"%s\"\n", argv[1]);
  return 2;
}
