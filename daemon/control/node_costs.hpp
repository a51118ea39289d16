// NodeCostBook: the costs of the parts of a collective on this node. The members of a job choose algorithms
// by them.
#pragma once

#include "api/base/collective/node_costs.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace muster::control {

// Measures on up to two of these cores, for about 8 ms at most. A cost that it cannot measure in that time,
// or with one core alone, is 0.
NodeCosts measure_node_costs(std::span<const int> cores);
// On the cores that this process may use.
NodeCosts measure_node_costs();

// Owns    the costs, once they are known; the file "costs.json" in its folder, which keeps them for a later
//         daemon and for `muster plan explain`. If the file is removed, the next daemon measures anew.
// Thread  the supervisor's loop, which waits for up to two threads that measure.
// Bound   8 ms and the slice of a busy process at the first get(); later ones are at once.
// Fails   never: a file that cannot be read or written only costs another measurement.
class NodeCostBook {
 public:
  struct Kept {
    NodeCosts used;                     // by jobs: as given, else as measured
    std::optional<NodeCosts> measured;  // all of them; none: no daemon had to, or its machine was too busy

    bool operator==(const Kept&) const = default;
  };
  // `given`: by the administrator; 0: to be measured. `folder`: empty: nothing is kept.
  NodeCostBook(
      const NodeCosts& given, std::string folder,
      std::function<NodeCosts()> measure = [] { return measure_node_costs(); })
      : given_(given), folder_(std::move(folder)), measure_(std::move(measure)) {}

  const NodeCosts& get();

 private:
  NodeCosts given_;
  std::string folder_;
  std::function<NodeCosts()> measure_;
  std::optional<NodeCosts> known_;
};

// The costs in a folder's file, if they are for this machine: as many cores of the same model. A file is not
// believed unless root or this user owns it.
std::optional<NodeCostBook::Kept> kept_node_costs(const std::string& folder);

}  // namespace muster::control
