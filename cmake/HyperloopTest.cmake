# hyperloop_test(NAME LABEL unit|integration|crash|conformance|simulation|long|…  SOURCES a.cc …  LIBS lib …
#                [NEEDS target…] [ALONE])
#
# One ctest entry: the tests of those SOURCES that are named *_test.cc. Headers below tests/ are found by their path from there.
# `ctest -L LABEL` runs one tier, of which the target tests_LABEL builds the programs; `long` is what `scripts/test --all`
# adds. With BUILD_TESTING=OFF there are no tests, and their programs are not built.
#
# The tests of a folder are one program, HYPERLOOP_TEST_PROGRAM, because linking them and keeping them on the disk would
# otherwise cost more than compiling them. Each file is compiled alone: together, a name of one could take the place of
# another's without a word. A test that replaces functions of its whole program is ALONE, in a program NAME.
# NEEDS are the programs that it starts.
if(BUILD_TESTING)
  enable_testing()
  find_package(GTest REQUIRED)
else()
  add_library(GTest::gtest INTERFACE IMPORTED GLOBAL)
  add_library(GTest::gmock INTERFACE IMPORTED GLOBAL)
  add_library(GTest::gtest_main INTERFACE IMPORTED GLOBAL)
endif()

add_library(hyperloop_test_main STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/support/test_main.cc)
target_link_libraries(hyperloop_test_main PUBLIC GTest::gmock GTest::gtest)

# hyperloop_tier_needs(LABEL PROGRAM…): the target tests_LABEL builds them.
function(hyperloop_tier_needs LABEL)
  if(NOT TARGET tests_${LABEL})
    add_custom_target(tests_${LABEL})
  endif()
  add_dependencies(tests_${LABEL} ${ARGN})
endfunction()

# hyperloop_compile_as_test(NAME): what is tested is optimised as users get it, and watched by the sanitizers. The tests
# themselves compile twice as fast in this way; ASan watches them too, UBSan does not.
function(hyperloop_compile_as_test NAME)
  target_compile_options(${NAME} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  if(HYPERLOOP_SANITIZE MATCHES "undefined" AND NOT HYPERLOOP_FUZZ)
    target_compile_options(${NAME} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# hyperloop_test_program(NAME): makes the program, unless a test of it came before.
function(hyperloop_test_program NAME)
  if(TARGET ${NAME})
    return()
  endif()
  add_executable(${NAME})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${NAME} PRIVATE HYPERLOOP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${NAME} PRIVATE hyperloop_test_main)
  hyperloop_compile_as_test(${NAME})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT BUILD_TESTING)
    set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

function(hyperloop_test NAME)
  cmake_parse_arguments(T "ALONE" "" "LABEL;SOURCES;LIBS;NEEDS" ${ARGN})
  set(timeout 1200) # only a net for what hangs
  if(HYPERLOOP_SANITIZE) # group_random_test takes 30 times as long under TSan
    math(EXPR timeout "${timeout} * 5")
  endif()
  if(T_ALONE)
    set(program ${NAME})
  else()
    set(program ${HYPERLOOP_TEST_PROGRAM})
  endif()
  hyperloop_test_program(${program})
  target_sources(${program} PRIVATE ${T_SOURCES})
  target_link_libraries(${program} PRIVATE ${T_LIBS})
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(T_NEEDS)
    add_dependencies(${program} ${T_NEEDS})
  endif()
  foreach(LABEL IN LISTS T_LABEL)
    hyperloop_tier_needs(${LABEL} ${program})
  endforeach()
  set(files ${T_SOURCES})
  list(FILTER files INCLUDE REGEX "_test\\.cc$")
  if(NOT files)
    message(FATAL_ERROR "hyperloop_test(${NAME}): no source is named *_test.cc")
  endif()
  set(paths)
  foreach(file IN LISTS files) # as the compiler is told
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    list(APPEND paths ${file})
  endforeach()
  list(JOIN paths "," files)
  set_property(GLOBAL PROPERTY hyperloop_command_of_${NAME} ${program} --files=${files})
  add_test(NAME ${NAME} COMMAND ${program} --files=${files})
  set_tests_properties(${NAME} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${timeout})
  foreach(needed IN LISTS T_NEEDS)
    set_property(TEST ${NAME} APPEND PROPERTY REQUIRED_FILES $<TARGET_FILE:${needed}>)
  endforeach()
  set_property(TEST ${NAME} APPEND PROPERTY ENVIRONMENT "HYPERLOOP_BIN=${CMAKE_BINARY_DIR}/bin;HYPERLOOP_LIB=${CMAKE_BINARY_DIR}/lib"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/library_leaks.txt:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/library_races.txt")
endfunction()

# hyperloop_test_reads(TEST… FROM PATH…): the verdicts of these depend on those files and folders of the source tree, too; see
# scripts/run-tests.
function(hyperloop_test_reads)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "" "" "FROM" ${ARGN})
  list(TRANSFORM T_FROM PREPEND "${CMAKE_SOURCE_DIR}/")
  set_property(TEST ${T_UNPARSED_ARGUMENTS} APPEND PROPERTY REQUIRED_FILES ${T_FROM})
endfunction()

# hyperloop_developer_program(NAME…): a program that is not installed, such as a benchmark of one part; built with the tests.
function(hyperloop_developer_program)
  if(NOT BUILD_TESTING)
    set_target_properties(${ARGV} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Before the command of a test that starts RNIC daemons with their default options.
set(HYPERLOOP_UNRAISED ${PROJECT_SOURCE_DIR}/tests/unraised)

# hyperloop_vm_test(NAME TIMEOUT seconds TESTS NAME=COMMAND…): the commands one after the other in one virtual machine with a
# Soft-RoCE device (scripts/vm-run, tests/vm/in_turn). One machine at a time: a guest takes 2 GiB.
function(hyperloop_vm_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "TESTS" ${ARGN})
  math(EXPR ctest_timeout "${T_TIMEOUT} + 30")
  list(LENGTH T_TESTS count)
  math(EXPR limit "(${T_TIMEOUT} - 120) / ${count}") # the guest starts meanwhile
  add_test(NAME ${NAME}
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/vm-run --timeout ${T_TIMEOUT} -- ${PROJECT_SOURCE_DIR}/tests/vm/in_turn ${limit} ${T_TESTS})
  set_tests_properties(${NAME} PROPERTIES LABELS vm TIMEOUT ${ctest_timeout} RESOURCE_LOCK vm)
endfunction()
