# Runs while things are installed, since `cmake --install --prefix` may choose another prefix than the configured one: files
# that name the folders of the installation.

# hyperloop_folder(VARIABLE FOLDER): absolute. The configuration of what is in /usr is in /etc.
function(hyperloop_folder VARIABLE FOLDER)
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND FOLDER MATCHES "^etc")
    set(FOLDER /${FOLDER})
  endif()
  cmake_path(ABSOLUTE_PATH FOLDER BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE)
  set(${VARIABLE} ${FOLDER} PARENT_SCOPE)
endfunction()

# hyperloop_fill(TEMPLATE FOLDER NAME SCRATCH): installs TEMPLATE, with its @BINDIR@, @SYSCONFDIR@ and @DOCDIR@ filled in, as
# NAME in FOLDER. Configuration that is there stays as it is.
function(hyperloop_fill TEMPLATE FOLDER NAME SCRATCH)
  configure_file(${TEMPLATE} ${SCRATCH}/${NAME} @ONLY)
  hyperloop_folder(folder ${FOLDER})
  set(there $ENV{DESTDIR}${folder}/${NAME})
  if(folder STREQUAL ${SYSCONFDIR}/hyperloop AND EXISTS ${there})
    message(STATUS "Kept: ${there}")
    return()
  endif()
  file(INSTALL ${SCRATCH}/${NAME} DESTINATION ${folder} TYPE FILE)
endfunction()

hyperloop_folder(BINDIR ${CMAKE_INSTALL_BINDIR})
hyperloop_folder(SYSCONFDIR ${CMAKE_INSTALL_SYSCONFDIR})
hyperloop_folder(DOCDIR ${CMAKE_INSTALL_DOCDIR})
