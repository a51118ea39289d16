// The generated files of deploy/: manual pages and completions, made from the declarations of command line
// and settings.
#pragma once

#include <string>
#include <vector>

namespace muster::pages {

struct Page {
  std::string path;  // from deploy/: "man/muster.1"
  std::string text;
};

std::vector<Page> all_pages();

}  // namespace muster::pages
