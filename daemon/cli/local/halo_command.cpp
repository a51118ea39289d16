#include "daemon/cli/local/halo_command.hpp"

#include "api/base/dtype.hpp"
#include "api/base/halo/stencil.hpp"
#include "daemon/cli/local/numbered.hpp"
#include "daemon/cli/render.hpp"

#include <charconv>
#include <map>
#include <vector>

namespace muster::cli {
namespace {

using halo::Corners;
using halo::Halo;
using halo::Segment;
using halo::Stencil;
using halo::Window;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kRanksShown = 4096;

// dims: how many numbers there must be; one alone is repeated. 0: any number of them.
OrTrouble<Numbers> numbers_of(const char* option, const std::string& text, std::size_t dims) {
  Numbers numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end || number < 0)
      return usage(fmt::format("{} '{}': write whole numbers, as 3 or 3x5", option, text));
    numbers.push_back(number);
    at = end + 1;
  }
  if (dims == 0 && numbers.size() <= MUSTER_TENSOR_DIMS_MAX) return numbers;
  if (dims == 0)
    return usage(fmt::format("{} '{}': at most {} dims are possible", option, text, MUSTER_TENSOR_DIMS_MAX));
  if (numbers.size() == 1) numbers.resize(dims, numbers.front());
  if (numbers.size() == dims) return numbers;
  return usage(
      fmt::format("{} '{}': --shape has {} dims; give one number, or one for each", option, text, dims));
}

OrTrouble<Window::Pad> pad_of(const std::string& text) {
  for (const auto pad :
       {Window::Pad::kZeros, Window::Pad::kCircular, Window::Pad::kReflect, Window::Pad::kReplicate})
    if (text == halo::pad_name(pad)) return pad;
  return usage(fmt::format("--pads '{}': zeros, circular, reflect and replicate are possible", text));
}

OrTrouble<Stencil> stencil_of(const HaloQuestion& question) {
  const auto shape = numbers_of("--shape", question.shape, 0);
  if (!shape) return tl::unexpected(shape.error());
  const std::size_t dims = shape->size();
  struct Option {
    const char* name;
    const std::string& text;
    Numbers numbers;
  };
  Option options[] = {{"--cut", question.cut, {}},
                      {"--kernel", question.kernel, {}},
                      {"--stride", question.stride, {}},
                      {"--dilation", question.dilation, {}},
                      {"--pad", question.pad, {}}};
  for (Option& option : options) {
    auto numbers = numbers_of(option.name, option.text, dims);
    if (!numbers) return tl::unexpected(numbers.error());
    option.numbers = *std::move(numbers);
  }
  const auto pad = pad_of(question.pads);
  if (!pad) return tl::unexpected(pad.error());
  std::vector<Layout::Axis> axes;
  std::vector<Window> windows(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    axes.push_back({fmt::format("dim {}", d), options[0].numbers[d],
                    Placement::shard(static_cast<std::int32_t>(d), Split::balanced())});
    windows[d].kind = question.transposed ? Window::Kind::kTransposed : Window::Kind::kConvolution;
    windows[d].kernel = options[1].numbers[d];
    windows[d].stride = options[2].numbers[d];
    windows[d].dilation = options[3].numbers[d];
    windows[d].before = windows[d].after = options[4].numbers[d];
    windows[d].pad = *pad;
  }
  const auto layout = Layout::make(*shape, std::move(axes));
  if (!layout) return usage(layout.error().message());
  auto stencil = Stencil::make(*layout, windows);
  if (!stencil) return usage(stencil.error().message());
  return *std::move(stencil);
}

Json to_json(const Box& box) {
  Json dims = Json::array();
  for (std::size_t d = 0; d < box.dims; ++d) dims.push_back({box.offset[d], box.offset[d] + box.length[d]});
  return dims;
}

std::string lengths_text(const Index& length, std::size_t dims) {
  return fmt::format("{}",
                     fmt::join(length.begin(), length.begin() + static_cast<std::ptrdiff_t>(dims), "x"));
}

