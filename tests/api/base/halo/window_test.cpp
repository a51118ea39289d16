#include "api/base/halo/window.hpp"

#include "api/base/halo/reach.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace muster::halo {
namespace {

using Kind = Window::Kind;

struct Interpolated {
  Window window;
  std::int64_t items;
  std::vector<Extent> reads;  // by result
};

// Goal:   cases I1 to I5: interpolations read what torch's formulas read, and no item of which they take
// nothing.
TEST(HaloWindow, InterpolatesFromTheKnownItems) {
  const auto sized = [](Kind kind, std::int64_t length) {
    Window window;
    window.kind = kind;
    window.length = length;
    return window;
  };
  for (const Interpolated& c : {
           Interpolated{
               sized(Kind::kLinear, 8), 4, {{0, 1}, {0, 2}, {0, 2}, {1, 3}, {1, 3}, {2, 4}, {2, 4}, {3, 4}}},
           Interpolated{sized(Kind::kNearest, 6), 2, {{0, 1}, {0, 1}, {0, 1}, {1, 2}, {1, 2}, {1, 2}}},
           Interpolated{sized(Kind::kNearest, 4), 8, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
           Interpolated{sized(Kind::kNearestExact, 4), 8, {{1, 2}, {3, 4}, {5, 6}, {7, 8}}},
           Interpolated{sized(Kind::kArea, 4), 10, {{0, 3}, {2, 5}, {5, 8}, {7, 10}}},
           Interpolated{sized(Kind::kLinearAligned, 5), 3, {{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}}},
           Interpolated{sized(Kind::kCubic, 4), 2, {{0, 2}, {0, 2}, {0, 2}, {0, 2}}},
       }) {
    ASSERT_TRUE(c.window.check(c.items).ok());
    ASSERT_EQ(c.window.results(c.items), static_cast<std::int64_t>(c.reads.size()));
    for (std::size_t o = 0; o < c.reads.size(); ++o) {
      const auto result = static_cast<std::int64_t>(o);
      EXPECT_EQ(c.window.reads({result, result + 1}, c.items), c.reads[o]) << c.window.name() << " " << o;
    }
  }
  Window scaled;
  scaled.kind = Kind::kLinear;
  scaled.scale = 1.5;
  EXPECT_EQ(scaled.results(5), 7);
  EXPECT_EQ(scaled.reads({0, 7}, 5), (Extent{0, 5}));
}

// Goal:   a number that makes no sense is refused by its name.
TEST(HaloWindow, RefusesByName) {
  struct Case {
    Window window;
    std::int64_t items;
    const char* text;
  };
  using Pad = Window::Pad;
  for (const Case& c : {
           Case{{Kind::kConvolution, 0}, 8, "kernel is 0"},
           Case{{Kind::kConvolution, 3, 0}, 8, "stride is 0"},
           Case{{Kind::kConvolution, 3, 1, -1}, 8, "dilation is -1"},
           Case{{Kind::kConvolution, 3, 1, 1, -1}, 8, "the pad before is -1"},
           Case{{Kind::kConvolution, 7}, 6, "the kernel spans 7 items, but the dim has 6 with its pads"},
           Case{{Kind::kConvolution, 1 << 20, 1, 1 << 20}, 8, "spans more than 2^31 items"},
           Case{{Kind::kConvolution, 9, 1, 1, 4, 4, Pad::kReflect},
                4,
                "reflect pads of 4 and 4 are wider than the field"},
           Case{{Kind::kConvolution, 9, 1, 1, 5, 4, Pad::kCircular},
                4,
                "circular pads of 5 and 4 are wider than the field"},
           Case{{Kind::kPool, 3, 1, 1, 1, 1, Pad::kCircular}, 8, "a pool has no circular pads"},
           Case{{Kind::kTransposed, 2, 2, 1, 0, 0, Pad::kZeros, false, 2}, 8, "extra is 2"},
           Case{{Kind::kTransposed, 1, 1, 1, 4, 4}, 8, "makes no results of 8 items"},
           Case{{Kind::kTransposed, 2, std::int64_t{1} << 31}, std::int64_t{1} << 50, "too many results"},
           Case{{Kind::kNearest}, 8, "length is 0 and scale is 0; one of them must be above 0"},
           Case{{Kind::kConvolution}, (std::int64_t{1} << 60) + 1, "more than 2^60"},
       }) {
    const Status status = c.window.check(c.items);
    EXPECT_EQ(status.code(), Code::kBadArgument) << c.text;
    EXPECT_NE(status.message().find(c.text), std::string::npos) << status.message();
  }
}

// Goal:   results rise with what they read, at both ends; the searches stand on that.
TEST(HaloWindow, ReadsInRisingOrder) {
  for (int kind = static_cast<int>(Kind::kConvolution); kind <= static_cast<int>(Kind::kArea); ++kind)
    for (std::int64_t items = 1; items <= 12; ++items)
      for (std::int64_t number = 1; number <= 24; ++number) {
        Window window;
        window.kind = static_cast<Kind>(kind);
        if (window.kind >= Kind::kNearest) {
          window.length = number;
        } else {
          window.kernel = number % 5 + 1;
          window.stride = number % 4 + 1;
          window.before = window.after = number % 3;
        }
        if (!window.check(items).ok()) continue;
        Extent before{0, 0};
        for (std::int64_t o = 0; o < window.results(items); ++o) {
          const Extent read = window.reads({o, o + 1}, items);
          EXPECT_GE(read.begin, before.begin);
          EXPECT_GE(read.end, before.end);
          EXPECT_GE(read.begin, 0);
          EXPECT_LE(read.end, items);
          before = read;
        }
        EXPECT_EQ(window.boundary(0, items, false), 0);
        EXPECT_EQ(window.boundary(items, items, false), window.results(items));
        for (std::int64_t a = 1; a <= items; ++a)
          EXPECT_GE(window.boundary(a, items, false), window.boundary(a - 1, items, false)) << window.name();
      }
}

}  // namespace
}  // namespace muster::halo
