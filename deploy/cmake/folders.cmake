# Where what is installed lies (GNUInstallDirs), and how a program finds from there the one that it starts.
include(GNUInstallDirs)

set(MUSTER_ENGINE_FOLDER ${CMAKE_INSTALL_LIBEXECDIR}/muster)

# Relative, so an installation can be moved.
function(muster_relative_folder variable from to)
  cmake_path(ABSOLUTE_PATH from BASE_DIRECTORY /prefix)
  cmake_path(ABSOLUTE_PATH to BASE_DIRECTORY /prefix)
  file(RELATIVE_PATH path ${from} ${to})
  set(${variable} "${path}" PARENT_SCOPE)
endfunction()
muster_relative_folder(MUSTER_DAEMON_FROM_COMMAND ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_SBINDIR})
# Of modules that programs load.
set(MUSTER_LIBRARIES_FOLDER ${CMAKE_INSTALL_LIBDIR}/muster)
muster_relative_folder(MUSTER_LIBRARIES_FROM_COMMAND ${CMAKE_INSTALL_BINDIR} ${MUSTER_LIBRARIES_FOLDER})
muster_relative_folder(MUSTER_ENGINE_FROM_DAEMON ${CMAKE_INSTALL_SBINDIR} ${MUSTER_ENGINE_FOLDER})
