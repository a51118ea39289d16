#include "daemon/engine/nodes/node_messages.hpp"

#include <utility>

namespace muster::engine {

void NodeMessages::set_reader(NodeMessageKind kind, Reader reader) {
  readers_[static_cast<std::size_t>(kind)] = std::move(reader);
}

std::array<std::size_t, kNodeMessageKinds> NodeMessages::take() {
  std::array<std::size_t, kNodeMessageKinds> heard{};
  links_.take_messages([&](NodeIndex from, std::uint32_t generation, std::span<const std::byte> message) {
    const auto kind = read_head<std::uint32_t>(message);
    if (!kind || *kind >= readers_.size() || !readers_[*kind]) return;
    ++heard[*kind];
    readers_[*kind](from, generation, message);
  });
  return heard;
}

}  // namespace muster::engine
