# muster_floor(): a library that cannot link upwards.
#
#   muster_floor(mesh FLOOR 4 FOLDER scheduler/mesh SOURCES mesh.cpp ON muster::base [VENDOR pkg::pkg]
#                [PRECOMPILED library|daemon|OFF] [TOGETHER] [HOT] [OFF_PATH])
#
# creates target muster_mesh with alias muster::mesh. ON lists our libraries on lower floors, or siblings of
# the same top-level folder; VENDOR lists packages, which never appear in our headers (PRIVATE). The floors
# are those of ARCHITECTURE.md: a link to a higher floor, or across at one floor, stops the configure step.
#
#   PRECOMPILED  the set of headers (precompile.cmake) that each source begins with; library if not said
#   TOGETHER     several sources are compiled as one: names in their anonymous namespaces must differ
#   ALONE        but for these, in whose place a test links its own
#   HOT          works on long vectors: optimised under the sanitizers too
#   OFF_PATH     on no operation's path: hardly optimised, for it builds faster
function(muster_floor name)
  cmake_parse_arguments(
    ARG "HOT;OFF_PATH;TOGETHER" "FLOOR;FOLDER;PRECOMPILED" "SOURCES;ALONE;ON;VENDOR;VENDOR_PUBLIC" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT DEFINED ARG_FLOOR OR NOT ARG_FOLDER)
    message(FATAL_ERROR "muster_floor(${name}): needs FLOOR and FOLDER; unknown: '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT DEFINED ARG_PRECOMPILED)
    set(ARG_PRECOMPILED library)
  endif()
  set(target muster_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE muster_flags ${ARG_VENDOR})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(muster::${name} ALIAS ${target})
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/api/include)
  target_link_libraries(${target} ${scope} ${ARG_ON} ${ARG_VENDOR_PUBLIC})
  string(REGEX MATCH "^[^/]+" top "${ARG_FOLDER}")
  set_target_properties(${target} PROPERTIES
    MUSTER_FLOOR ${ARG_FLOOR} MUSTER_TOP ${top} MUSTER_ON "${ARG_ON}" MUSTER_HOT ${ARG_HOT})
  if(ARG_SOURCES AND ARG_PRECOMPILED)
    muster_precompile(${target} ${ARG_PRECOMPILED})
  endif()
  if(ARG_TOGETHER)
    muster_compile_together(${target})
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(ARG_OFF_PATH)
    muster_off_path(${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY MUSTER_FLOOR_TARGETS ${target})
endfunction()

# Refuses an upward or sideways link, once all targets are known.
function(muster_check_floors)
  get_property(targets GLOBAL PROPERTY MUSTER_FLOOR_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(floor ${target} MUSTER_FLOOR)
    get_target_property(top ${target} MUSTER_TOP)
    get_target_property(on ${target} MUSTER_ON)
    foreach(dependency IN LISTS on)
      if(NOT TARGET ${dependency})
        message(FATAL_ERROR "${target} (floor ${floor}) names ${dependency}, which does not exist")
      endif()
      get_target_property(lower ${dependency} ALIASED_TARGET)
      if(NOT lower)
        set(lower ${dependency})
      endif()
      get_target_property(lower_floor ${lower} MUSTER_FLOOR)
      get_target_property(lower_top ${lower} MUSTER_TOP)
      if(lower_floor STREQUAL "lower_floor-NOTFOUND")
        message(FATAL_ERROR "${target}: ${dependency} is not a floor of ours; list packages under VENDOR")
      endif()
      if(lower_floor GREATER floor)
        message(FATAL_ERROR
          "${target} (floor ${floor}) may not use ${dependency} (floor ${lower_floor}): never upwards")
      elseif(lower_floor EQUAL floor AND NOT lower_top STREQUAL top)
        message(FATAL_ERROR "${target} (${top}) may not use ${dependency} (${lower_top}): never across")
      endif()
    endforeach()
  endforeach()
endfunction()
