# What `cmake --install` puts where: programs, the C library with its exports, headers, and what finds them.
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/pages.cmake)

# Programs by the name they have on disk, wherever in daemon/ their targets are.
set(_muster_program_folder_muster ${CMAKE_INSTALL_BINDIR})
set(_muster_program_folder_musterd ${CMAKE_INSTALL_SBINDIR})
set(_muster_program_folder_muster-engine ${MUSTER_ENGINE_FOLDER})

function(muster_install_programs folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      get_target_property(name ${target} OUTPUT_NAME)
      if(NOT name)
        set(name ${target})
      endif()
      if(DEFINED _muster_program_folder_${name})
        install(TARGETS ${target}
                RUNTIME DESTINATION ${_muster_program_folder_${name}} COMPONENT programs)
      endif()
    endif()
  endforeach()
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS below)
    muster_install_programs(${subfolder})
  endforeach()
endfunction()
muster_install_programs(${PROJECT_SOURCE_DIR}/daemon)

install(TARGETS muster_network_ofi muster_network_ucx LIBRARY DESTINATION ${MUSTER_LIBRARIES_FOLDER}/networks
        COMPONENT programs)

set(_headers api/include/muster/muster.h api/include/muster/collectives.h api/include/muster/kernels.h
    api/include/muster/field_kernels.h api/include/muster/halo.h api/include/muster/layouts.h
    api/include/muster/tensor_parallel.h api/include/muster/units.h api/include/muster/checkpoint.h)
install(FILES ${_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muster COMPONENT development)
install(FILES configs/schema/musterd.schema.json configs/schema/cluster.schema.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/muster/schema COMPONENT programs)
set(_configs configs/musterd.yaml configs/cluster.one-node.yaml configs/cluster.two-nodes.yaml)
install(FILES ${_configs} DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT programs)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
set(_places api/examples=examples api/examples/train_lm=examples/train_lm
    api/examples/training=examples/training api/examples/winds=examples/winds
    api/examples/all_reduce.c=examples/all_reduce.c api/examples/mlp.c=examples/mlp.c
    api/examples/README.md=examples/README.md)
foreach(_config IN LISTS _configs)
  cmake_path(GET _config FILENAME _name)
  list(APPEND _places ${_config}=examples/${_name})
endforeach()
file(RELATIVE_PATH _to_headers /prefix/${CMAKE_INSTALL_DOCDIR} /prefix/${CMAKE_INSTALL_INCLUDEDIR}/muster)
foreach(_header IN LISTS _headers)
  cmake_path(GET _header FILENAME _name)
  list(APPEND _places ${_header}=${_to_headers}/${_name})
endforeach()
list(APPEND _places api/include/muster=${_to_headers})
muster_install_pages(FOLDER ${CMAKE_INSTALL_DOCDIR} COMPONENT programs PLACES ${_places}
  PAGES README.md CHANGELOG.md SECURITY.md api/concepts.md api/launchers.md api/mpi-and-nccl.md
        configs/cluster.md)

# Units for systemd; the service names the programs where they are installed.
set(_units ${CMAKE_BINARY_DIR}/systemd)
install(CODE "
  set(bin \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR})
  set(sbin \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SBINDIR})
  configure_file(${PROJECT_SOURCE_DIR}/deploy/systemd/musterd.service.in ${_units}/musterd.service @ONLY)"
  COMPONENT programs)
install(FILES ${_units}/musterd.service deploy/systemd/musterd.socket deploy/systemd/musterd-control.socket
              deploy/systemd/muster.slice
        DESTINATION lib/systemd/system COMPONENT programs)
install(FILES deploy/systemd/muster.sysusers DESTINATION lib/sysusers.d RENAME muster.conf
        COMPONENT programs)
install(FILES deploy/systemd/muster.tmpfiles DESTINATION lib/tmpfiles.d RENAME muster.conf
        COMPONENT programs)
install(FILES deploy/systemd/one-user.conf DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT programs)

install(FILES deploy/man/muster.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
install(FILES deploy/man/musterd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8 COMPONENT programs)
install(FILES deploy/man/musterd.yaml.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 COMPONENT programs)
# bash looks for a file of the program's name.
foreach(_program muster musterd)
  install(FILES deploy/completion/muster.bash RENAME ${_program} COMPONENT programs
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES deploy/completion/muster.fish RENAME ${_program}.fish COMPONENT programs
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endforeach()
install(FILES deploy/completion/_muster
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)

if(TARGET muster)
  # Only what our headers declare leaves the library: the C++ runtime and our static parts stay inside.
  set(_map ${PROJECT_SOURCE_DIR}/deploy/libmuster.map)
  target_link_options(muster PRIVATE -Wl,--version-script=${_map} -Wl,--no-undefined-version)
  set_property(TARGET muster APPEND PROPERTY LINK_DEPENDS ${_map})
  install(TARGETS muster
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)

  set(_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/muster)
  get_target_property(MUSTER_SOVERSION muster SOVERSION)
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/musterConfig.cmake.in
    ${CMAKE_BINARY_DIR}/musterConfig.cmake
    INSTALL_DESTINATION ${_cmake_folder} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/musterConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  # The prefix is found from where the file lies, so an installation can be moved.
  file(RELATIVE_PATH MUSTER_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/muster.pc.in ${CMAKE_BINARY_DIR}/muster.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/musterConfig.cmake ${CMAKE_BINARY_DIR}/musterConfigVersion.cmake
          DESTINATION ${_cmake_folder} COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/muster.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

  # As sources, to be copied: their Makefile builds them with what is installed.
  set(_examples ${PROJECT_SOURCE_DIR}/api/examples)
  install(FILES ${_examples}/Makefile ${_examples}/README.md ${_examples}/all_reduce.c ${_examples}/heat.c
                ${_examples}/kernels.c ${_examples}/mlp.c ${_examples}/overlap.c ${_examples}/recover.c
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
  install(DIRECTORY ${_examples}/train_lm ${_examples}/training ${_examples}/winds
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
endif()
