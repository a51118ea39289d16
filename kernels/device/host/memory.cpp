#include "kernels/device/host/memory.hpp"

#include "api/base/system_call.hpp"
#include "api/shm/descriptor.hpp"
#include "api/shm/headroom.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace muster::device::host {
namespace {

constexpr int kSealFutureWrite = 0x0010;  // Linux 5.1
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
// No address space holds more. The limit keeps the rounding below from overflowing.
constexpr std::size_t kBytesMax = std::size_t{1} << 47;

// Owns    mapping and descriptor. Thread  any.  Bound  bytes().  Fails  never: all bytes are committed.
class SharedMemory final : public Memory {
 public:
  SharedMemory(std::byte* data, std::size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}
  ~SharedMemory() override {
    ::munmap(data_, bytes_);
    ::close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const noexcept override { return data_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  int descriptor() const noexcept override { return fd_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  int fd_;
};

std::string reason(int error) {
  return std::generic_category().message(error);
}

Status check_room(std::size_t bytes) {
  const shm::Headroom headroom = shm::memory_headroom();
  if (bytes <= headroom.bytes) return {};
  return failure(Code::kNoResource,
                 "{} bytes of host memory are needed, {} leaves {}; ask for less, free buffers, or {}", bytes,
                 headroom.limit, headroom.bytes, headroom.remedy);
}

Result<int> create_file() {
  int fd = ::memfd_create("muster-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create("muster-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0) return fd;
  return fail(Code::kNoResource, "{}", refused_call("memfd_create for host memory", errno, kRaiseOpenFiles));
}

// Maps the file: from 2 MiB on at a multiple of 2 MiB, so that huge pages can back all of it.
std::byte* map_aligned(int fd, std::size_t bytes) {
  const std::size_t slack = bytes >= kHugeBytes ? kHugeBytes : 0;
  void* reserved =
      ::mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(reserved);
  const std::size_t skip =
      slack == 0 ? 0 : (kHugeBytes - std::bit_cast<std::uintptr_t>(base) % kHugeBytes) % kHugeBytes;
  std::byte* start = base + skip;
  if (::mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, bytes + slack);
    errno = error;
    return nullptr;
  }
  if (skip > 0) ::munmap(base, skip);
  if (slack > skip) ::munmap(start + bytes, slack - skip);
  return start;
}

Status no_commit(std::size_t bytes, const char* step, int error) {
  return failure(
      Code::kNoResource, "{} bytes of host memory are needed; {}", bytes,
      refused_call(step, error,
                   "the limit is the node's free memory, the cgroup's memory.max or ulimit -v: ask "
                   "for less, free buffers, or raise it"));
}

// fallocate(), repeated when a signal interrupts it. Returns 0 or errno.
int reserve(int fd, std::size_t first, std::size_t bytes) {
  for (;;) {
    if (::fallocate(fd, 0, static_cast<off_t>(first), static_cast<off_t>(bytes)) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// Facts of a foreign descriptor. Seals are asked for first: only a memfd has them, and its other calls cannot
// block.
struct Import {
  std::size_t size = 0;       // of the file
  std::uint64_t missing = 0;  // upper bound of the bytes in the range that are not committed yet
};
Result<Import> check_import(int fd, std::uint64_t first, std::uint64_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0)
    return fail(Code::kBadArgument,
                "the descriptor is no memfd ({}); only memory of memfd_create is imported", reason(errno));
  if ((seals & F_SEAL_SHRINK) == 0 || (seals & (F_SEAL_WRITE | kSealFutureWrite)) != 0)
    return fail(Code::kBadArgument,
                "the memfd has seals 0x{:x}; it needs F_SEAL_SHRINK, and must not be sealed against writing",
                static_cast<unsigned>(seals));
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || system.f_type == HUGETLBFS_MAGIC)
    return fail(Code::kBadArgument,
                "the memfd is of huge pages, which may be gone when they are touched; "
                "make it without MFD_HUGETLB");
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return fail(Code::kBadArgument, "fstat of the memfd: {}", reason(errno));
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (size > kBytesMax || first > size || bytes > size - first)
    return fail(Code::kBadArgument, "bytes [{}, {} + {}) are not inside the memfd's {}", first, first, bytes,
                size);
  // This does not tell which pages are committed, so assume that as many as possible lie outside the range.
  const std::uint64_t committed = static_cast<std::uint64_t>(facts.st_blocks) * 512;
  const std::uint64_t outside = size - bytes;
  const std::uint64_t inside = committed > outside ? std::min(bytes, committed - outside) : 0;
  return Import{static_cast<std::size_t>(size), bytes - inside};
}

// Two callers must not both count on the same free memory.
std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(one_at_a_time());
  if (bytes == 0)
    return fail(Code::kBadArgument, "0 bytes of host memory were asked for; ask for at least 1");
  if (bytes > kBytesMax)
    return fail(Code::kNoResource,
                "{} bytes of host memory are needed; an address space has {}; ask for less", bytes,
                kBytesMax);
  const std::size_t granule =
      bytes >= kHugeBytes ? kHugeBytes : static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t granted = (bytes + granule - 1) / granule * granule;
  MUSTER_RETURN_IF_ERROR(check_room(granted));

  MUSTER_ASSIGN_OR_RETURN(const int fd, create_file());
  shm::Descriptor file(fd);
  if (::ftruncate(file.get(), static_cast<off_t>(granted)) != 0)
    return fail(no_commit(granted, "ftruncate", errno));
  std::byte* data = map_aligned(file.get(), granted);
  if (data == nullptr) return fail(no_commit(granted, "mmap", errno));
  auto memory = std::make_unique<SharedMemory>(data, granted, file.release());

  // The kernel gives huge pages at a fault in a mapping with that advice, so touch the pages before the rest
  // is reserved. Both calls may fail: only fallocate() promises that no later access fails.
  if (granted >= kHugeBytes) {
    (void)::madvise(data, granted, MADV_HUGEPAGE);
    (void)::madvise(data, granted, MADV_POPULATE_WRITE);
  }
  if (const int error = reserve(memory->descriptor(), 0, granted); error != 0)
    return fail(no_commit(granted, "fallocate", error));
  if (::fcntl(memory->descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail(Code::kNoResource, "sealing host memory failed ({}); it needs a kernel with file seals",
                reason(errno));
  return memory;
}

Result<std::unique_ptr<Memory>> import_shared(int descriptor, std::uint64_t first, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(one_at_a_time());
  MUSTER_ASSIGN_OR_RETURN(const Import import, check_import(descriptor, first, bytes));
  shm::Descriptor file(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file.valid())
    return fail(Code::kNoResource, "{}", refused_call("dup for host memory", errno, kRaiseOpenFiles));
  MUSTER_RETURN_IF_ERROR(check_room(import.missing));
  if (const int error = reserve(file.get(), first, bytes); error != 0)
    return fail(no_commit(bytes, "fallocate", error));
  void* data = ::mmap(nullptr, import.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return fail(no_commit(import.size, "mmap", errno));
  return std::make_unique<SharedMemory>(static_cast<std::byte*>(data), import.size, file.release());
}

}  // namespace muster::device::host
