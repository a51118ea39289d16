// Counts every allocation of the test program that links counted_new.cpp.
#pragma once

#include <cstdint>

namespace muster::transport::test {

// Calls of operator new so far, on all threads.
std::uint64_t allocations() noexcept;

}  // namespace muster::transport::test
