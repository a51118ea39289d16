#include "api/shm/segment.hpp"

#include "api/shm/futex.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::shm {
namespace {

using Access = Mapping::Access;

using ::testing::HasSubstr;

const Headroom kPlenty{};

// Runs `body` in another process and gives its exit status: 0 for "all well", else the number of the check
// that failed.
int in_another_process(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Memory, IsZeroedReservedAndSealedInItsSize) {
  const auto memory = create_memory("test", 10000, kPlenty);
  ASSERT_TRUE(memory) << memory.error().text();
  EXPECT_EQ(fcntl(memory->get(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(fcntl(memory->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(ftruncate(memory->get(), 4096), -1);
  EXPECT_EQ(errno, EPERM) << "a shrink would be a SIGBUS for whoever has it mapped";
  EXPECT_EQ(ftruncate(memory->get(), 20000), -1);
  const auto mapping = Mapping::map(*memory, 10000, Access::kReadWrite);
  ASSERT_TRUE(mapping);
  for (std::size_t i = 0; i < mapping->size(); ++i) ASSERT_EQ(mapping->data()[i], std::byte{0});
}

TEST(Memory, MovesAndUnmapsOnce) {
  const auto memory = create_memory("test", 4096, kPlenty);
  ASSERT_TRUE(memory);
  Mapping a = *Mapping::map(*memory, 4096, Access::kReadWrite);
  a.writable()[7] = std::byte{42};
  Mapping b = *Mapping::map(*memory, 4096, Access::kRead);
  EXPECT_EQ(b.data()[7], std::byte{42});
  const std::byte* address = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), address);
  EXPECT_FALSE(a.valid());  // NOLINT: what a move leaves behind is part of the promise
  EXPECT_DEATH((void)Mapping::map(*memory, 4096, Access::kRead)->writable(), "assertion failed");
}

TEST(Memory, RefusesSizesThatAreNone) {
  EXPECT_EQ(create_memory("test", 0, kPlenty).error().code(), Code::kBadArgument);
  EXPECT_EQ(create_memory("test", ~std::uint64_t{0}, kPlenty).error().code(), Code::kBadArgument);
}

TEST(Memory, NamesNeedLimitAndRemedyWhenThereIsTooLittle) {
  const auto memory = create_memory("arena", 5000, {.bytes = 4096, .limit = "cgroup x", .remedy = "raise x"});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), Code::kNoResource);
  EXPECT_EQ(memory.error().message(), "memory \"arena\" needs 5000 bytes, cgroup x leaves 4096; raise x");
}

// Goal:   a limit of the process is an answer; without the look ahead the kernel would kill with SIGXFSZ.
// Method: another process lowers its own RLIMIT_FSIZE and asks for more.
TEST(Memory, RefusesBeforeTheKernelKills) {
  const int result = in_another_process([] {
    const rlimit limit{.rlim_cur = 65536, .rlim_max = 65536};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const Headroom headroom = memory_headroom();
    if (headroom.bytes != 65536) return 2;
    const auto refused = create_memory("test", 65537, headroom);
    if (refused || refused.error().code() != Code::kNoResource) return 3;
    if (refused.error().message().find("RLIMIT_FSIZE") == std::string::npos) return 4;
    if (SubmissionView::create(headroom)) return 5;  // 68 KiB
    return create_memory("test", 65536, headroom) ? 0 : 6;
  });
  EXPECT_EQ(result, 0);
}

TEST(Memory, NamesTheLimitsOfAMapping) {
  const auto memory = create_memory("test", 4096, kPlenty);
  const auto refused = Mapping::map(*memory, std::size_t{1} << 60, Access::kRead);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNoResource);
  EXPECT_THAT(refused.error().message(), HasSubstr("ulimit -v"));
  EXPECT_THAT(refused.error().message(), HasSubstr("vm.max_map_count"));
}

// Goal:   address space is given at once and memory when it is asked for, within a size that is sealed.
TEST(Memory, GrowsWithinItsAddressSpace) {
  constexpr std::uint64_t kBytes = 1 << 30;
  const auto memory =
      create_growing_memory("test", kBytes, 4096, {.bytes = 8192, .limit = "x", .remedy = "y"});
  ASSERT_TRUE(memory) << memory.error().message();
  EXPECT_TRUE(check_memory(*memory, kBytes).ok());
  const auto blocks = [&] {
    struct stat facts {};
    EXPECT_EQ(fstat(memory->get(), &facts), 0);
    return facts.st_blocks * 512;
  };
  EXPECT_EQ(blocks(), 4096);
  EXPECT_EQ(reserve_memory(*memory, 4096, 8192, {.bytes = 4096, .limit = "x", .remedy = "y"}).code(),
            Code::kNoResource);
  EXPECT_TRUE(reserve_memory(*memory, 4096, 8192, kPlenty).ok());
  EXPECT_EQ(blocks(), 3 * 4096);
}

TEST(Memory, SaysWhenDescriptorsAreUsedUp) {
  const int result = in_another_process([] {
    const rlimit limit{.rlim_cur = 3, .rlim_max = 3};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    const auto refused = create_memory("test", 4096, kPlenty);
    if (refused || refused.error().code() != Code::kNoResource) return 2;
    return refused.error().message().find("RLIMIT_NOFILE") == std::string::npos ? 3 : 0;
  });
  EXPECT_EQ(result, 0);
}

TEST(Memory, SaysWhenAMappingFails) {
  const int result = in_another_process([] {
    const auto memory = create_memory("test", 4096, kPlenty);
    const rlimit limit{.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    const auto refused = Mapping::map(*memory, 4096, Access::kRead);
    return !refused && refused.error().code() == Code::kNoResource ? 0 : 2;
  });
  EXPECT_EQ(result, 0);
}

TEST(ReceivedMemory, IsTakenOnlyIfItCannotShrinkAndHasItsSize) {
  const auto good = create_memory("test", 8192, kPlenty);
  ASSERT_TRUE(good);
  EXPECT_TRUE(check_memory(*good, 8192).ok());
  EXPECT_EQ(check_memory(*good, 4096).code(), Code::kProtocol);
  EXPECT_EQ(check_memory(*good, 12288).code(), Code::kProtocol);

  const Descriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(check_memory(unsealed, 8192).code(), Code::kProtocol);
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(check_memory(unsealed, 8192).code(), Code::kProtocol) << "the wrong seal";
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(check_memory(unsealed, 8192).ok());

  const Descriptor device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(check_memory(device, 8192).code(), Code::kProtocol);
  EXPECT_EQ(check_memory(Descriptor(), 8192).code(), Code::kProtocol);
}

// ---- the two segments of a session

struct Engine {
  SubmissionView submission = *SubmissionView::create(kPlenty);
  CompletionView completion = *CompletionView::create(17, 99, kPlenty);
};

Descriptor copy_of(const Descriptor& memory) {
  return Descriptor(dup(memory.get()));
}

TEST(Segments, CarryACommandAndItsVerdict) {
  const Engine engine;
  auto submission = SubmissionView::attach(copy_of(engine.submission.descriptor()));
  auto completion = CompletionView::attach(copy_of(engine.completion.descriptor()));
  ASSERT_TRUE(submission && completion);
  EXPECT_EQ(completion->page()->header.session, 17u);
  EXPECT_EQ(completion->page()->header.epoch, 99u);

  RingWriter<> writer = ring_writer(*submission, *completion);
  RingReader<> reader = ring_reader(engine.submission, engine.completion);
  Command command;
  command.kind = Command::Kind::kStart;
  command.plan = 1234;
  for (std::uint32_t i = 0; i < kRingCapacity; ++i) ASSERT_EQ(writer.push(command), Code::kOk);
  EXPECT_EQ(writer.push(command), Code::kBusy);
  std::array<Command, 64> batch;
  std::size_t taken = 0;
  while (const std::size_t n = reader.drain(batch).value()) taken += n;
  EXPECT_EQ(taken, kRingCapacity);
  EXPECT_EQ(batch[63].plan, 1234u);
  EXPECT_EQ(writer.push(command), Code::kOk);

  CompletionWriter verdicts(engine.completion.writable_page(), engine.submission.header());
  CompletionReader waits(completion->page(), submission->writable_header());
  verdicts.publish(MUSTER_LANE_COMPUTE, 1);
  EXPECT_EQ(waits.test(make_point(MUSTER_LANE_COMPUTE, 1)), Code::kOk);
}

TEST(Segments, AreNotConfusedWithEachOther) {
  const Engine engine;
  EXPECT_EQ(SubmissionView::attach(copy_of(engine.completion.descriptor())).error().code(), Code::kProtocol);
  EXPECT_EQ(CompletionView::attach(copy_of(engine.submission.descriptor())).error().code(), Code::kProtocol);
}

TEST(Segments, OfAnotherVersionAreRefusedByField) {
  EXPECT_TRUE(check_header(completion_header(1, 2)).ok());
  const auto refused = [](const char* field, auto change) {
    CompletionHeader header = completion_header(1, 2);
    change(header);
    const Status status = check_header(header);
    EXPECT_EQ(status.code(), Code::kVersion) << field;
    EXPECT_THAT(status.message(), testing::HasSubstr(field));
  };
  refused("completion page", [](CompletionHeader& h) { h.magic = 0; });
  refused("ABI version", [](CompletionHeader& h) { ++h.abi_version; });
  refused("header size", [](CompletionHeader& h) { h.header_bytes = 0; });
  refused("completion segment", [](CompletionHeader& h) { h.completion_bytes = ~std::uint64_t{0}; });
  refused("submission segment", [](CompletionHeader& h) { h.submission_bytes -= 4096; });
  refused("ring capacity", [](CompletionHeader& h) { h.ring_capacity *= 2; });
  refused("timelines", [](CompletionHeader& h) { h.timelines = 0; });
  refused("counters", [](CompletionHeader& h) { h.counters = 65; });

  const auto zeroed = create_memory("test", kCompletionBytes, kPlenty);
  EXPECT_EQ(CompletionView::attach(copy_of(*zeroed)).error().code(), Code::kVersion);
}

// Goal:   no client can write the page that it is judged by.
// Method: another process holds the descriptor and tries every door to a writable mapping.
TEST(Segments, CompletionPageCannotBeWrittenByAClient) {
  const Engine engine;
  const int result = in_another_process([&] {
    const int fd = engine.completion.descriptor().get();
    if (mmap(nullptr, kCompletionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) return 1;
    if (errno != EPERM) return 2;
    if (Mapping::map(engine.completion.descriptor(), kCompletionBytes, Access::kReadWrite)) return 3;
    void* readable = mmap(nullptr, kCompletionBytes, PROT_READ, MAP_SHARED, fd, 0);
    if (readable == MAP_FAILED) return 4;
    if (mprotect(readable, kCompletionBytes, PROT_READ | PROT_WRITE) == 0) return 5;
    const std::string again = "/proc/self/fd/" + std::to_string(fd);
    const int reopened = open(again.c_str(), O_RDWR);
    if (reopened >= 0) {  // allowed, and no use
      if (mmap(nullptr, kCompletionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reopened, 0) != MAP_FAILED)
        return 6;
      if (pwrite(reopened, "x", 1, 0) != -1) return 7;
    }
    if (pwrite(fd, "x", 1, 0) != -1) return 8;
    if (ftruncate(fd, 0) != -1) return 9;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != -1) return 10;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != -1) return 11;
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(engine.completion.page()->header.magic, kMagicCompletion);
  CompletionWriter(engine.completion.writable_page(), engine.submission.header())
      .publish(0, 1);  // the engine still can
  EXPECT_EQ(engine.completion.page()->timelines[0].reached, 1u);
}

TEST(Segments, SubmissionSegmentCannotBeTakenAway) {
  const Engine engine;
  const int result = in_another_process([&] {
    const int fd = engine.submission.descriptor().get();
    if (ftruncate(fd, 0) != -1 || errno != EPERM) return 1;
    // Punching a hole is possible; the engine then reads zeros, which are no published slot.
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSubmissionBytes) != 0) return 2;
    return 0;
  });
  EXPECT_EQ(result, 0);
  RingReader<> reader = ring_reader(engine.submission, engine.completion);
  std::array<Command, 4> batch;
  EXPECT_EQ(reader.drain(batch).value(), 0u);
}

// Goal:   a client sleeps on a page that it can only read, and an engine in another process wakes it.
// Method: the child maps like a client and waits long; the parent publishes once the child's flag says that
//         it sleeps.
TEST(Segments, AClientSleepsOnAReadOnlyPage) {
  const Engine engine;
  const pid_t child = fork();
  if (child == 0) {
    auto submission = SubmissionView::attach(copy_of(engine.submission.descriptor()));
    auto completion = CompletionView::attach(copy_of(engine.completion.descriptor()));
    if (!submission || !completion) _exit(1);
    // The kernel takes a read-only page: a changed word is answered at once, not with an error.
    errno = 0;
    futex_wait(&completion->page()->wake, 12345, std::chrono::hours(1));
    if (errno != EAGAIN) _exit(2);
    CompletionReader reader(completion->page(), submission->writable_header());
    const SteadyClock clock;
    const Code code = reader.wait(make_point(0, 1), 0, clock.now() + std::chrono::minutes(2), clock);
    _exit(code == Code::kOk ? 0 : 3);
  }
  CompletionWriter writer(engine.completion.writable_page(), engine.submission.header());
  const Untrusted<std::uint32_t> asleep(&engine.submission.header()->client_asleep);
  int status = 0;
  while (asleep.load_ordered() == 0 && waitpid(child, &status, WNOHANG) == 0) sched_yield();
  writer.publish(0, 1);
  writer.wake();
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace muster::shm
