#include "transport/span/staging.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace muster::transport::span {

Staged Staging::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  const auto fits = [size](const Staged& staged) { return staged.bytes == size; };
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
  if (found == kept_.rend()) return {std::make_unique_for_overwrite<std::byte[]>(size), size};
  Staged staged = std::move(*found);
  kept_.erase(std::next(found).base());
  kept_bytes_ -= size;
  return staged;
}

void Staging::give_back(Staged staged) {
  if (staged.memory == nullptr || kept_bytes_ + staged.bytes > kKeptBytes) return;
  kept_bytes_ += staged.bytes;
  kept_.push_back(std::move(staged));
}

}  // namespace muster::transport::span
