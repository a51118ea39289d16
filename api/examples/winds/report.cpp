#include "api/examples/winds/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

namespace winds {

using namespace training;

extern const std::string_view kPageTemplate;  // page.html; the build makes the source that defines it

namespace {

constexpr std::array<const char*, kWinds> kNames{"upper u", "middle u", "lower u",
                                                 "upper v", "middle v", "lower v"};

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string judgement_html(const Judgement& j) {
  std::string html =
      "<tr><th></th><th>model</th><th>climatology</th><th>model, poleward of 8\u00b0</th>"
      "<th>geostrophic</th></tr>\n";
  for (std::size_t wind = 0; wind < kWinds; ++wind) {
    html += std::string("<tr><th scope=\"row\">") + kNames[wind] + "</th>";
    for (const double value :
         {j.result[wind], j.climatology[wind], j.result_outside[wind], j.geostrophic[wind]})
      html += "<td>" + fixed(value, 2) + "</td>";
    html += "</tr>\n";
  }
  return html;
}

}  // namespace

namespace {

// The largest difference of two lists, or NaN if one has a NaN.
float largest(const std::vector<float>& one, const std::vector<float>& other, bool as_a_part) {
  float most = 0.0F;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    const float difference = std::fabs(one[i] - other[i]) / (as_a_part ? other[i] : 1.0F);
    if (!(difference <= most)) most = difference;
    if (std::isnan(most)) break;
  }
  return most;
}

}  // namespace

float Figures::max_loss_difference() const {
  return largest(losses, alone, false);
}
float Figures::max_norm_difference() const {
  return largest(gradient_norms, alone_gradient_norms, true);
}

std::string judgement_text(const Judgement& j) {
  std::string text =
      "Errors in the month that was not learned, in m/s:\n"
      "            model  climatology   poleward of 8 degrees: model  geostrophic\n";
  for (std::size_t wind = 0; wind < kWinds; ++wind)
    text += padded(kNames[wind], 10) + padded(fixed(j.result[wind], 2), 7) +
            padded(fixed(j.climatology[wind], 2), 13) + padded(fixed(j.result_outside[wind], 2), 31) +
            padded(fixed(j.geostrophic[wind], 2), 13) + "\n";
  return text;
}

std::string figures_json(const Figures& f) {
  nlohmann::ordered_json json;
  json["steps"] = f.losses.size();
  json["losses"] = f.losses;
  json["max_loss_difference"] = nullptr;
  json["max_norm_difference"] = nullptr;
  if (!f.alone.empty()) {
    json["max_loss_difference"] = f.max_loss_difference();
    json["max_norm_difference"] = f.max_norm_difference();
  }
  json["seconds"] = f.seconds;
  json["exposed_fraction"] = f.exposed_fraction;
  json["halo_exposed_fraction"] = f.halo_exposed_fraction;
  json["activation_bytes"] = f.activation_bytes;
  json["alone_activation_bytes"] = f.alone_activation_bytes;
  json["halo_bytes"] = {{"forward_in", f.halos.forward_bytes_in},
                        {"forward_out", f.halos.forward_bytes_out},
                        {"backward_in", f.halos.backward_bytes_in},
                        {"backward_out", f.halos.backward_bytes_out}};
  json["rmse"] = f.judgement.result;
  json["rmse_climatology"] = f.judgement.climatology;
  json["rmse_outside"] = f.judgement.result_outside;
  json["rmse_geostrophic"] = f.judgement.geostrophic;
  return json.dump();
}

std::string page_of(const PageContent& content) {
  const Figures& f = content.figures;
  std::vector<std::pair<std::string, std::string>> rows{
      {"mesh", content.mesh},
      {"field", content.field},
      {"steps", std::to_string(f.losses.size())},
      {"seconds", fixed(f.seconds, 1)},
      {"exposed communication", fixed(100.0 * f.exposed_fraction, 1) + " %"},
      {"exposed halos, of it", fixed(100.0 * f.halo_exposed_fraction, 1) + " %"},
      {"activations of a rank", bytes_text(static_cast<std::int64_t>(f.activation_bytes))},
      {"halos of rank 0, of one forward and one backward",
       bytes_text(static_cast<std::int64_t>(f.halos.forward_bytes_in + f.halos.backward_bytes_in))}};
  if (!f.alone.empty()) {
    rows.emplace_back("activations of one rank alone",
                      bytes_text(static_cast<std::int64_t>(f.alone_activation_bytes)));
    rows.emplace_back("largest difference of the losses from one rank alone",
                      number(static_cast<double>(f.max_loss_difference())));
  }
  return page_html(
      kPageTemplate,
      {.program = "winds",
       .loss_unit = "in squares of each wind's own size",
       .losses = f.losses,
       .alone = f.alone,
       .events = content.events,
       .world = content.world,
       .steps_before = content.steps_before},
      {{"facts", facts_html(rows)}, {"judgement", judgement_html(f.judgement)}, {"maps", content.maps}});
}

}  // namespace winds
