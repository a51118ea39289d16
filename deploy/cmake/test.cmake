# muster_test(): a GoogleTest program under tests/, mirroring the folder of the code it tests.
#
#   muster_test(mesh_test SOURCES mesh_test.cpp ON muster::mesh [LABELS tsan] [TIMEOUT 120] [ARGS …] [HOT]
#               [LONG])
#
# Labels, and which preset of `make test` runs them beside release, which runs all:
#   unit    implied, unless system or model is said     debug (ASan, UBSan)
#   tsan    where threads meet                          tsan
#   system  starts programs; alone on the machine       -
#   model   trains; alone on the machine                -
# HOT: works on long vectors, so it is optimised, under the sanitizers too.
# LONG: takes half a minute under a sanitizer. It starts first, or the cores would wait for it in the end.
# Several SOURCES are compiled as one: names in their anonymous namespaces must differ.
# Tests and benchmarks are built when asked for: target tests_all, tests_<label> or the program's own name.
add_custom_target(tests_all)
foreach(_label unit tsan system model)
  add_custom_target(tests_${_label})
endforeach()
add_custom_target(benches)

# Else daemons would measure what their node costs, and ranks choose other algorithms from run to run.
set(_muster_given_costs MUSTER_SET_costs__meeting=130ns MUSTER_SET_costs__turn=1500ns
  MUSTER_SET_costs__cached_rate=80000000000B MUSTER_SET_costs__memory_rate=20000000000B)

function(muster_test name)
  cmake_parse_arguments(ARG "HOT;LONG" "TIMEOUT" "SOURCES;ON;VENDOR;LABELS;ARGS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "muster_test(${name}): unknown arguments '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set(alone OFF)
  if("system" IN_LIST ARG_LABELS OR "model" IN_LIST ARG_LABELS)
    set(alone ON)
  else()
    list(APPEND ARG_LABELS unit)
  endif()
  list(REMOVE_DUPLICATES ARG_LABELS)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE muster_test_flags ${ARG_ON} ${ARG_VENDOR}
    GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests MUSTER_HOT ${ARG_HOT})
  muster_compile_as_test(${name})
  if(ARG_HOT)
    muster_precompile(${name} tests)
  elseif("muster::engine" IN_LIST ARG_ON)
    muster_precompile(${name} tests_engine)
  elseif("muster_test_node" IN_LIST ARG_ON OR "muster::supervisor" IN_LIST ARG_ON)
    muster_precompile(${name} tests_supervisor)
  elseif("nlohmann_json::nlohmann_json" IN_LIST ARG_VENDOR)
    muster_precompile(${name} tests_json)
  else()
    muster_precompile(${name} tests)
  endif()
  muster_compile_together(${name})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${alone}
    ENVIRONMENT "${_muster_given_costs}")
  if(ARG_LONG)
    set_tests_properties(${name} PROPERTIES COST 60)
  endif()
  add_dependencies(tests_all ${name})
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET tests_${label})
      message(FATAL_ERROR "muster_test(${name}): label '${label}' is not one of unit, tsan, system, model")
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# muster_test_program(): a program in build/<preset>/tests that tests start, such as a rank.
#
#   muster_test_program(steady_rank SOURCES steady_rank.cpp ON muster::client)
function(muster_test_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ON" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE muster_test_flags ${ARG_ON})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests MUSTER_HOT ON)
  muster_compile_as_test(${name})
endfunction()

# muster_bench(): a program in build/<preset>/bench that `make bench` builds and runs with `--json FILE
# --plots FOLDER`.
#
#   muster_bench(ring_bench SOURCES ring_bench.cpp ON muster::shm [MEASURED])
#
# MEASURED: its own code is what is measured, so the compiler of what ships compiles it. Others only call.
function(muster_bench name)
  cmake_parse_arguments(ARG "MEASURED" "" "SOURCES;ON;VENDOR" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "muster_bench(${name}): unknown arguments '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE muster_flags ${ARG_ON} ${ARG_VENDOR})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  if(NOT ARG_MEASURED)
    muster_compile_as_test(${name})
  endif()
  muster_compile_together(${name})
  add_dependencies(benches ${name})
endfunction()
