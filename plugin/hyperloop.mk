# For RocksDB's own build, with this folder linked (or copied) as plugin/hyperloop in RocksDB's tree:
#   ROCKSDB_PLUGINS=hyperloop ROCKSDB_CXX_STANDARD=c++20 make db_bench
# The libraries below the plugin are built first, in this project's tree: cmake --preset release && cmake --build build.
# RocksDB's CMake reads SOURCES, FUNC and LIBS from here, so each must be one line. Set HYPERLOOP_ROOT if the folder was copied.
hyperloop_SOURCES = adoption.cc bound_directory.cc file_system.cc file_system_lock.cc files.cc import.cc info_log.cc judge.cc local_file_system.cc local_files.cc memtables.cc options_map.cc pairing_file.cc paths.cc status.cc register.cc file_system_unlocked.cc lock_holder.cc spoken_of.cc mend.cc finished_logs.cc checked_files.cc
hyperloop_HEADERS = include/hyperloop/plugin/register.h
hyperloop_FUNC = register_hyperloop
hyperloop_LIBS = hyperloop_replication hyperloop_control hyperloop_identity hyperloop_metrics hyperloop_core pmemobj pmem isal sodium dl
HYPERLOOP_ROOT ?= $(realpath $(realpath plugin/hyperloop)/..)
hyperloop_CXXFLAGS = -I$(HYPERLOOP_ROOT)/plugin/include -I$(HYPERLOOP_ROOT)/replication/include -I$(HYPERLOOP_ROOT)/hyperloop_core/include
hyperloop_LDFLAGS = -L$(HYPERLOOP_ROOT)/build/lib $(addprefix -l,$(hyperloop_LIBS))
