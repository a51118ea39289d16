// What every fuzz target defines, and both who call it agree on: libFuzzer, and replay.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
