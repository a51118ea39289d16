#include "api/shm/segment.hpp"

#include "api/base/assert.hpp"
#include "api/base/system_call.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; older headers lack the name
#endif

namespace muster::shm {
namespace {

Status add_seals(const Descriptor& memory, int seals) {
  if (fcntl(memory.get(), F_ADD_SEALS, seals) == 0) return {};
  return failure(Code::kInternal, "memory could not be sealed (0x{:x}): {}", seals, std::strerror(errno));
}

Status out_of_memory(const char* what, std::uint64_t bytes, int error) {
  const char* remedy = "free memory, or raise the memory limit of the cgroup";
  if (error == EFBIG) remedy = "raise the limit of file sizes (ulimit -f, LimitFSIZE)";
  return failure(Code::kNoResource, "{}",
                 refused_call(fmt::format("{} of {} bytes failed", what, bytes), error, remedy));
}

Status no_mapping(std::uint64_t bytes, int error) {
  return failure(Code::kNoResource, "{}",
                 refused_call(fmt::format("mapping {} bytes (mmap) failed", bytes), error,
                              "raise the limit of address space (ulimit -v, LimitAS), or the sysctl "
                              "vm.max_map_count"));
}

Result<Descriptor> create(const char* name, std::uint64_t bytes, std::uint64_t reserved,
                          const Headroom& headroom, Sealing sealing) {
  if (bytes == 0 || bytes > INT64_MAX)
    return muster::fail(Code::kBadArgument, "memory \"{}\" of {} bytes; ask for 1 to {}", name, bytes,
                        INT64_MAX);
  if (reserved > headroom.bytes)
    return muster::fail(Code::kNoResource, "memory \"{}\" needs {} bytes, {} leaves {}; {}", name, reserved,
                        headroom.limit, headroom.bytes, headroom.remedy);
  Descriptor memory = open_memory_file(name);
  if (!memory.valid())
    return muster::fail(Code::kNoResource, "{}",
                        refused_call(fmt::format("memfd_create(\"{}\")", name), errno, kRaiseOpenFiles));
  if (ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return muster::fail(out_of_memory("making a memory file (ftruncate)", bytes, errno));
  if (reserved > 0) MUSTER_RETURN_IF_ERROR(reserve_memory(memory, 0, reserved, headroom));
  const int final_seal = sealing == Sealing::kFinal ? F_SEAL_SEAL : 0;
  MUSTER_RETURN_IF_ERROR(add_seals(memory, F_SEAL_SHRINK | F_SEAL_GROW | final_seal));
  return memory;
}

}  // namespace

// Kernels before 6.3 do not know MFD_NOEXEC_SEAL; some later ones demand it.
Descriptor open_memory_file(const char* name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor file(memfd_create(name, flags | MFD_NOEXEC_SEAL));
  if (!file.valid() && errno == EINVAL) file.reset(memfd_create(name, flags));
  return file;
}

Result<Mapping> Mapping::map(const Descriptor& memory, std::size_t bytes, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, memory.get(), 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    if (error == EPERM || error == EACCES)
      return muster::fail(Code::kDenied, "the memory is sealed against writing; map it to be read");
    return muster::fail(no_mapping(bytes, error));
  }
  return Mapping(static_cast<std::byte*>(address), bytes, access);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      access_(other.access_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    access_ = other.access_;
  }
  return *this;
}

Mapping::~Mapping() {
  unmap();
}

void Mapping::unmap() noexcept {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
}

std::byte* Mapping::writable() const noexcept {
  MUSTER_ASSERT(access_ == Access::kReadWrite);
  return data_;
}

Result<Descriptor> create_memory(const char* name, std::uint64_t bytes, const Headroom& headroom,
                                 Sealing sealing) {
  return create(name, bytes, bytes, headroom, sealing);
}

Result<Descriptor> create_growing_memory(const char* name, std::uint64_t bytes, std::uint64_t reserved,
                                         const Headroom& headroom) {
  MUSTER_ASSERT(reserved <= bytes);
  return create(name, bytes, reserved, headroom, Sealing::kFinal);
}

Status reserve_memory(const Descriptor& memory, std::uint64_t first, std::uint64_t bytes,
                      const Headroom& headroom) {
  if (bytes > headroom.bytes)
    return failure(Code::kNoResource, "memory needs {} bytes, {} leaves {}; {}", bytes, headroom.limit,
                   headroom.bytes, headroom.remedy);
  int error = 0;
  do
    error = fallocate(memory.get(), 0, static_cast<off_t>(first), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (error == EINTR);
  return error == 0 ? Status() : out_of_memory("reserving memory (fallocate)", bytes, error);
}

Status check_memory(const Descriptor& memory, std::uint64_t bytes) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0)
    return failure(Code::kProtocol, "a received descriptor is no memory file: {}", std::strerror(errno));
  if ((seals & F_SEAL_SHRINK) == 0)
    return failure(Code::kProtocol, "received memory is not sealed against shrinking (seals 0x{:x})", seals);
  struct stat facts {};
  if (fstat(memory.get(), &facts) != 0) return failure(Code::kProtocol, "fstat: {}", std::strerror(errno));
  if (static_cast<std::uint64_t>(facts.st_size) != bytes)
    return failure(Code::kProtocol, "received memory has {} bytes, {} were announced", facts.st_size, bytes);
  return {};
}

