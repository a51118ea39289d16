// What `muster top` shows: ranks in the order that the user wants, and as much as the window holds.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/config/table.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster::cli {

struct Window {
  std::size_t columns = config::kColumnsMax;
  std::size_t rows = 0;  // 0: any number, as in a file
};
// The terminal at standard output.
Window window_now();

// Owns    the order of ranks, and which of them come first.
// Thread  one.
// Bound   none.
// Fails   never.
class TopView {
 public:
  // What the key does: sorts, turns the order round, goes on to other ranks, or shows the help. False:
  // nothing.
  bool press(char key);
  // Of rates (top_rates.hpp), no line wider than the window and no more lines than it has.
  std::string text(const std::string& job, const Json& rates, const Window& window);

 private:
  std::size_t order_ = 0;
  bool turned_ = false;
  bool help_ = false;
  std::size_t page_ = 0;  // of ranks
};

}  // namespace muster::cli
