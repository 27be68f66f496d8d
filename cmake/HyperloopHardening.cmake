# HYPERLOOP_HARDENING makes a memory error harder to exploit, in programs and libraries alike. It uses everything that the
# compiler and the linker at hand know; tests/hardening_test checks the result in the built files.
#
#   -fstack-protector-strong        a function that overruns its own array ends the program
#   _FORTIFY_SOURCE=3 (or 2)        so does a C library call that overruns its destination; optimised builds only
#   -fcf-protection                 indirect jumps land at marked places only, if processor and kernel enforce it (x86)
#   relro, now                      function addresses are looked up at the start, then read-only
#   noexecstack, PIE                no code on the stack; the program lies at another address each time
#
# Sanitizers and fuzzing find more by themselves and are not mixed with it.
option(HYPERLOOP_HARDENING "stack protector, FORTIFY, control-flow protection, full RELRO and PIE" ON)

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

function(hyperloop_fortify_level LEVEL)
  set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("
    #include <features.h>
    #if __USE_FORTIFY_LEVEL < 3
    #error
    #endif
    int main() { return 0; }" HYPERLOOP_HAS_FORTIFY_3)
  if(HYPERLOOP_HAS_FORTIFY_3)
    set(${LEVEL} 3 PARENT_SCOPE)
  else()
    set(${LEVEL} 2 PARENT_SCOPE)
  endif()
endfunction()

if(HYPERLOOP_HARDENING AND NOT HYPERLOOP_SANITIZE AND NOT HYPERLOOP_FUZZ)
  set(HYPERLOOP_HARDENED ON)
  check_pie_supported(LANGUAGES C CXX)
  foreach(flag -fstack-protector-strong -fcf-protection)
    string(MAKE_C_IDENTIFIER "HYPERLOOP_HAS${flag}" known)
    check_cxx_compiler_flag(${flag} ${known})
    if(${known})
      add_compile_options(${flag})
    endif()
  endforeach()
  hyperloop_fortify_level(fortify)
  add_compile_options("$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${fortify}>")
  foreach(keyword relro now noexecstack)
    check_linker_flag(CXX "LINKER:-z,${keyword}" HYPERLOOP_HAS_LINKER_${keyword})
    if(HYPERLOOP_HAS_LINKER_${keyword})
      add_link_options("LINKER:-z,${keyword}")
    endif()
  endforeach()
endif()
