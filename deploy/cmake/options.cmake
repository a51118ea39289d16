# Build options and the flags that every target of ours shares.
option(MUSTER_BUILD_TESTS "Build the tests and benchmarks" ON)
option(MUSTER_WERROR "Treat warnings as errors (the presets do)" OFF)
option(MUSTER_TOGETHER "Compile the sources of large libraries several at a time, and headers once" ON)
set(MUSTER_SANITIZE "" CACHE STRING "Sanitizers to build with, comma-separated (address,undefined | thread)")
option(MUSTER_FUZZ "Build the fuzz targets with libFuzzer; needs clang (the preset fuzz)" OFF)
set(MUSTER_CUDA "AUTO" CACHE STRING "Build the cuda backend: AUTO (where nvcc is found), ON, OFF")
set_property(CACHE MUSTER_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

find_program(MUSTER_CCACHE ccache)
if(MUSTER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppy as its manual asks for precompiled headers; nothing here writes the time of its build.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${MUSTER_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${MUSTER_CCACHE})
endif()

add_library(muster_flags INTERFACE)
target_compile_options(muster_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong -ffp-contract=off -fno-math-errno>
  $<$<AND:$<BOOL:${MUSTER_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
# A contraction or a reassociation would change results between builds (decision D14), so neither is ever on.
if(MUSTER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MUSTER_FUZZ needs clang, this is ${CMAKE_CXX_COMPILER_ID}; use cmake --preset fuzz")
  endif()
  # Coverage for the fuzzer; its main() is linked into the targets alone.
  target_compile_options(muster_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
  target_link_options(muster_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(MUSTER_SANITIZE)
  string(REPLACE "," ";" _sanitizers "${MUSTER_SANITIZE}")
  foreach(_sanitizer IN LISTS _sanitizers)
    target_compile_options(muster_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${_sanitizer}>)
    target_link_options(muster_flags INTERFACE -fsanitize=${_sanitizer})
  endforeach()
  # AddressSanitizer stops at the same places: at a null pointer, and outside an object. Only the lower floors
  # make pointers of bytes. Without these checks a build takes three quarters of the time.
  set(_makes_pointers $<IN_LIST:$<TARGET_PROPERTY:MUSTER_TOP>,api$<SEMICOLON>kernels$<SEMICOLON>transport>)
  if("undefined" IN_LIST _sanitizers AND "address" IN_LIST _sanitizers)
    target_compile_options(muster_flags INTERFACE
      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=null,vptr,object-size>
      $<$<NOT:${_makes_pointers}>:-fno-sanitize=alignment>)
  endif()
  # Instruments make an optimised build twice as long; only loops over long vectors are worth that: the
  # kernels, and what says MUSTER_HOT. What is fuzzed runs far longer than it builds.
  set(_kernels $<STREQUAL:$<TARGET_PROPERTY:MUSTER_TOP>,kernels>)
  set(_hot $<OR:${_kernels},$<BOOL:$<TARGET_PROPERTY:MUSTER_HOT>>>)
  target_compile_options(muster_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer -fno-sanitize-recover=all -g1>
    $<$<COMPILE_LANGUAGE:C,CXX>:$<IF:$<BOOL:${MUSTER_FUZZ}>,-O2,$<IF:${_hot},-O1,-O0>>>)
  target_compile_definitions(muster_flags INTERFACE MUSTER_SANITIZED=1)
else()
  target_compile_definitions(muster_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
  target_link_options(muster_flags INTERFACE -Wl,-z,relro,-z,now)
endif()

# What is on no operation's path: hardly optimised, which builds in two thirds of the time.
function(muster_off_path target)
  if(NOT MUSTER_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O1>)
  endif()
endfunction()

# What tests add: they are built oftener than they run, so their own code is optimised only where it is HOT.
add_library(muster_test_flags INTERFACE)
target_link_libraries(muster_test_flags INTERFACE muster_flags)
if(NOT MUSTER_SANITIZE)
  set(_hot $<BOOL:$<TARGET_PROPERTY:MUSTER_HOT>>)
  target_compile_options(muster_test_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-g1 $<IF:${_hot},-O1,-O0 -U_FORTIFY_SOURCE>>)
endif()
# They take two thirds of the time of the default linker, and less.
set(_linker gold)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(_linker lld)
endif()
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=${_linker} MUSTER_HAS_LINKER)
if(MUSTER_HAS_LINKER)
  target_link_options(muster_test_flags INTERFACE -fuse-ld=${_linker})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Wrong about sums of strings (GCC bug 105651), and precompiled they are no system header's any more.
  target_compile_options(muster_test_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-array-bounds -Wno-stringop-overflow>)
endif()
# A compiler's cache may have a precompiled header that is older than the sources in a new clone.
set(_clang_flags -fpch-validate-input-files-content)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(muster_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${_clang_flags}>)
endif()

# Where GCC compiles what ships, Clang compiles the tests, if it is there: it takes six tenths of the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_program(MUSTER_TEST_COMPILER clang++-14)
endif()
function(muster_compile_as_test target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND MUSTER_TEST_COMPILER)
    set(as_clang ${PROJECT_SOURCE_DIR}/deploy/cmake/by_clang.sh ${MUSTER_TEST_COMPILER} ${CMAKE_CXX_COMPILER}
      ${CMAKE_CXX_COMPILER_LAUNCHER})
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${as_clang}")
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:${_clang_flags};-fpch-instantiate-templates;-Wno-unknown-warning-option>")
  endif()
endfunction()
