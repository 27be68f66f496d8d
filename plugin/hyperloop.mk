# For RocksDB's own build, with this folder linked (or copied) as plugin/hyperloop in RocksDB's tree:
#   ROCKSDB_PLUGINS=hyperloop ROCKSDB_CXX_STANDARD=c++20 make db_bench
# The libraries below the plugin are built first, in this project's tree: cmake --preset release && cmake --build build.
# RocksDB's CMake reads SOURCES, FUNC and LIBS from here, so each must be one line. Set HYPERLOOP_ROOT if the folder was copied.
hyperloop_SOURCES = opening/adoption.cc bound/bound_directory.cc file_system/file_system.cc file_system/file_system_lock.cc file_system/files.cc bound/import.cc file_system/info_log.cc opening/judge.cc local/local_file_system.cc local/local_files.cc quirks/memtables.cc file_system/options_map.cc opening/pairing_file.cc local/paths.cc local/status.cc loading/register.cc file_system/file_system_unlocked.cc opening/lock_holder.cc quirks/spoken_of.cc opening/mend.cc quirks/finished_logs.cc opening/checked_files.cc quirks/log_marker.cc quirks/verdicts.cc opening/near_files.cc opening/local_to_group.cc quirks/other_directories.cc
hyperloop_HEADERS = include/hyperloop/plugin/register.h
hyperloop_FUNC = register_hyperloop
hyperloop_LIBS = hyperloop_replication hyperloop_control hyperloop_identity hyperloop_metrics hyperloop_core pmemobj pmem isal sodium dl
HYPERLOOP_ROOT ?= $(realpath $(realpath plugin/hyperloop)/..)
hyperloop_CXXFLAGS = -I$(HYPERLOOP_ROOT)/plugin -I$(HYPERLOOP_ROOT)/plugin/include -I$(HYPERLOOP_ROOT)/replication/include -I$(HYPERLOOP_ROOT)/hyperloop_core/include
hyperloop_LDFLAGS = -L$(HYPERLOOP_ROOT)/build/lib $(addprefix -l,$(hyperloop_LIBS))
