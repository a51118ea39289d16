// muster-bench: Muster's collectives beside those of its peers and beside what the machine allows, in one
// run.
//
// Ranks are programs of their own: this one again under `muster run`, and one for each peer. Each prints its
// rows as lines of JSON, which are put together here.
#include "tests/bench/campaign.hpp"
#include "tests/bench/muster_rank.hpp"
#include "tests/bench/program.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <CLI/CLI.hpp>

namespace muster::bench {
namespace {

void define(CLI::App& app, Choice& choice) {
  app.add_option("--ranks", choice.ranks, "Numbers of ranks, with commas")
      ->delimiter(',')
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--operations", choice.operations, "What to measure, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(all_names()))
      ->capture_default_str();
  app.add_option("--bytes", choice.sizes, "Sizes of the full vector, with commas: 8,64KiB,1MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{sizeof(float)}, std::size_t{1} << 32));
  app.add_option("--contenders", choice.contenders, "Who is measured, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(contender_names()))
      ->capture_default_str();
  app.add_option("--rounds", choice.rounds, "How often each contender takes its turn; its best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--json", choice.json, "Write all rows into this file");
  app.add_option("--plots", choice.plots, "Draw a picture of each operation into this folder");
  app.add_flag("--quick", choice.quick, "Small sizes and short looks: shows that it runs, not how fast");
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  using muster::bench::Campaign;
  if (argc > 1 && std::string_view(argv[1]) == muster::bench::kRankFlag) {
    const auto words = std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(2);
    return muster::bench::run_muster_rank(muster::bench::cells_of(words));
  }
  CLI::App app("Muster's collectives beside those of its peers and beside what the machine allows; medians.");
  muster::bench::Choice choice;
  muster::bench::define(app, choice);
  CLI11_PARSE(app, argc, argv);
  muster::bench::take_charge();
  const muster::Status status = Campaign(std::move(choice)).run();
  if (!status.ok()) std::fprintf(stderr, "muster-bench: %s\n", status.message().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
