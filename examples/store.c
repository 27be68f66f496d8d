/* A program that knows RocksDB's C interface and nothing else: a store of keys and values.
 *
 *   store DIR put KEY VALUE     store DIR get KEY     store DIR fill COUNT     store DIR count
 *
 * It has no option for a file system. Its directory is replicated all the same, if the plugin is
 * preloaded and HYPERLOOP_BIND names the directory:
 *
 *   hyperloopctl exec --bind DIR=URI -- store DIR put KEY VALUE
 */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(char* error) {
  if (error == NULL) return;
  fprintf(stderr, "store: %s\n", error);
  exit(1);
}

static rocksdb_t* open_store(const char* directory) {
  char* error = NULL;
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_t* db = rocksdb_open(options, directory, &error);
  rocksdb_options_destroy(options);
  check(error);
  return db;
}

static void put(rocksdb_t* db, const char* key, const char* value) {
  char* error = NULL;
  rocksdb_writeoptions_t* options = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(options, 1);
  rocksdb_put(db, options, key, strlen(key), value, strlen(value), &error);
  rocksdb_writeoptions_destroy(options);
  check(error);
}

static void get(rocksdb_t* db, const char* key) {
  char* error = NULL;
  size_t length = 0;
  rocksdb_readoptions_t* options = rocksdb_readoptions_create();
  char* value = rocksdb_get(db, options, key, strlen(key), &length, &error);
  rocksdb_readoptions_destroy(options);
  check(error);
  if (value != NULL) printf("%.*s\n", (int)length, value);
  rocksdb_free(value);
}

/* Says "acknowledged N" after each put, so that whoever kills it knows what must not be lost. */
static void fill(rocksdb_t* db, long count) {
  for (long i = 0; i < count; ++i) {
    char key[32], value[128];
    snprintf(key, sizeof key, "key%08ld", i);
    snprintf(value, sizeof value, "value %08ld of a program that knows no replication", i);
    put(db, key, value);
    printf("acknowledged %ld\n", i + 1);
    fflush(stdout);
  }
}

static void count(rocksdb_t* db) {
  long found = 0;
  rocksdb_readoptions_t* options = rocksdb_readoptions_create();
  rocksdb_iterator_t* it = rocksdb_create_iterator(db, options);
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) ++found;
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_destroy(options);
  printf("%ld\n", found);
}

int main(int argc, char** argv) {
  const char* verb = argc > 2 ? argv[2] : "";
  const int is_put = argc == 5 && strcmp(verb, "put") == 0;
  const int is_get = argc == 4 && strcmp(verb, "get") == 0;
  const int is_fill = argc == 4 && strcmp(verb, "fill") == 0;
  const int is_count = argc == 3 && strcmp(verb, "count") == 0;
  if (!is_put && !is_get && !is_fill && !is_count) {
    fputs("usage: store DIR put KEY VALUE | get KEY | fill COUNT | count\n", stderr);
    return 2;
  }
  rocksdb_t* db = open_store(argv[1]);
  if (is_put) put(db, argv[3], argv[4]);
  if (is_get) get(db, argv[3]);
  if (is_fill) fill(db, atol(argv[3]));
  if (is_count) count(db);
  rocksdb_close(db);
  return 0;
}
