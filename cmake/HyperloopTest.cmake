# hyperloop_test(NAME LABEL unit|integration|crash|conformance|simulation|long|…  SOURCES a.cc …  LIBS lib …  [TIMEOUT seconds])
#
# One gtest program, one ctest entry. Headers below tests/ are found by their path from there.
# `ctest -L LABEL` runs one tier, of which the target tests_LABEL builds the programs; `long` is what `scripts/test --all`
# adds. With BUILD_TESTING=OFF there are no tests, and their programs are not built.
if(BUILD_TESTING)
  enable_testing()
  find_package(GTest REQUIRED)
else()
  add_library(GTest::gtest INTERFACE IMPORTED GLOBAL)
  add_library(GTest::gmock INTERFACE IMPORTED GLOBAL)
  add_library(GTest::gtest_main INTERFACE IMPORTED GLOBAL)
endif()

# hyperloop_tier_needs(LABEL PROGRAM…): the target tests_LABEL builds them.
function(hyperloop_tier_needs LABEL)
  if(NOT TARGET tests_${LABEL})
    add_custom_target(tests_${LABEL})
  endif()
  add_dependencies(tests_${LABEL} ${ARGN})
endfunction()

# hyperloop_compile_as_test(NAME): what is tested is optimised as users get it. The tests themselves compile twice as fast in
# this way.
function(hyperloop_compile_as_test NAME)
  target_compile_options(${NAME} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1$<SEMICOLON>-g1>)
  get_target_property(sources ${NAME} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 1)
    hyperloop_compile_together(${NAME})
  endif()
endfunction()

function(hyperloop_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "LABEL;SOURCES;LIBS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(HYPERLOOP_SANITIZE) # group_random_test takes 30 times as long under TSan
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 10")
  endif()
  add_executable(${NAME} ${T_SOURCES})
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  hyperloop_compile_as_test(${NAME})
  target_link_libraries(${NAME} PRIVATE ${T_LIBS} GTest::gmock GTest::gtest_main)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT BUILD_TESTING)
    set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  foreach(LABEL IN LISTS T_LABEL)
    hyperloop_tier_needs(${LABEL} ${NAME})
  endforeach()
  add_test(NAME ${NAME} COMMAND ${NAME})
  set_tests_properties(${NAME} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${T_TIMEOUT})
  set_property(TEST ${NAME} APPEND PROPERTY ENVIRONMENT "HYPERLOOP_BIN=${CMAKE_BINARY_DIR}/bin;HYPERLOOP_LIB=${CMAKE_BINARY_DIR}/lib"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/library_leaks.txt:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/library_races.txt")
endfunction()

# hyperloop_developer_program(NAME…): a program that is not installed, such as a benchmark of one part; built with the tests.
function(hyperloop_developer_program)
  if(NOT BUILD_TESTING)
    set_target_properties(${ARGV} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# hyperloop_vm_test(NAME [TIMEOUT seconds] COMMAND …): the command in a virtual machine with a Soft-RoCE device (scripts/vm-run).
# One at a time and, under ctest -j, with nothing beside it: a guest takes 2 GiB and two processors.
function(hyperloop_vm_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "COMMAND" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  math(EXPR ctest_timeout "${T_TIMEOUT} + 30")
  add_test(NAME ${NAME} COMMAND ${PROJECT_SOURCE_DIR}/scripts/vm-run --timeout ${T_TIMEOUT} -- ${T_COMMAND})
  set_tests_properties(${NAME} PROPERTIES LABELS vm TIMEOUT ${ctest_timeout} RESOURCE_LOCK vm PROCESSORS 2)
endfunction()
