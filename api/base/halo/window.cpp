#include "api/base/halo/window.hpp"

#include <algorithm>
#include <cmath>

namespace muster::halo {
namespace {

__extension__ using Wide = __int128;

std::int64_t floor_ratio(Wide number, Wide by) {
  const Wide quotient = number / by;
  return static_cast<std::int64_t>(quotient - (number % by != 0 && (number < 0) != (by < 0) ? 1 : 0));
}

// A place between two items: at one of them, or so far on to the next one.
struct Position {
  std::int64_t item = 0;
  double between = 0;
};
Position position_of(Wide number, Wide by) {
  const std::int64_t item = floor_ratio(number, by);
  return {item, static_cast<double>(number - Wide{item} * by) / static_cast<double>(by)};
}
Position position_of(double place) {
  const double item = std::floor(place);
  return {static_cast<std::int64_t>(item), place - item};
}
// The centre of a result, where items have their centres at whole numbers.
Position centre_of(const Window& w, std::int64_t result, std::int64_t items) {
  if (w.length == 0) return position_of((static_cast<double>(result) + 0.5) / w.scale - 0.5);
  return position_of((2 * Wide{result} + 1) * items - w.length, 2 * Wide{w.length});
}

}  // namespace

std::int64_t floor_divided(std::int64_t number, std::int64_t by) {
  return floor_ratio(number, by);
}
std::int64_t ceil_divided(std::int64_t number, std::int64_t by) {
  return -floor_ratio(-Wide{number}, by);
}

Extent common(const Extent& one, const Extent& other) {
  const std::int64_t begin = std::clamp(one.begin, other.begin, std::max(other.begin, other.end));
  return {begin, std::max(begin, std::min(one.end, other.end))};
}

const char* pad_name(Window::Pad pad) {
  switch (pad) {
    case Window::Pad::kZeros:
      return "zeros";
    case Window::Pad::kCircular:
      return "circular";
    case Window::Pad::kReflect:
      return "reflect";
    case Window::Pad::kReplicate:
      return "replicate";
  }
  return "?";
}

std::string Window::name() const {
  switch (kind) {
    case Kind::kEach:
      return "each";
    case Kind::kWhole:
      return "whole";
    case Kind::kConvolution:
      return "convolution";
    case Kind::kPool:
      return "pool";
    case Kind::kTransposed:
      return "transposed convolution";
    case Kind::kNearest:
      return "nearest";
    case Kind::kNearestExact:
      return "nearest_exact";
    case Kind::kLinear:
      return "linear";
    case Kind::kLinearAligned:
      return "linear_aligned";
    case Kind::kCubic:
      return "cubic";
    case Kind::kArea:
      return "area";
  }
  return "?";
}

std::string Window::text() const {
  if (kind == Kind::kEach) return name();
  if (kind == Kind::kWhole || interpolates()) return fmt::format("{} to {}, scale {}", name(), length, scale);
  std::string text = fmt::format("{} of {}, stride {}, dilation {}, pads {} and {} of {}", name(), kernel,
                                 stride, dilation, before, after, pad_name(pad));
  if (extra != 0) text += fmt::format(", {} more", extra);
  return ceil ? text + ", rounded up" : text;
}

// ---- checks ------------------------------------------------------------------------------------

Status Window::check_interpolation(std::int64_t items) const {
  if (length < 0 || length > kItemsMax)
    return failure(Code::kBadArgument, "length is {}; it must be 0 to 2^60", length);
  if (length == 0 && !(scale > 0 && std::isfinite(scale)))
    return failure(Code::kBadArgument, "length is 0 and scale is {}; one of them must be above 0", scale);
  if (length != 0 && scale != 0)
    return failure(Code::kBadArgument, "length is {} and scale is {}; one of them must be 0", length, scale);
  if (length == 0 && !(static_cast<double>(items) * scale < static_cast<double>(kItemsMax)))
    return failure(Code::kBadArgument, "{} items scaled by {} are more than 2^60", items, scale);
  if (kind == Kind::kArea && length == 0)
    return failure(Code::kBadArgument, "length is 0; area takes the length of the result");
  if (items == 0) return failure(Code::kBadArgument, "there are no items to interpolate");
  return {};
}

Status Window::check(std::int64_t items) const {
  if (items > kItemsMax) return failure(Code::kBadArgument, "{} items are more than 2^60", items);
  if (kind == Kind::kEach) return {};
  if (kind == Kind::kWhole) {
    if (length < 0 || length > kItemsMax)
      return failure(Code::kBadArgument, "length is {}; it must be 0 to 2^60", length);
    return {};
  }
  if (interpolates()) return check_interpolation(items);
  struct Number {
    const char* name;
    std::int64_t value, least;
  };
  for (const Number& number :
       {Number{"kernel", kernel, 1}, Number{"stride", stride, 1}, Number{"dilation", dilation, 1},
        Number{"the pad before", before, 0}, Number{"the pad after", after, 0}, Number{"extra", extra, 0}})
    if (number.value < number.least || number.value > kNumberMax)
      return failure(Code::kBadArgument, "{} is {}; it must be {} to 2^31", number.name, number.value,
                     number.least);
  if (Wide{dilation} * (kernel - 1) >= kNumberMax)
    return failure(Code::kBadArgument, "kernel {} with dilation {} spans more than 2^31 items", kernel,
                   dilation);
  if (pad != Pad::kZeros && kind != Kind::kConvolution)
    return failure(Code::kBadArgument, "a {} has no {} pads", name(), pad_name(pad));
  if (kind == Kind::kTransposed) {
    if (extra >= std::max(stride, dilation) && extra != 0)
      return failure(Code::kBadArgument, "extra is {}; it must be below the stride or the dilation", extra);
    const Wide count = (Wide{items} - 1) * stride - before - after + span() + extra;
    if (count < 1 || count > kItemsMax || items == 0)
      return failure(Code::kBadArgument, "stride {} makes {} results of {} items; they must be 1 to 2^60",
                     stride, count < 1 || items == 0 ? "no" : "too many", items);
    return {};
  }
  if (items + before + after < span())
    return failure(Code::kBadArgument, "the kernel spans {} items, but the dim has {} with its pads", span(),
                   items + before + after);
  const std::int64_t most = pad == Pad::kReflect ? items - 1 : items;
  if ((pad == Pad::kCircular || pad == Pad::kReflect) && std::max(before, after) > most)
    return failure(Code::kBadArgument, "{} pads of {} and {} are wider than the field, which has {} items{}",
                   pad_name(pad), before, after, items,
                   pad == Pad::kReflect ? " and reflects at its first and last one" : "");
  if (pad == Pad::kReplicate && items == 0)
    return failure(Code::kBadArgument, "there are no items to replicate");
  return {};
}

// ---- arithmetic --------------------------------------------------------------------------------

std::int64_t Window::results(std::int64_t items) const {
  switch (kind) {
    case Kind::kEach:
      return items;
    case Kind::kWhole:
      return length;
    case Kind::kConvolution:
      return (items + before + after - span()) / stride + 1;
    case Kind::kPool: {
      const std::int64_t room = items + before + after - span();
      if (!ceil) return room / stride + 1;
      const std::int64_t count = ceil_divided(room, stride) + 1;
      return (count - 1) * stride >= items + before ? count - 1 : count;
    }
    case Kind::kTransposed:
      return (items - 1) * stride - before - after + span() + extra;
    default:
      return length != 0 ? length : static_cast<std::int64_t>(static_cast<double>(items) * scale);
  }
}

Window::Mix Window::mix(std::int64_t result, std::int64_t items) const {
  const Wide o = result, n = items, m = length;
  const double step = length != 0 ? 0 : 1 / scale;  // items for each result
  const double at = static_cast<double>(result);
  const std::int64_t last = items - 1;
  const auto around = [&](Position position) -> Mix {
    const std::int64_t first = std::clamp<std::int64_t>(position.item, 0, last);
    return {first, position.item >= 0 && first < last ? position.between : 0};
  };
  switch (kind) {
    case Kind::kNearest:
      return {std::min(length != 0 ? floor_ratio(o * n, m) : position_of(at * step).item, last), 0};
    case Kind::kNearestExact:
      return {
          std::min(length != 0 ? floor_ratio((2 * o + 1) * n, 2 * m) : position_of((at + 0.5) * step).item,
                   last),
          0};
    case Kind::kLinearAligned: {
      const std::int64_t all = results(items);
      return around(all == 1 ? Position{} : position_of(o * (n - 1), all - 1));
    }
    default:
      return around(centre_of(*this, result, items));
  }
}

Extent Window::taps(std::int64_t result, std::int64_t items) const {
  const std::int64_t last = items - 1;
  if (kind == Kind::kArea)
    return {floor_ratio(Wide{result} * items, length), -floor_ratio(-(Wide{result} + 1) * items, length)};
  if (kind == Kind::kCubic) {
    const std::int64_t item = centre_of(*this, result, items).item;
    return {std::clamp<std::int64_t>(item - 1, 0, last), std::clamp<std::int64_t>(item + 2, 0, last) + 1};
  }
  const Mix read = mix(result, items);
  return {read.first, read.first + (read.next > 0 ? 2 : 1)};
}

Extent Window::reads(const Extent& results, std::int64_t items) const {
  if (results.length() == 0) return {};
  switch (kind) {
    case Kind::kEach:
      return results;
    case Kind::kWhole:
      return {0, items};
    case Kind::kConvolution:
    case Kind::kPool: {
      const Extent read{results.begin * stride - before, (results.end - 1) * stride - before + span()};
      return pad == Pad::kZeros ? common(read, {0, items}) : read;
    }
    case Kind::kTransposed:
      return common({ceil_divided(results.begin + before - (span() - 1), stride),
                     floor_divided(results.end - 1 + before, stride) + 1},
                    {0, items});
    default:
      return {taps(results.begin, items).begin, taps(results.end - 1, items).end};
  }
}

std::int64_t Window::boundary(std::int64_t start, std::int64_t items, bool aligned) const {
  const std::int64_t all = results(items);
  if (start == 0) return 0;
  if (start == items) return all;
  const std::int64_t centre = std::max<std::int64_t>(0, ceil_divided(span() - stride, 2));
  switch (kind) {
    case Kind::kEach:
      return start;
    case Kind::kWhole:
      return 0;  // the dim is not cut
    case Kind::kConvolution:
    case Kind::kPool:
      if (all == items) return start;
      if (aligned && Wide{stride} * all == items) return start / stride;
      return std::clamp<std::int64_t>(ceil_divided(start + before - centre, stride), 0, all);
    case Kind::kTransposed:
      if (Wide{stride} * items == all) return stride * start;
      return std::clamp<std::int64_t>(start * stride - before + centre, 0, all);
    default:
      return floor_ratio(Wide{start} * all, items);
  }
}

}  // namespace muster::halo
