#include "api/client/checkpoint/box_writer.hpp"

#include "api/base/checksum.hpp"
#include "api/base/fault_point.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::client {

struct BoxWriter::Progress {
  enum Stage : std::int32_t { kWriting = 0, kFailedToWrite = 1, kFailedToSync = 2, kOrphaned = 3, kDone = 4 };
  std::atomic<std::int32_t> stage{kWriting};
  std::int32_t error = 0;
};

namespace {

constexpr std::uint64_t kLine = 64;

constexpr std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

// ---- in the child: no heap, no lock, nothing of the session ------------------------------------

struct ChildWork {
  const std::byte* memory;
  std::span<const BoxWriter::Chunk> chunks;
  BoxWriter::Progress* progress;
  Hash128* sums;
  int file;
  pid_t parent;
  unsigned descriptors;  // as many as the process may have
};

// The child would keep sockets and pipes open after its parent has died.
void close_others(const ChildWork& work) noexcept {
  const auto kept = static_cast<unsigned>(work.file);
  const bool below = kept == 0 || syscall(SYS_close_range, 0U, kept - 1, 0U) == 0;
  const bool above = syscall(SYS_close_range, kept + 1, ~0U, 0U) == 0;
  if (below && above) return;
  for (unsigned i = 0; i < work.descriptors; ++i)
    if (i != kept) close(static_cast<int>(i));
}

[[noreturn]] void end_child(BoxWriter::Progress& progress, BoxWriter::Progress::Stage stage,
                            int error) noexcept {
  progress.error = error;
  progress.stage.store(stage, std::memory_order_release);
  _exit(stage == BoxWriter::Progress::kDone ? 0 : 1);
}

int write_all(int file, const std::byte* from, std::uint64_t bytes) noexcept {
  while (bytes > 0) {
    const ssize_t put = write(file, from, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    from += put;
    bytes -= static_cast<std::uint64_t>(put);
  }
  return 0;
}

[[noreturn]] void run_child(const ChildWork& work) noexcept {
  using Progress = BoxWriter::Progress;
  close_others(work);
  for (std::size_t i = 0; i < work.chunks.size(); ++i) {
    MUSTER_FAULT_POINT("checkpoint.chunk_due");
    if (getppid() != work.parent) end_child(*work.progress, Progress::kOrphaned, 0);
    const BoxWriter::Chunk& chunk = work.chunks[i];
    work.sums[i] = checkpoint::checksum(std::span(work.memory + chunk.at, chunk.bytes));
    const int error = write_all(work.file, work.memory + chunk.at, chunk.bytes);
    if (error != 0) end_child(*work.progress, Progress::kFailedToWrite, error);
  }
  MUSTER_FAULT_POINT("checkpoint.sync_due");
  if (fsync(work.file) != 0) end_child(*work.progress, Progress::kFailedToSync, errno);
  if (close(work.file) != 0) end_child(*work.progress, Progress::kFailedToWrite, errno);
  end_child(*work.progress, Progress::kDone, 0);
}

// ---- in the parent ------------------------------------------------------------------------------

// Runs `body`, which returns a number, with all signals blocked.
template<class F>
auto quietly(F&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto result = body();
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return result;
}

// A descriptor of the child. It waits until there is one, so that its number is not another process's.
int fork_child(const ChildWork& work) {
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char byte = 0;
    if (read(gate[0], &byte, 1) != 1) _exit(1);
    run_child(work);
  }
  const int process = child < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, child, 0U));
  int error = errno;
  if (process >= 0 && write(gate[1], "", 1) != 1) error = errno;
  close(gate[0]);
  close(gate[1]);
  if (child > 0 && process < 0) (void)waitpid(child, nullptr, 0);  // it ends, because the gate is closed
  errno = error;
  return process;
}

// P_PIDFD, which older headers do not have.
constexpr auto kByDescriptor = static_cast<idtype_t>(3);

// Waits for the child's end; true: it has ended, and is reaped if that is left to us. A trainer may reap all
// its children, and another process may have the child's number then. So the child is known by its
// descriptor.
bool reap(int process, std::chrono::milliseconds patience) {
  pollfd watched{process, POLLIN, 0};
  (void)poll(&watched, 1, static_cast<int>(patience.count()));
  siginfo_t ended{};
  const int code = waitid(kByDescriptor, static_cast<id_t>(process), &ended, WEXITED | WNOHANG);
  return code == 0 ? ended.si_pid != 0 : errno == ECHILD;
}

}  // namespace

