// Links that keep what an engine tells other nodes.
#pragma once

#include "transport/collective/job_links.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace muster::engine::test {

class KeptLinks final : public transport::JobLinks {
 public:
  void tell(NodeIndex node, std::span<const std::byte> message) override {
    told.emplace_back(node, std::vector<std::byte>(message.begin(), message.end()));
  }
  std::vector<std::pair<NodeIndex, std::vector<std::byte>>> told;
};

}  // namespace muster::engine::test
