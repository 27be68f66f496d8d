plugin/hyperloop/bound_directory.cc.d plugin/hyperloop/bound_directory.o \
 plugin/hyperloop/bound_directory.o: plugin/hyperloop/bound_directory.cc \
 plugin/hyperloop/bound_directory.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/log.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/status.h \
 /work/wt/rdb/replication/include/hyperloop/replication/store.h \
 /work/wt/rdb/replication/include/hyperloop/replication/options.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/group.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/rnic.h \
 plugin/hyperloop/paths.h plugin/hyperloop/status.h \
 include/rocksdb/io_status.h include/rocksdb/slice.h \
 include/rocksdb/cleanable.h include/rocksdb/rocksdb_namespace.h \
 include/rocksdb/status.h
