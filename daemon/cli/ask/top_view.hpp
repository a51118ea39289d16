// The display of `muster top`: ranks in the order that the user wants, as many as fit in the window.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/config/table.hpp"

#include <cstddef>
#include <string>

namespace muster::cli {

// Owns    the order of ranks, and which of them come first.
// Thread  one.
// Bound   none.
// Fails   never.
class TopView {
 public:
  struct Window {
    std::size_t columns = config::kColumnsMax;
    std::size_t rows = 0;  // 0: any number, as in a file
  };
  // Handles a key: it sorts, reverses the order, moves to other ranks, or shows the help. False: the key has
  // no meaning.
  bool press(char key);
  // The display of `rates` (top_rates.hpp). No line is wider than the window, and all lines fit in it.
  std::string text(const std::string& job, const Json& rates, const Window& window);

 private:
  std::size_t order_ = 0;
  bool turned_ = false;
  bool help_ = false;
  std::size_t page_ = 0;  // of ranks
};

// The terminal at standard output.
TopView::Window window_now();

}  // namespace muster::cli