BoxWriter::BoxWriter(BoxWriter&& other) noexcept {
  *this = std::move(other);
}

BoxWriter& BoxWriter::operator=(BoxWriter&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(chunks_, other.chunks_);
  std::swap(path_, other.path_);
  std::swap(process_, other.process_);
  return *this;
}

BoxWriter::~BoxWriter() {
  release();
}

void BoxWriter::release() noexcept {
  if (process_ >= 0) {
    (void)syscall(SYS_pidfd_send_signal, process_, SIGKILL, nullptr, 0U);
    while (!reap(process_, std::chrono::seconds(1))) {
    }
    close(process_);
  }
  process_ = -1;
  if (memory_ != nullptr) munmap(memory_, mapped_);
  memory_ = nullptr;
  mapped_ = 0;
}

std::uint64_t BoxWriter::needed(std::uint64_t bytes, std::size_t chunks) {
  return rounded(bytes) + rounded(sizeof(Progress)) + chunks * sizeof(Hash128);
}

Result<BoxWriter> BoxWriter::make(std::uint64_t bytes, std::vector<Chunk> chunks, BoxWriter spare) {
  BoxWriter writer;
  if (spare.process_ < 0 && spare.mapped_ >= needed(bytes, chunks.size())) {
    writer = std::move(spare);
  } else {
    spare.release();  // before there are two
    MUSTER_RETURN_IF_ERROR(writer.map(needed(bytes, chunks.size())));
  }
  writer.bytes_ = bytes;
  writer.chunks_ = std::move(chunks);
  new (writer.memory_ + rounded(bytes)) Progress();
  return writer;
}

Status BoxWriter::map(std::uint64_t bytes) {
  const auto refused = [&](int error) {
    return failure(Code::kNoResource, "a copy of {} bytes for the checkpoint: {}; free memory, or save less",
                   bytes, std::strerror(error));
  };
  const int file = memfd_create("muster-checkpoint", MFD_CLOEXEC);
  if (file < 0) return refused(errno);
  // Kernels end it where a signal comes, as those of a trainer's timer do.
  const int error = quietly([&] { return posix_fallocate(file, 0, static_cast<off_t>(bytes)); });
  void* memory = error != 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int why = error != 0 ? error : errno;
  close(file);
  if (memory == MAP_FAILED) return refused(why);
  memory_ = static_cast<std::byte*>(memory);
  mapped_ = bytes;
  return {};
}

Status BoxWriter::start(const std::string& path) {
  path_ = path;
  MUSTER_ASSIGN_OR_RETURN(store::DiskFile file, store::DiskFile::create(path));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::byte* behind = memory_ + rounded(bytes_);
  const ChildWork work{memory_,
                       chunks_,
                       std::launder(reinterpret_cast<Progress*>(behind)),
                       reinterpret_cast<Hash128*>(behind + rounded(sizeof(Progress))),
                       file.number(),
                       getpid(),
                       static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 1 << 20))};
  // No handler of the trainer's may run in the child, so it begins with all signals blocked.
  process_ = quietly([&] { return fork_child(work); });
  if (process_ >= 0) return {};
  return failure(Code::kNoResource, "cannot start a process that writes {}: {}", path, std::strerror(errno));
}

Result<bool> BoxWriter::finished(std::chrono::milliseconds patience) {
  if (process_ >= 0) {
    if (!reap(process_, patience)) return false;
    close(std::exchange(process_, -1));
  }
  if (!chunks_.empty()) MUSTER_RETURN_IF_ERROR(outcome());
  return true;
}

Status BoxWriter::outcome() const {
  const auto* progress = std::launder(reinterpret_cast<const Progress*>(memory_ + rounded(bytes_)));
  switch (progress->stage.load(std::memory_order_acquire)) {
    case Progress::kDone:
      return {};
    case Progress::kFailedToWrite:
      return store::trouble("write", path_, progress->error);
    case Progress::kFailedToSync:
      return store::trouble("sync", path_, progress->error);
    default:
      return failure(Code::kNoResource, "the process that writes {} was ended before it was done", path_);
  }
}

std::span<const Hash128> BoxWriter::sums() const {
  if (chunks_.empty()) return {};
  const std::byte* behind = memory_ + rounded(bytes_) + rounded(sizeof(Progress));
  return {reinterpret_cast<const Hash128*>(behind), chunks_.size()};
}

}  // namespace muster::client
