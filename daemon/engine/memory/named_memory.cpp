#include "daemon/engine/memory/named_memory.hpp"

#include <fmt/format.h>

namespace muster::engine {

bool NamedMemory::any_in(NameScope scope) const {
  const auto first = entries_.lower_bound({scope, ""});
  return first != entries_.end() && first->first.first == scope;
}

void NamedMemory::forget_all_in(NameScope scope, std::vector<std::shared_ptr<device::Memory>>& gone) {
  for (auto it = entries_.lower_bound({scope, ""}); it != entries_.end() && it->first.first == scope;) {
    const bool held = it->second.holders > 0;
    if (!held) {
      bytes_ -= it->second.bytes;
      gone.push_back(std::move(it->second.memory));
    }
    it = held ? std::next(it) : entries_.erase(it);
  }
}

Result<NamedMemory::Hold> NamedMemory::open(NameScope scope, const std::string& name, std::uint64_t bytes) {
  const Key key(scope, name);
  if (const auto known = entries_.find(key); known != entries_.end()) {
    if (known->second.bytes != bytes)
      return fail(Code::kBadArgument,
                  "the buffer named '{}' has {} bytes, {} are asked for; free it first, or take another name",
                  name, known->second.bytes, bytes);
    ++known->second.holders;
    return Hold(this, known, true);
  }
  if (entries_.size() == options_.names_max)
    return fail(Code::kNoResource, "the job has {} named buffers already; free some", entries_.size());
  if (bytes > options_.bytes_max - bytes_)
    return fail(Code::kNoResource,
                "a named buffer of {} bytes is too much: the job's names hold {} of {} bytes "
                "(limits.arena_per_rank_max for each rank); free some or raise the limit",
                bytes, bytes_, options_.bytes_max);
  MUSTER_ASSIGN_OR_RETURN(auto memory, device_.allocate(static_cast<std::size_t>(bytes)));
  bytes_ += bytes;
  const auto made = entries_.emplace(key, Entry{std::move(memory), ++identities_, bytes, 1}).first;
  return Hold(this, made, false);
}

NamedMemory::Hold::~Hold() {
  if (valid()) --at_->second.holders;
}

std::shared_ptr<device::Memory> NamedMemory::Hold::drop() {
  if (!valid()) return nullptr;
  NamedMemory& home = *std::exchange(home_, nullptr);
  if (--at_->second.holders > 0) return nullptr;
  home.bytes_ -= at_->second.bytes;
  std::shared_ptr<device::Memory> memory = std::move(at_->second.memory);
  home.entries_.erase(at_);
  return memory;
}

}  // namespace muster::engine
