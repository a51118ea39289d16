// Reports of a run of winds: a table of errors, figures, and the page.
#pragma once

#include "api/examples/training/drawings.hpp"
#include "api/examples/winds/maps.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace winds {

using training::LaneEvent;

struct Figures {
  std::vector<float> losses = {};                                     // one for each step
  std::vector<float> alone = {};                                      // --verify: the same run on one rank
  std::vector<float> gradient_norms = {}, alone_gradient_norms = {};  // likewise, before clipping
  Judgement judgement = {};
  double seconds = 0.0;
  double exposed_fraction = 0.0;       // share of the time in which kernels of rank 0 waited for a collective
  double halo_exposed_fraction = 0.0;  // for a halo
  std::uint64_t activation_bytes = 0;  // of the rank that has most
  std::uint64_t alone_activation_bytes = 0;          // --verify
  muster_halos_info halos = MUSTER_HALOS_INFO_INIT;  // of rank 0

  float max_loss_difference() const;  // NaN if a loss is NaN
  float max_norm_difference() const;  // as a part of the norm
};

std::string judgement_text(const Judgement& judgement);  // a table
std::string figures_json(const Figures& figures);        // one line

struct PageContent {
  std::string mesh = {}, field = {};
  Figures figures = {};
  std::string maps = {};  // maps_json()
  std::vector<LaneEvent> events = {};
  std::int32_t world = 1;
  std::int64_t steps_before = 0;
};
std::string page_of(const PageContent& content);

}  // namespace winds
