# HYPERLOOP_FIRST_BUILD shortens a build from nothing (scripts/quickstart), most of which is reading headers. The
# libraries read those of the standard library once each. Later builds take longer for it, and ccache keeps none of it.
option(HYPERLOOP_FIRST_BUILD "precompiled headers, for a build from nothing" OFF)

# hyperloop_precompile(TARGET [HEADER…]): the headers of the standard library, and HEADERs of other projects.
function(hyperloop_precompile TARGET)
  target_precompile_headers(${TARGET} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cstring> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional>
    <set> <span> <sstream> <string> <string_view> <thread> <utility> <vector> ${ARGN})
endfunction()

function(hyperloop_first_build)
  foreach(library hyperloop_core hyperloop_rnicd_parts hyperloop_replication hyperloop_control hyperloop_replica
      hyperloop_cluster)
    hyperloop_precompile(${library})
  endforeach()
  hyperloop_precompile(hyperloop_plugin <rocksdb/file_system.h>)
endfunction()
