# Where things are installed, and how programs find each other there.
#
#   bin                   the programs that users call
#   libexec/hyperloop     those that they do not call: what hyperloopctl becomes
#   lib                   librocksdb_hyperloop.so, hyperloop_core, CMake packages, pkg-config files
#   share/hyperloop       the Python of db_bench_ext, a dashboard, alerts
#   share/doc/hyperloop   documents, licence, examples
#
# A program finds the rest relative to its own place, so an installed tree may be moved. The folders are those of
# GNUInstallDirs, and -DCMAKE_INSTALL_LIBDIR=… and its like change them. Components: rnicd, replica, tools, plugin
# (librocksdb_hyperloop.so), dev (headers and what linking needs), core (hyperloop_core alone), doc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HYPERLOOP_LIBEXECDIR ${CMAKE_INSTALL_LIBEXECDIR}/hyperloop)
set(HYPERLOOP_DATADIR ${CMAKE_INSTALL_DATADIR}/hyperloop)

# hyperloop_relative(VARIABLE FOLDER FROM): the way from one installed folder to another; each may be absolute.
function(hyperloop_relative VARIABLE FOLDER FROM)
  foreach(end FOLDER FROM)
    cmake_path(ABSOLUTE_PATH ${end} BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE OUTPUT_VARIABLE ${end})
  endforeach()
  file(RELATIVE_PATH way ${FROM} ${FOLDER})
  set(${VARIABLE} ${way} PARENT_SCOPE)
endfunction()
# The plugin's shared object. Its number grows when programs that link it have to be linked anew.
set(HYPERLOOP_PLUGIN_SOVERSION 0)
set(HYPERLOOP_PLUGIN_FILE librocksdb_hyperloop.so.${HYPERLOOP_PLUGIN_SOVERSION})

hyperloop_relative(HYPERLOOP_LIBDIR_FROM_BINDIR ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_BINDIR})
hyperloop_relative(HYPERLOOP_LIBEXECDIR_FROM_BINDIR ${HYPERLOOP_LIBEXECDIR} ${CMAKE_INSTALL_BINDIR})
hyperloop_relative(HYPERLOOP_DATADIR_FROM_BINDIR ${HYPERLOOP_DATADIR} ${CMAKE_INSTALL_BINDIR})

# hyperloop_install_program(TARGET COMPONENT [FOLDER]): by default where users call it.
function(hyperloop_install_program TARGET COMPONENT)
  set(folder ${CMAKE_INSTALL_BINDIR})
  if(ARGC GREATER 2)
    set(folder ${ARGV2})
  endif()
  install(TARGETS ${TARGET} RUNTIME DESTINATION ${folder} COMPONENT ${COMPONENT})
endfunction()

# hyperloop_install_pkg_config(NAME COMPONENT): NAME.pc from NAME.pc.in of this folder. It finds its tree from its own place.
function(hyperloop_install_pkg_config NAME COMPONENT)
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  hyperloop_relative(LIBDIR ${CMAKE_INSTALL_LIBDIR} ${folder})
  hyperloop_relative(INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR} ${folder})
  configure_file(${NAME}.pc.in ${NAME}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.pc DESTINATION ${folder} COMPONENT ${COMPONENT})
endfunction()

install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev USE_SOURCE_PERMISSIONS PATTERN "*_test" EXCLUDE)
