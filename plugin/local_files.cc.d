plugin/hyperloop/local_files.cc.d plugin/hyperloop/local_files.o \
 plugin/hyperloop/local_files.o: plugin/hyperloop/local_files.cc \
 plugin/hyperloop/local_files.h include/rocksdb/file_system.h \
 include/rocksdb/customizable.h include/rocksdb/configurable.h \
 include/rocksdb/rocksdb_namespace.h include/rocksdb/status.h \
 include/rocksdb/slice.h include/rocksdb/cleanable.h \
 include/rocksdb/env.h include/rocksdb/functor_wrapper.h \
 include/rocksdb/thread_status.h include/rocksdb/io_status.h \
 include/rocksdb/options.h include/rocksdb/advanced_options.h \
 include/rocksdb/cache.h include/rocksdb/compression_type.h \
 include/rocksdb/memory_allocator.h include/rocksdb/statistics.h \
 include/rocksdb/memtablerep.h include/rocksdb/universal_compaction.h \
 include/rocksdb/comparator.h include/rocksdb/data_structure.h \
 include/rocksdb/file_checksum.h include/rocksdb/listener.h \
 include/rocksdb/compaction_job_stats.h \
 include/rocksdb/table_properties.h include/rocksdb/types.h \
 include/rocksdb/sst_partitioner.h include/rocksdb/version.h \
 include/rocksdb/write_buffer_manager.h include/rocksdb/table.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/log.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/status.h \
 /work/wt/rdb/replication/include/hyperloop/replication/store.h \
 /work/wt/rdb/replication/include/hyperloop/replication/options.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/group.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/rnic.h \
 plugin/hyperloop/paths.h plugin/hyperloop/status.h