// ---- the submission segment

Result<SubmissionView> SubmissionView::create(const Headroom& headroom) {
  MUSTER_ASSIGN_OR_RETURN(Descriptor memory, create_memory("muster-submission", kSubmissionBytes, headroom));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(memory, kSubmissionBytes, Mapping::Access::kRead));
  return SubmissionView(std::move(memory), std::move(mapping));
}

Result<SubmissionView> SubmissionView::attach(Descriptor memory) {
  MUSTER_RETURN_IF_ERROR(check_memory(memory, kSubmissionBytes));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping,
                          Mapping::map(memory, kSubmissionBytes, Mapping::Access::kReadWrite));
  return SubmissionView(std::move(memory), std::move(mapping));
}

const SubmissionHeader* SubmissionView::header() const {
  return reinterpret_cast<const SubmissionHeader*>(mapping_.data());
}
SubmissionHeader* SubmissionView::writable_header() const {
  return reinterpret_cast<SubmissionHeader*>(mapping_.writable());
}
const std::uint64_t* SubmissionView::slots() const {
  return reinterpret_cast<const std::uint64_t*>(mapping_.data() + kRingOffset);
}
std::uint64_t* SubmissionView::writable_slots() const {
  return reinterpret_cast<std::uint64_t*>(mapping_.writable() + kRingOffset);
}

// ---- the completion segment

CompletionHeader completion_header(std::uint32_t session, std::uint64_t epoch) {
  CompletionHeader header;
  header.magic = kMagicCompletion;
  header.abi_version = kAbiVersion;
  header.header_bytes = sizeof(CompletionSegment);
  header.completion_bytes = kCompletionBytes;
  header.submission_bytes = kSubmissionBytes;
  header.ring_capacity = kRingCapacity;
  header.timelines = kTimelinesMax;
  header.counters = kCountersMax;
  header.session = session;
  header.epoch = epoch;
  return header;
}

Status check_header(const CompletionHeader& header) {
  if (header.magic != kMagicCompletion)
    return failure(Code::kVersion, "the page starts with 0x{:x}, not with 0x{:x}: it is no completion page",
                   header.magic, kMagicCompletion);
  const struct {
    const char* name;
    std::uint64_t theirs, ours;
  } fields[] = {{"ABI version", header.abi_version, kAbiVersion},
                {"header size", header.header_bytes, sizeof(CompletionSegment)},
                {"completion segment size", header.completion_bytes, kCompletionBytes},
                {"submission segment size", header.submission_bytes, kSubmissionBytes},
                {"ring capacity", header.ring_capacity, kRingCapacity},
                {"number of timelines", header.timelines, kTimelinesMax},
                {"number of counters", header.counters, kCountersMax}};
  for (const auto& field : fields)
    if (field.theirs != field.ours)
      return failure(Code::kVersion,
                     "{} of the daemon is {}, of this library {}; install the same version of both",
                     field.name, field.theirs, field.ours);
  return {};
}

Result<CompletionView> CompletionView::create(std::uint32_t session, std::uint64_t epoch,
                                              const Headroom& headroom) {
  MUSTER_ASSIGN_OR_RETURN(Descriptor memory,
                          create_memory("muster-completion", kCompletionBytes, headroom, Sealing::kOpen));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping,
                          Mapping::map(memory, kCompletionBytes, Mapping::Access::kReadWrite));
  auto* page = new (mapping.writable()) CompletionSegment;
  page->header = completion_header(session, epoch);
  // Our own mapping stays writable. The kernel refuses any later one, whichever process holds the descriptor.
  MUSTER_RETURN_IF_ERROR(add_seals(memory, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
  return CompletionView(std::move(memory), std::move(mapping));
}

Result<CompletionView> CompletionView::attach(Descriptor memory) {
  MUSTER_RETURN_IF_ERROR(check_memory(memory, kCompletionBytes));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(memory, kCompletionBytes, Mapping::Access::kRead));
  CompletionHeader header;
  std::memcpy(&header, mapping.data(), sizeof header);
  MUSTER_RETURN_IF_ERROR(check_header(header));
  return CompletionView(std::move(memory), std::move(mapping));
}

const CompletionSegment* CompletionView::page() const {
  return reinterpret_cast<const CompletionSegment*>(mapping_.data());
}
CompletionSegment* CompletionView::writable_page() const {
  return reinterpret_cast<CompletionSegment*>(mapping_.writable());
}

// ---- the ring

RingWriter<> ring_writer(const SubmissionView& submission, const CompletionView& completion) {
  SubmissionHeader* header = submission.writable_header();
  const CompletionSegment* page = completion.page();
  return RingWriter<>({.tail = &header->tail,
                       .slots = submission.writable_slots(),
                       .head = &page->head,
                       .engine_asleep = &page->engine_asleep},
                      kRingCapacity);
}

RingReader<> ring_reader(const SubmissionView& submission, const CompletionView& completion) {
  CompletionSegment* page = completion.writable_page();
  return RingReader<>({.tail = &submission.header()->tail,
                       .slots = submission.slots(),
                       .head = &page->head,
                       .engine_asleep = &page->engine_asleep},
                      kRingCapacity);
}

}  // namespace muster::shm
