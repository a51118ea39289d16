#include "transport/span/staging.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace muster::transport::span {

Staging::Piece Staging::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  const auto fits = [size](const Piece& piece) { return piece.bytes == size; };
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
  if (found == kept_.rend()) return {std::make_unique_for_overwrite<std::byte[]>(size), size};
  Piece piece = std::move(*found);
  kept_.erase(std::next(found).base());
  kept_bytes_ -= size;
  return piece;
}

void Staging::give_back(Piece piece) {
  if (piece.memory == nullptr || kept_bytes_ + piece.bytes > kKeptBytes) return;
  kept_bytes_ += piece.bytes;
  kept_.push_back(std::move(piece));
}

}  // namespace muster::transport::span
