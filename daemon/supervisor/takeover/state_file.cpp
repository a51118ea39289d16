#include "daemon/supervisor/takeover/state_file.hpp"

#include "api/shm/segment.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr std::uint64_t kSlots = 2;
constexpr auto kFileBytes = static_cast<off_t>(kSlots * kStateBytesMax);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

off_t offset_of(std::uint64_t slot) {
  return static_cast<off_t>(slot * kStateBytesMax);
}

bool read_at(int fd, off_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pread(fd, bytes.data(), bytes.size(), offset);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
  return true;
}

}  // namespace

Result<StateFile> StateFile::create() {
  shm::Descriptor memory = shm::open_memory_file("muster-state");
  const bool made = memory.valid() && ftruncate(memory.get(), kFileBytes) == 0 &&
                    fcntl(memory.get(), F_ADD_SEALS, kSeals) == 0;
  if (!made)
    return fail(Code::kNoResource, "memory for the daemon's state, {} MiB: {}{}", kFileBytes >> 20,
                std::strerror(errno),
                errno == EFBIG ? "; raise the limit on file sizes (ulimit -f, LimitFSIZE)" : "");
  return StateFile(std::move(memory));
}

Result<StateFile> StateFile::adopt(shm::Descriptor memory) {
  struct stat facts {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory.get(), &facts) != 0 ||
      facts.st_size != kFileBytes)
    return fail(Code::kProtocol, "state: what was kept under its name is no memory file of a daemon");
  return StateFile(std::move(memory));
}

Result<std::vector<std::byte>> StateFile::read_slot(std::uint64_t slot) const {
  std::vector<std::byte> bytes(sizeof(State::Header));
  if (!read_at(memory_.get(), offset_of(slot), bytes))
    return fail(Code::kProtocol, "state: it cannot be read: {}", std::strerror(errno));
  MUSTER_ASSIGN_OR_RETURN(const State::Header header, check_state_header(bytes, kStateBytesMax));
  bytes.resize(sizeof header + static_cast<std::size_t>(header.length));
  if (!read_at(memory_.get(), offset_of(slot), bytes))
    return fail(Code::kProtocol, "state: it cannot be read: {}", std::strerror(errno));
  return bytes;
}

Result<Decoded> StateFile::read(std::uint32_t reader) {
  std::vector<std::byte> newest;
  Status trouble;
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
    auto bytes = read_slot(slot);
    const auto header = bytes ? check_whole(*bytes) : Result<State::Header>(fail(bytes.error()));
    // A state in the other slot would be long out of date.
    if (!header || header->sequence % kSlots != slot) {
      trouble =
          header ? failure(Code::kProtocol, "state: a slot holds what belongs into another") : header.error();
      continue;
    }
    if (!newest.empty() && header->sequence < sequence_) continue;
    sequence_ = header->sequence;
    newest = *std::move(bytes);
  }
  if (newest.empty()) return fail(trouble);
  // Never the older state instead, if this one is for other readers: it is out of date.
  return decode(newest, reader);
}

Status StateFile::write(const State& state, const State::Format& format) {
  const std::vector<std::byte> bytes = encode(state, format, sequence_ + 1);
  if (bytes.size() > kStateBytesMax)
    return failure(Code::kNoResource, "the daemon's state of {} bytes is larger than {}", bytes.size(),
                   kStateBytesMax);
  off_t offset = offset_of((sequence_ + 1) % kSlots);
  for (std::span<const std::byte> rest = bytes; !rest.empty();) {
    const ssize_t n = pwrite(memory_.get(), rest.data(), rest.size(), offset);
    if (n <= 0) return failure(Code::kNoResource, "writing the daemon's state: {}", std::strerror(errno));
    rest = rest.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
  ++sequence_;
  return {};
}

}  // namespace muster::supervisor
