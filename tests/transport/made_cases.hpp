// The cases of a test that runs many times, each time with another backend or another seed of its faults: the
// cases are the same each time, and to make them takes longer than to run them.
#pragma once

#include "tests/transport/collective_case.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::transport::test {

// Owns    the cases of one test, until those of another are asked for.
// Thread  one.
// Bound   kBytesMax: a case beyond that is made each time.
// Fails   never.
class MadeCases {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  // `number`: of the case in its test, from 0 on.
  std::shared_ptr<const Case> get(const std::string& test, std::size_t number, const Shape& shape) {
    if (test != test_) {
      made_.clear();
      bytes_ = 0;
      test_ = test;
    }
    if (number < made_.size() && made_[number].shape == shape.text()) return made_[number].made;
    auto made = std::make_shared<const Case>(make_case(shape));
    const std::size_t bytes = made->before.size() + made->after.size();
    if (number == made_.size() && bytes_ + bytes <= kBytesMax) {
      bytes_ += bytes;
      made_.push_back({shape.text(), made});
    }
    return made;
  }

 private:
  struct Entry {
    std::string shape;
    std::shared_ptr<const Case> made;
  };
  std::string test_;
  std::vector<Entry> made_;
  std::size_t bytes_ = 0;
};

}  // namespace muster::transport::test