Json to_json(const std::vector<Segment>& segments, std::size_t dims) {
  Json all = Json::array();
  for (const Segment& segment : segments)
    all.push_back(
        {{"peer", segment.peer},
         {"phase", segment.phase},
         {"from", Numbers(segment.from.begin(), segment.from.begin() + static_cast<std::ptrdiff_t>(dims))},
         {"at", Numbers(segment.at.begin(), segment.at.begin() + static_cast<std::ptrdiff_t>(dims))},
         {"shape", lengths_text(segment.length, dims)}});
  return all;
}

Json to_json(const Halo& halo, std::int64_t rank, std::int64_t element_bytes) {
  Json boundaries = Json::array();
  for (const Box& box : halo.boundaries) boundaries.push_back(to_json(box));
  return {{"rank", rank},
          {"own", to_json(halo.own)},
          {"needed", to_json(halo.needed)},
          {"held", to_json(halo.held)},
          {"results", to_json(halo.results)},
          {"interior", to_json(halo.interior)},
          {"boundaries", boundaries},
          {"gets", to_json(halo.gets, halo.own.dims)},
          {"gives", to_json(halo.gives, halo.own.dims)},
          {"bytes_in", halo.elements_in * element_bytes},
          {"bytes_out", halo.elements_out * element_bytes}};
}

// "0-60, 0-239"; "-" if there is nothing.
std::string extents_text(const Json& box) {
  std::string text;
  for (const Json& dim : box) {
    const std::int64_t begin = dim[0], end = dim[1];
    if (begin >= end) return "-";
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        begin + 1 == end ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1));
  }
  return text;
}

// "1: 61x1, 4: 1x240"
std::string gets_text(const Json& segments) {
  std::string text;
  for (const Json& segment : segments)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", segment.at("peer").get<std::int64_t>(),
                        segment.at("shape").get<std::string>());
  return text.empty() ? "-" : text;
}

std::string halo_text(const Json& plan) {
  std::vector<config::Cells> rows;
  for (const Json& rank : plan.at("ranks"))
    rows.push_back({fmt::format("{}", rank.at("rank").get<std::int64_t>()), extents_text(rank.at("own")),
                    extents_text(rank.at("results")), extents_text(rank.at("interior")),
                    gets_text(rank.at("gets")), fmt::format("{}", rank.at("bytes_in").get<std::int64_t>())});
  return fmt::format("{} items give {} results\n\n", plan.at("items").get<std::string>(),
                     plan.at("results").get<std::string>()) +
         config::table({"RANK", "ITEMS", "RESULTS", "OF ITS OWN ITEMS", "GETS", "BYTES"}, rows,
                       {config::screen_columns(), {"OF ITS OWN ITEMS"}});
}

}  // namespace

int run_plan_halo(const HaloQuestion& question, Output output) {
  const auto dtype = dtype_named(question.dtype);
  if (!dtype) return complain(dtype.error());
  const auto stencil = stencil_of(question);
  if (!stencil) return complain(stencil.error());
  const std::int64_t ranks = stencil->layout().ranks();
  if (question.rank >= ranks)
    return complain(
        {kUsage, fmt::format("--rank {}: there are ranks 0 to {}", question.rank, ranks - 1), {}});
  if (question.rank < 0 && ranks > kRanksShown)
    return complain({kUsage, fmt::format("there are {} ranks; choose one with --rank", ranks), {}});
  Json all = Json::array();
  for (std::int64_t rank = std::max<std::int64_t>(question.rank, 0);
       rank < (question.rank < 0 ? ranks : question.rank + 1); ++rank) {
    const auto halo = stencil->halo(rank, question.by_dims ? Corners::kByDims : Corners::kDirect);
    if (!halo) return complain(trouble_of(halo.error()));
    all.push_back(to_json(*halo, rank, static_cast<std::int64_t>(dtype_bytes(*dtype))));
  }
  const std::size_t dims = stencil->layout().dims();
  const Json plan{{"items", lengths_text(stencil->layout().shape(), dims)},
                  {"results", lengths_text(stencil->result().shape(), dims)},
                  {"ranks", all}};
  return output == Output::kJson ? print_json(plan) : print_text(halo_text(plan));
}

}  // namespace muster::cli
