# Headers that most sources include, parsed once in a build: half of what the sources took to compile.
#
#   muster_precompile(TARGET SET)   SET: library, daemon, tests, or tests_<json, engine, supervisor>
#
# A source still includes what it uses: the fuzz preset builds without these, and tests/tidy/headers_test.py
# compiles each header of ours alone. GCC takes precompiled headers for code of the same kind only:
# position-independent as here, and optimised or not.
set(_muster_library_headers
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <optional> <span>
  <string> <string_view> <utility> <vector> <fmt/format.h> <tl/expected.hpp>)

# HOT: for targets that are optimised where others are not. PROGRAM: for programs of tests, not for libraries.
function(_muster_header_set name)
  cmake_parse_arguments(ARG "HOT;PROGRAM" "FLAGS" "HEADERS;ON" ${ARGN})
  if(NOT ARG_FLAGS)
    set(ARG_FLAGS muster_flags)
  endif()
  set(target muster_headers_${name})
  set(source ${CMAKE_BINARY_DIR}/precompiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// What precompiled headers belong to.\n")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/api/include)
  target_link_libraries(${target} PRIVATE ${ARG_FLAGS} muster::fmt tl::expected ${ARG_ON})
  target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  set_target_properties(${target} PROPERTIES MUSTER_HOT ${ARG_HOT})
  if(ARG_PROGRAM)
    muster_compile_as_test(${target})
    target_compile_options(${target} PRIVATE -fPIE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
endfunction()

_muster_header_set(library HEADERS ${_muster_library_headers})
_muster_header_set(library_hot HOT HEADERS ${_muster_library_headers})
_muster_header_set(daemon HEADERS ${_muster_library_headers} <nlohmann/json.hpp>
  ON nlohmann_json::nlohmann_json)

# nlohmann-json apart: whoever includes it instantiates a parser, half a second for each test that has no
# use for one. The headers of engine and supervisor take two to four seconds in each test that begins with
# them.
if(MUSTER_BUILD_TESTS)
  set(_muster_test_headers
    <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <filesystem> <fstream> <functional>
    <map> <memory> <mutex> <optional> <random> <set> <span> <string> <thread> <vector>
    <fmt/format.h> <tl/expected.hpp>)
  _muster_header_set(tests PROGRAM FLAGS muster_test_flags HEADERS ${_muster_test_headers}
    ON GTest::gmock GTest::gtest)
  _muster_header_set(tests_hot HOT PROGRAM FLAGS muster_test_flags HEADERS ${_muster_test_headers}
    ON GTest::gmock GTest::gtest)
  _muster_header_set(tests_json PROGRAM FLAGS muster_test_flags
    HEADERS ${_muster_test_headers} <nlohmann/json.hpp>
    ON GTest::gmock GTest::gtest nlohmann_json::nlohmann_json)
  _muster_header_set(tests_engine PROGRAM FLAGS muster_test_flags
    HEADERS ${_muster_test_headers} <nlohmann/json.hpp> ${PROJECT_SOURCE_DIR}/daemon/engine/job/conductor.hpp
    ON GTest::gmock GTest::gtest nlohmann_json::nlohmann_json)
  _muster_header_set(tests_supervisor PROGRAM FLAGS muster_test_flags
    HEADERS ${_muster_test_headers} <nlohmann/json.hpp>
      ${PROJECT_SOURCE_DIR}/daemon/supervisor/program/supervisor.hpp
    ON GTest::gmock GTest::gtest nlohmann_json::nlohmann_json)
endif()

# Several sources as one. -DMUSTER_TOGETHER=OFF compiles each alone: who edits one waits less.
function(muster_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MUSTER_TOGETHER} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

function(muster_precompile target set)
  if(NOT MUSTER_TOGETHER)
    return()
  endif()
  get_target_property(hot ${target} MUSTER_HOT)
  get_target_property(top ${target} MUSTER_TOP)
  if(top STREQUAL kernels AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()  # compiled with -fopenmp-simd, which is a language of its own to Clang
  endif()
  if((MUSTER_SANITIZE OR set STREQUAL tests) AND (hot OR top STREQUAL kernels))
    set(set ${set}_hot)
  endif()
  target_precompile_headers(${target} REUSE_FROM muster_headers_${set})
endfunction()
