#include "deploy/pages/pages.hpp"

#include "deploy/pages/completion.hpp"
#include "deploy/pages/roff.hpp"

namespace muster::pages {

std::vector<Page> all_pages() {
  const Program muster = muster_program();
  const Program musterd = musterd_program();
  return {{"man/muster.1", program_page(muster, 1)},
          {"man/musterd.8", program_page(musterd, 8)},
          {"man/musterd.yaml.5", settings_page(musterd.version)},
          {"completion/muster.bash", bash_completion({muster.command, musterd.command})},
          {"completion/_muster", zsh_completion({muster.command, musterd.command})},
          {"completion/muster.fish", fish_completion({muster.command, musterd.command})}};
}

}  // namespace muster::pages
