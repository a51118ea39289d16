// The literal cases of uneven shards, worked out by hand: x = 1, 2, …, w = 1, 2, …, dy = 1.
#pragma once

#include "tests/api/base/halo/played.hpp"

#include <cstdint>
#include <vector>

namespace muster::halo::test {

struct Literal {
  const char* name;
  Items sizes;
  Window window;
  Items boundaries;
  std::vector<double> y, dx, dw;
  std::int64_t moved = -1;  // ghosts that travel
};

inline Window convolution(std::int64_t kernel, std::int64_t stride = 1, std::int64_t dilation = 1,
                          std::int64_t before = 0, std::int64_t after = 0,
                          Window::Pad pad = Window::Pad::kZeros) {
  return {Window::Kind::kConvolution, kernel, stride, dilation, before, after, pad};
}

inline std::vector<Literal> plain_windows() {
  const Window same = convolution(3, 1, 1, 1, 1);
  const std::vector<double> y8{8, 14, 20, 26, 32, 38, 44, 23}, dx8{3, 6, 6, 6, 6, 6, 6, 5}, dw8{28, 36, 35};
  const std::vector<double> y6{8, 14, 20, 26, 32, 17}, dx6{3, 6, 6, 6, 6, 5}, dw6{15, 21, 20};
  return {
      {"T1", {4, 4}, same, {0, 4, 8}, y8, dx8, dw8, 2},
      {"T2", {5, 3}, same, {0, 5, 8}, y8, dx8, dw8, 2},
      {"T3",
       {4, 4},
       convolution(3, 2, 1, 1, 1),
       {0, 2, 4},
       {8, 20, 32, 44},
       {2, 4, 2, 4, 2, 4, 2, 3},
       {12, 16, 20},
       1},
      {"T4",
       {5, 5},
       convolution(3, 2, 1, 1, 1),
       {0, 3, 5},
       {8, 20, 32, 44, 56},
       {2, 4, 2, 4, 2, 4, 2, 4, 2, 3},
       {20, 25, 30},
       1},
      {"T5",
       {5, 5},
       convolution(2, 2),
       {0, 3, 5},
       {5, 11, 17, 23, 29},
       {1, 2, 1, 2, 1, 2, 1, 2, 1, 2},
       {25, 30},
       1},
      {"T6",
       {1, 1, 1, 5},
       convolution(7, 1, 1, 3, 3),
       {0, 1, 2, 3, 8},
       {60, 85, 112, 140, 168, 133, 100, 70},
       {10, 15, 21, 28, 28, 27, 25, 22},
       {15, 21, 28, 36, 35, 33, 30},
       15},
      {"T7", {1, 1, 1, 1}, same, {0, 1, 2, 3, 4}, {8, 14, 20, 11}, {3, 6, 6, 5}, {6, 10, 9}, 6},
      {"T8", {3, 0, 3}, same, {0, 3, 3, 6}, y6, dx6, dw6, 2},
      {"T9", {0, 3, 3}, same, {0, 0, 3, 6}, y6, dx6, dw6, 2},
  };
}

inline std::vector<Literal> odd_windows() {
  return {
      {"T10",
       {5, 4},
       convolution(3, 1, 2, 2, 2),
       {0, 5, 9},
       {11, 16, 22, 28, 34, 40, 46, 22, 25},
       {3, 3, 6, 6, 6, 6, 6, 5, 5},
       {28, 45, 42},
       4},
      {"T11",
       {4, 4},
       convolution(4, 1, 1, 1, 1),
       {0, 3, 7},
       {20, 30, 40, 50, 60, 70, 44},
       {3, 6, 10, 10, 10, 10, 9, 7},
       {21, 28, 35, 33},
       3},
      {"T11b",
       {4, 4},
       convolution(4),
       {0, 2, 5},
       {30, 40, 50, 60, 70},
       {1, 3, 6, 10, 10, 9, 7, 4},
       {15, 20, 25, 30},
       3},
      {"T15",
       {3, 4, 3},
       convolution(2, 4),
       {0, 1, 2, 3},
       {5, 17, 29},
       {1, 2, 0, 0, 1, 2, 0, 0, 1, 2},
       {15, 18},
       0},
      {"T16",
       {3, 3},
       convolution(3, 1, 1, 3, 3),
       {0, 5, 10},
       {0, 3, 8, 14, 20, 26, 32, 17, 6, 0},
       {6, 6, 6, 6, 6, 6},
       {21, 21, 21},
       2},
      {"T17",
       {4, 4},
       convolution(3),
       {0, 3, 6},
       {14, 20, 26, 32, 38, 44},
       {1, 3, 6, 6, 6, 6, 5, 3},
       {21, 27, 33},
       2},
  };
}

inline std::vector<Literal> one_sided_windows() {
  return {
      {"T18",
       {5, 4},
       convolution(3, 2, 2, 3, 0),
       {0, 3, 4},
       {6, 16, 28, 40},
       {0, 6, 0, 6, 0, 5, 0, 3, 0},
       {6, 12, 20},
       3},
      {"T19",
       {4, 2, 4},
       convolution(2, 4, 1, 1, 0),
       {0, 2, 2, 3},
       {2, 14, 26},
       {2, 0, 0, 1, 2, 0, 0, 1, 2, 0},
       {12, 15},
       1},
      {"C14",
       {1, 1, 6},
       convolution(4, 1, 1, 3, 0),
       {0, 1, 2, 8},
       {4, 11, 20, 30, 40, 50, 60, 70},
       {10, 10, 10, 10, 10, 9, 7, 4},
       {15, 21, 28, 36},
       3},
  };
}

inline std::vector<Literal> other_pads() {
  return {
      {"T12",
       {2, 2, 2},
       convolution(3, 1, 1, 1, 1, Window::Pad::kCircular),
       {0, 2, 4, 6},
       {14, 14, 20, 26, 32, 20},
       {6, 6, 6, 6, 6, 6},
       {21, 21, 21},
       6},
      {"T13",
       {2, 2},
       convolution(3, 1, 1, 1, 1, Window::Pad::kCircular),
       {0, 2, 4},
       {12, 14, 20, 14},
       {6, 6, 6, 6},
       {10, 10, 10},
       4},
      {"T14",
       {4},
       convolution(3, 1, 1, 1, 1, Window::Pad::kCircular),
       {0, 4},
       {12, 14, 20, 14},
       {6, 6, 6, 6},
       {10, 10, 10},
       0},
      {"C7 reflect",
       {1, 3, 4},
       convolution(5, 1, 1, 2, 2, Window::Pad::kReflect),
       {0, 1, 4, 8},
       {33, 42, 55, 70, 85, 100, 105, 102},
       {6, 13, 16, 15, 15, 20, 23, 12},
       {26, 30, 36, 42, 46},
       9},
      {"C7 replicate",
       {1, 2, 3, 4},
       convolution(3, 1, 1, 2, 0, Window::Pad::kReplicate),
       {0, 1, 3, 6, 10},
       {6, 9, 14, 20, 26, 32, 38, 44, 50, 56},
       {10, 6, 6, 6, 6, 6, 6, 6, 5, 3},
       {38, 46, 55},
       6},
  };
}

inline std::vector<Literal> literals() {
  std::vector<Literal> all = plain_windows();
  for (const auto& more : {odd_windows(), one_sided_windows(), other_pads()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace muster::halo::test
