#include "api/shm/job_counters.hpp"

#include "api/base/assert.hpp"
#include "api/shm/untrusted.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::shm {
namespace {

constexpr int kRowAttempts = 8;
constexpr auto kRowWord = static_cast<std::size_t>(GroupCount::kRow);

// A name is shared in words of eight bytes, so that it can be copied while the writer changes it.
static_assert(kTallyNameBytes % 8 == 0 && offsetof(GroupTally, name) % 8 == 0);
using NameWords = std::array<std::uint64_t, kTallyNameBytes / 8>;

}  // namespace

Result<JobCountersWriter> JobCountersWriter::create(const World& world, std::span<const std::string> groups,
                                                    std::uint64_t epoch, const Headroom& headroom) {
  JobCountersWriter writer;
  const std::uint32_t ranks = world.local_count();
  writer.ranks_ = ranks;
  const std::uint64_t bytes = job_counters_bytes(ranks, static_cast<std::uint32_t>(groups.size()));
  MUSTER_ASSIGN_OR_RETURN(writer.memory_, create_memory("muster-counters", bytes, headroom));
  MUSTER_ASSIGN_OR_RETURN(writer.mapping_, Mapping::map(writer.memory_, bytes, Mapping::Access::kReadWrite));
  auto* header = new (writer.mapping_.writable()) JobCountersHeader;
  header->abi_version = kAbiVersion;
  header->engine_pid = ::getpid();
  header->bytes = bytes;
  header->ranks = ranks;
  header->groups = static_cast<std::uint32_t>(groups.size());
  header->epoch = epoch;
  writer.rows_.resize(groups.size());
  for (std::uint32_t row = 0; row < ranks; ++row)
    writer.set(row, RankCount::kRank, world.locals()[row].value);
  for (std::uint32_t g = 0; g < groups.size(); ++g) writer.give_row(g, groups[g]);
  header->magic = kMagicJobCounters;
  return writer;
}

void JobCountersWriter::set(std::uint32_t row, RankCount count, std::uint64_t value) {
  auto* tallies = reinterpret_cast<RankTally*>(mapping_.writable() + kJobCountersTalliesOffset);
  Published<std::uint64_t>(&tallies[row].values[static_cast<std::size_t>(count)]).store(value);
}

GroupTally* JobCountersWriter::tally(std::uint32_t group) {
  return reinterpret_cast<GroupTally*>(mapping_.writable() + kJobCountersTalliesOffset +
                                       ranks_ * sizeof(RankTally)) +
         group;
}

void JobCountersWriter::set(std::uint32_t group, GroupCount count, std::uint64_t value) {
  MUSTER_ASSERT(count != GroupCount::kRow);
  Published<std::uint64_t>(&tally(group)->values[static_cast<std::size_t>(count)]).store(value);
}

void JobCountersWriter::give_row(std::uint32_t group, std::string_view name) {
  GroupTally* row = tally(group);
  NameWords words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), kTallyNameBytes - 1));
  rows_[group].begin(&row->values[kRowWord]);
  for (std::size_t i = 0; i < kTallyValuesMax; ++i)
    if (i != kRowWord) Published<std::uint64_t>(&row->values[i]).store_release(0);
  for (std::size_t i = 0; i < words.size(); ++i)
    Published<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row->name) + i).store_release(words[i]);
  rows_[group].end(&row->values[kRowWord]);
}

void JobCountersWriter::beat(Instant now) {
  auto* word = reinterpret_cast<std::uint64_t*>(mapping_.writable() + kJobCountersBeatOffset);
  Published<std::uint64_t>(word).store_release(static_cast<std::uint64_t>(now.count()));
}

Result<JobCountersReader> JobCountersReader::attach(const Descriptor& memory) {
  // First of all: only a memory file has seals. fstat of a FUSE file would wait for its file system.
  if (::fcntl(memory.get(), F_GET_SEALS) < 0)
    return fail(Code::kProtocol, "a job's counters are no memory file: {}", std::strerror(errno));
  struct stat facts {};
  if (::fstat(memory.get(), &facts) != 0)
    return fail(Code::kProtocol, "a job's counters cannot be looked at: {}", std::strerror(errno));
  const auto bytes = static_cast<std::uint64_t>(facts.st_size);
  if (facts.st_size < 0 || bytes < kJobCountersTalliesOffset)
    return fail(Code::kProtocol, "a job's counters have {} bytes: too few", facts.st_size);
  MUSTER_RETURN_IF_ERROR(check_memory(memory, bytes));
  MUSTER_ASSIGN_OR_RETURN(Mapping mapping, Mapping::map(memory, bytes, Mapping::Access::kRead));
  JobCountersHeader header;
  std::memcpy(&header, mapping.data(), sizeof header);
  if (header.magic != kMagicJobCounters || header.abi_version != kAbiVersion)
    return fail(Code::kVersion, "a job's counters have version {}, this program {}; install the same release",
                header.abi_version, kAbiVersion);
  if (header.bytes != bytes || job_counters_bytes(header.ranks, header.groups) != bytes)
    return fail(Code::kProtocol, "a job's counters of {} ranks and {} groups cannot have {} bytes",
                header.ranks, header.groups, bytes);
  return JobCountersReader(std::move(mapping), header);
}

std::uint64_t JobCountersReader::value(std::uint32_t row, RankCount count) const {
  MUSTER_ASSERT(row < header_.ranks && count < RankCount::kCount);
  const auto* tallies = reinterpret_cast<const RankTally*>(mapping_.data() + kJobCountersTalliesOffset);
  return Untrusted<std::uint64_t>(&tallies[row].values[static_cast<std::size_t>(count)]).load();
}

const GroupTally* JobCountersReader::tally(std::uint32_t index) const {
  MUSTER_ASSERT(index < header_.groups);
  return reinterpret_cast<const GroupTally*>(mapping_.data() + kJobCountersTalliesOffset +
                                             header_.ranks * sizeof(RankTally)) +
         index;
}

std::optional<JobCountersReader::GroupRow> JobCountersReader::row(std::uint32_t index) const {
  const GroupTally* shared = tally(index);
  for (int attempt = 0; attempt < kRowAttempts; ++attempt) {
    const RevisionReader<> revision(&shared->values[kRowWord]);
    if (!revision.stable()) continue;
    GroupRow row;
    for (std::size_t i = 0; i < kTallyValuesMax; ++i)
      row.values[i] = Untrusted<std::uint64_t>(&shared->values[i]).load_acquire();
    NameWords words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] =
          Untrusted<std::uint64_t>(reinterpret_cast<const std::uint64_t*>(shared->name) + i).load_acquire();
    if (!revision.unchanged()) continue;
    char name[kTallyNameBytes];
    std::memcpy(name, words.data(), sizeof name);
    row.name.assign(name, ::strnlen(name, sizeof name));
    return row;
  }
  return std::nullopt;
}

Instant JobCountersReader::beat() const {
  const auto* word = reinterpret_cast<const std::uint64_t*>(mapping_.data() + kJobCountersBeatOffset);
  constexpr auto kNanosMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return Instant(
      static_cast<std::int64_t>(std::min(Untrusted<std::uint64_t>(word).load_acquire(), kNanosMax)));
}

}  // namespace muster::shm
