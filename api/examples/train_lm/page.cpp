#include "api/examples/train_lm/page.hpp"

#include <cmath>
#include <string_view>

namespace train_lm {

using namespace training;

extern const std::string_view kPageTemplate;  // page.html; the build makes the source that defines it

namespace {

std::string facts(const PageContent& content) {
  const Figures& f = content.figures;
  std::vector<std::pair<std::string, std::string>> rows{
      {"mesh", content.mesh},
      {"steps", std::to_string(f.losses.size())},
      {"final loss", number(static_cast<double>(f.losses.back())) + " nats a byte"},
      {"tokens a second", std::to_string(std::llround(f.tokens_per_second))},
      {"exposed communication", fixed(100.0 * f.exposed_fraction, 1) + " %"},
      {"peak unsharded parameters of a rank", bytes_text(f.peak_unsharded_bytes)}};
  if (!f.alone.empty())
    rows.emplace_back("largest difference of the losses from one rank alone",
                      number(static_cast<double>(f.max_loss_difference())));
  return facts_html(rows);
}

}  // namespace

std::string page_html(const PageContent& content) {
  const std::string sample =
      content.sample.empty() ? "" : "<h2>A sample</h2>\n<pre>" + escaped(content.sample) + "</pre>";
  return training::page_html(kPageTemplate,
                             {.program = "train_lm",
                              .loss_unit = "in nats a byte",
                              .losses = content.figures.losses,
                              .alone = content.figures.alone,
                              .events = content.events,
                              .world = content.world,
                              .steps_before = content.steps_before},
                             {{"facts", facts(content)}, {"sample", sample}});
}

}  // namespace train_lm
