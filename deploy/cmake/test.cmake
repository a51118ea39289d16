# muster_test(): a GoogleTest program under tests/, mirroring the folder of the code it tests.
#
#   muster_test(mesh_test SOURCES mesh_test.cpp ON muster::mesh [LABELS tsan] [TIMEOUT 120] [ARGS …])
#
# Labels: `unit` is implied and runs under ASan+UBSan; add `tsan` where threads meet; `system` starts programs.
function(muster_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;ON;VENDOR;LABELS;ARGS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "muster_test(${name}): unknown arguments '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT "system" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE muster_flags ${ARG_ON} ${ARG_VENDOR} GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
