#include "api/client/check/guarded_buffers.hpp"

#include "api/base/system_call.hpp"
#include "api/shm/headroom.hpp"
#include "api/shm/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace muster::client {
namespace {

constexpr std::uint64_t kAlignment = 64;  // of muster_buffer_alloc
constexpr auto kAround = std::byte{0xA5};

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::getpagesize());
  return bytes;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

Status no_addresses(std::uint64_t bytes, int error) {
  return failure(
      Code::kNoResource, "{}",
      refused_call(fmt::format("check mode maps each buffer by itself; mapping {} bytes", bytes), error,
                   "raise the sysctl vm.max_map_count or ulimit -v, or run without MUSTER_CHECK"));
}

std::optional<std::int64_t> changed_byte(const std::byte* from, const std::byte* to, const std::byte* data) {
  const auto* const found = std::find_if(from, to, [](std::byte each) { return each != kAround; });
  return found == to ? std::nullopt : std::optional<std::int64_t>(found - data);
}

std::string in_brackets(const std::string& name) {
  return name.empty() ? "" : fmt::format(" ({})", name);
}

std::uintptr_t number_of(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

GuardedBuffers::~GuardedBuffers() {
  for (auto& [end, guarded] : all_) drop(*guarded);
  for (const auto& guarded : freed_) drop(*guarded);
}

void GuardedBuffers::drop(Guarded& guarded) {
  unwatch(guarded.range);
  ::munmap(guarded.mapped - page_bytes(), guarded.mapped_bytes + 2 * page_bytes());
}

// ---- mappings ----------------------------------------------------------------------------------

Result<GuardedBuffers::OwnMemory> GuardedBuffers::own_memory(std::uint64_t bytes) {
  const std::uint64_t room = round_up(bytes, kAlignment);
  const std::uint64_t pages = round_up(room, page_bytes());
  MUSTER_ASSIGN_OR_RETURN(auto file, shm::create_memory("muster-checked", pages, shm::memory_headroom()));
  return OwnMemory{std::move(file), pages - room};
}

Result<std::byte*> GuardedBuffers::map(const shm::Descriptor& memory, std::uint64_t bytes) {
  const std::uint64_t mapped_bytes = round_up(bytes, page_bytes());
  const std::uint64_t span = mapped_bytes + 2 * page_bytes();
  void* const reserved = ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return fail(no_addresses(span, errno));
  std::byte* const mapped = static_cast<std::byte*>(reserved) + page_bytes();
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if (::mmap(mapped, bytes, kAccess, MAP_SHARED | MAP_FIXED, memory.get(), 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, span);
    return fail(no_addresses(bytes, error));
  }
  auto guarded = std::make_unique<Guarded>();
  guarded->mapped = mapped;
  guarded->mapped_bytes = mapped_bytes;
  guarded->pages.assign(mapped_bytes / page_bytes(), {0, 0, kAccess});
  WatchedRange& range = guarded->range;
  range.begin = number_of(mapped) - page_bytes();
  range.end = range.begin + span;
  range.data = number_of(mapped);
  range.bytes = bytes;
  range.reasons.resize(span / page_bytes());
  watch(range);
  all_[mapped + mapped_bytes] = std::move(guarded);
  return mapped;
}

void GuardedBuffers::unmap(std::byte* mapped) {
  Guarded* const guarded = find(mapped);
  if (guarded == nullptr) return;
  by_buffer_.erase(guarded->buffer);
  drop(*guarded);
  all_.erase(guarded->mapped + guarded->mapped_bytes);
}

GuardedBuffers::Guarded* GuardedBuffers::find(const std::byte* address) {
  return const_cast<Guarded*>(std::as_const(*this).find(address));  // NOLINT(*-const-cast): one search
}

const GuardedBuffers::Guarded* GuardedBuffers::find(const std::byte* address) const {
  const auto next = all_.upper_bound(address);
  return next != all_.end() && next->second->mapped <= address ? next->second.get() : nullptr;
}

// ---- buffers -----------------------------------------------------------------------------------

std::string GuardedBuffers::full_name(const Guarded& guarded) const {
  return fmt::format("rank {}: buffer {:#x} of {} bytes{}", rank_, guarded.buffer, guarded.bytes,
                     in_brackets(guarded.name));
}

void GuardedBuffers::name(muster_buffer buffer, std::string name) {
  const auto known = by_buffer_.find(buffer);
  if (known == by_buffer_.end()) return;
  const FaultLock lock;
  known->second->name = std::move(name);
  known->second->range.name = full_name(*known->second);
}

void GuardedBuffers::add(muster_buffer buffer, std::byte* mapped, std::byte* data, std::uint64_t bytes,
                         bool owned) {
  Guarded* const guarded = find(mapped);
  if (guarded == nullptr) return;
  if (owned) {
    std::fill(guarded->mapped, data, kAround);
    std::fill(data + bytes, guarded->mapped + guarded->mapped_bytes, kAround);
  }
  const FaultLock lock;
  guarded->buffer = buffer;
  guarded->data = data;
  guarded->bytes = bytes;
  guarded->owned = owned;
  guarded->range.data = number_of(data);
  guarded->range.bytes = bytes;
  guarded->range.name = full_name(*guarded);
  by_buffer_[buffer] = guarded;
}

Status GuardedBuffers::check_around(Guarded& guarded) {
  if (!guarded.owned || guarded.told) return {};
  std::byte* const end = guarded.mapped + guarded.mapped_bytes;
  auto changed = changed_byte(guarded.mapped, guarded.data, guarded.data);
  if (!changed) changed = changed_byte(guarded.data + guarded.bytes, end, guarded.data);
  if (!changed) return {};
  guarded.told = true;
  const std::string place = *changed < 0 ? fmt::format("the byte {} before its start", -*changed)
                                         : fmt::format("its byte {}, which is past its end", *changed);
  return failure(Code::kState,
                 "{}: this process has written {}, at some time before this call; look for an index or a "
                 "size that is wrong",
                 full_name(guarded), place);
}

// A buffer with a page that cannot be read, because a start writes it, is checked by a later call.
Status GuardedBuffers::check_around() {
  const auto is_open = [](const Page& page) { return (page.access & PROT_READ) != 0; };
  for (auto& [end, guarded] : all_)
    if (is_open(guarded->pages.front()) && is_open(guarded->pages.back()))
      MUSTER_RETURN_IF_ERROR(check_around(*guarded));
  return {};
}

Status GuardedBuffers::give_back(muster_buffer buffer) {
  const auto known = by_buffer_.find(buffer);
  if (known == by_buffer_.end()) return {};
  Guarded& guarded = *known->second;
  by_buffer_.erase(known);
  ::mprotect(guarded.mapped, guarded.mapped_bytes, PROT_READ | PROT_WRITE);
  Status around = check_around(guarded);
  ::mmap(guarded.mapped, guarded.mapped_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const auto why = std::make_shared<const std::string>("it was freed by muster_buffer_free");
  {
    const FaultLock lock;
    std::ranges::fill(guarded.range.reasons, why);
  }
  const auto place = all_.find(guarded.mapped + guarded.mapped_bytes);
  freed_.push_back(std::move(place->second));
  all_.erase(place);
  if (freed_.size() > kFreedMax) {
    drop(*freed_.front());
    freed_.pop_front();
  }
  return around;
}

std::pair<const std::byte*, const std::byte*> GuardedBuffers::extent_of(muster_buffer buffer) const {
  const auto known = by_buffer_.find(buffer);
  if (known == by_buffer_.end()) return {};
  return {known->second->data, known->second->data + known->second->bytes};
}

std::string GuardedBuffers::name_of(const std::byte* from, const std::byte* to) const {
  const Guarded* const guarded = find(from);
  if (guarded == nullptr) return fmt::format("{} bytes", to - from);
  return fmt::format("bytes [{}, {}) of buffer {:#x}{}", from - guarded->data, to - guarded->data,
                     guarded->buffer, in_brackets(guarded->name));
}

// ---- protection --------------------------------------------------------------------------------

// Changes each page of which all bytes of the buffer are used.
template<class Change>
void GuardedBuffers::change_pages(const MemoryUse& use, Change change) {
  Guarded* const guarded = find(use.from);
  if (guarded == nullptr || guarded->buffer == 0) return;
  for_each_run(use, std::min(page_bytes(), guarded->bytes), [&](const std::byte* from, const std::byte* to) {
    const auto at = [&](const std::byte* address) {
      return static_cast<std::size_t>(address - guarded->mapped) / page_bytes();
    };
    std::size_t first = at(from);
    std::size_t last = at(to - 1) + 1;
    const std::byte* const first_page = guarded->mapped + first * page_bytes();
    const std::byte* const last_page_end = guarded->mapped + last * page_bytes();
    if (from > std::max<const std::byte*>(first_page, guarded->data)) ++first;
    if (to < std::min<const std::byte*>(last_page_end, guarded->data + guarded->bytes)) --last;
    for (std::size_t page = first; page < last; ++page)
      change(*guarded, guarded->pages[page], guarded->range.reasons[page + 1]);
    if (first < last) set_access(*guarded, first, last);
  });
}

// Without room for more mappings pages stay open: then less is found.
void GuardedBuffers::set_access(Guarded& guarded, std::size_t first, std::size_t last) {
  const auto wanted = [](const Page& page) {
    if (page.writers > 0) return PROT_NONE;
    return page.readers > 0 ? PROT_READ : PROT_READ | PROT_WRITE;
  };
  for (std::size_t i = first; i < last;) {
    const int access = wanted(guarded.pages[i]);
    std::size_t end = i;
    bool changes = false;
    for (; end < last && wanted(guarded.pages[end]) == access; ++end)
      changes = changes || guarded.pages[end].access != access;
    if (changes) ::mprotect(guarded.mapped + i * page_bytes(), (end - i) * page_bytes(), access);
    for (; i < end; ++i) guarded.pages[i].access = access;
  }
}

void GuardedBuffers::protect(const MemoryUses& uses, const std::string& why) {
  const auto reason = std::make_shared<const std::string>(why);
  const FaultLock lock;
  for (const MemoryUse& use : uses)
    change_pages(use, [&](Guarded&, Page& page, std::shared_ptr<const std::string>& told) {
      ++(use.writes ? page.writers : page.readers);
      told = reason;
    });
}

void GuardedBuffers::release(const MemoryUses& uses) {
  const FaultLock lock;
  for (const MemoryUse& use : uses)
    change_pages(use, [&](Guarded&, Page& page, std::shared_ptr<const std::string>&) {
      std::uint32_t& count = use.writes ? page.writers : page.readers;
      if (count > 0) --count;
    });
}

}  // namespace muster::client
