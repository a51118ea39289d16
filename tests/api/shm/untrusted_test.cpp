#include "api/shm/untrusted.hpp"

#include "tests/api/shm/chameleon.hpp"

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

template<class View>
concept Stores = requires(View view) {
  view.store(std::uint64_t{1});
};
template<class View>
concept Loads = requires(View view) {
  view.load();
};
template<class View>
concept HasArrow = requires(View view) {
  view.operator->();
};

// Goal: a word of the other side cannot be used but through one load, and cannot be written at all.
using View = Untrusted<std::uint64_t>;
static_assert(!std::is_convertible_v<View, std::uint64_t>);
static_assert(!std::is_convertible_v<View, const std::uint64_t&>);
static_assert(!std::is_convertible_v<View, const std::uint64_t*>);
static_assert(!std::is_convertible_v<const std::uint64_t*, View>);
static_assert(!std::is_reference_v<decltype(std::declval<View>().load())>);
static_assert(!HasArrow<View>);
static_assert(!std::equality_comparable<View>);
static_assert(Loads<View> && !Stores<View>);
// And the writer cannot read back what it wrote.
static_assert(Stores<Published<std::uint64_t>> && !Loads<Published<std::uint64_t>>);
static_assert(!std::is_convertible_v<Published<std::uint64_t>, std::uint64_t>);

TEST(Untrusted, ReadsTheWordOncePerCall) {
  ChameleonAtomics::reset();
  ChameleonAtomics::answer = [](std::uint64_t, int nth, const void*) {
    return 100u + static_cast<unsigned>(nth);
  };
  const std::uint64_t word = 7;
  const Untrusted<std::uint64_t, ChameleonAtomics> view(&word);
  const std::uint64_t copy = view.load();
  EXPECT_EQ(copy, 101u);
  EXPECT_EQ(copy, 101u) << "a copy does not change";
  EXPECT_EQ(view.load_acquire(), 102u);
  EXPECT_EQ(view.load_ordered(), 103u);
  EXPECT_EQ(ChameleonAtomics::loads[&word], 3);
}

TEST(Untrusted, ReadsWhatItsWriterPublished) {
  std::uint64_t word = 0;
  Published<std::uint64_t> writer(&word);
  const Untrusted<std::uint64_t> reader(&word);
  writer.store(1);
  EXPECT_EQ(reader.load(), 1u);
  writer.store_release(2);
  EXPECT_EQ(reader.load_acquire(), 2u);
  writer.store_ordered(3);
  EXPECT_EQ(reader.load_ordered(), 3u);
  writer.add(4);
  writer.add_ordered(5);
  EXPECT_EQ(reader.load(), 12u);
}

TEST(Untrusted, WorksOnEnumerations) {
  enum class Kind : std::uint16_t { kNone, kSome };
  Kind word = Kind::kNone;
  Published<Kind>(&word).store_release(Kind::kSome);
  EXPECT_EQ(Untrusted<Kind>(&word).load(), Kind::kSome);
}

}  // namespace
}  // namespace muster::shm
