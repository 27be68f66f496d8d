/* Reader from C: reads a directory that `hyperloopctl follow` keeps, beside programs of RocksDB's
 * own C interface. It says the same as reader.h, which has the full semantics, and is in the static
 * library hyperloop_reader (pkg-config hyperloop_reader), which needs RocksDB alone.
 *
 *   hl_reader* reader;
 *   hl_reader_open("/srv/followed", "/srv/scratch", NULL, NULL, 0, &reader);
 *   hl_reader_wait_for(reader, token, 1000);   a writer's, of hl_token_write
 *   hl_view* view = hl_reader_view(reader);
 *   hl_view_get(view, 0, key, key_size, &value, &value_size);
 *
 * Results. Every function that can fail returns an hl_read_code, and sets its outputs on
 * HL_READ_OK only. hl_read_last_error has the text of the calling thread's last failure. A null
 * pointer where one is needed is HL_READ_INVALID_ARGUMENT, never a crash; hl_reader_close,
 * hl_view_release, hl_iterator_destroy and hl_read_free take NULL and do nothing.
 *
 * Lifetime. A handle is the caller's until it is given back, each exactly once and in any order:
 * views and iterators keep what they need.
 *
 * Threads. Calls on readers and views may be made from any thread; those on one iterator one at
 * a time. No thread may be cancelled within a call. A view is the database at one moment, and
 * one that was taken later is never older. Hold none for longer than needed: each keeps
 * memtables and files. */
#ifndef HYPERLOOP_PLUGIN_READER_C_H_
#define HYPERLOOP_PLUGIN_READER_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hl_read_code {
  HL_READ_OK = 0,
  HL_READ_NOT_FOUND = 1,        /* no such key, or none any more; no followed directory is there */
  HL_READ_INVALID_ARGUMENT = 2, /* a value is wrong, or a token is of another group or database */
  HL_READ_TIMED_OUT = 3,        /* views do not have it yet: ask the primary instead */
  HL_READ_ABORTED = 4,          /* the token or, by now, the directory is of another history */
  HL_READ_TRY_AGAIN = 5,        /* logs are dropped while they are read, or a disk was full */
  HL_READ_ERROR = 6             /* another error of RocksDB, or no memory */
} hl_read_code;

/* Copies the text of this thread's last failed call, cut to size - 1 bytes and zero terminated,
 * into the caller's buffer (nothing if size is 0). Returns its whole length without the zero; 0 and
 * "" if no call failed yet. */
size_t hl_read_last_error(char* buffer, size_t size);

/* Frees a value that hl_view_get gave. */
void hl_read_free(char* value);

/* --- readers ------------------------------------------------------------------------------- */

typedef struct hl_reader hl_reader;

/* `directory`: the one that is followed. `scratch`: a directory of this reader alone, for RocksDB's
 * LOGs; it is made. `options`: RocksDB's, "name=value;name=value", among them the writer's
 * comparator and merge operator if they are others than the usual ones, by names that RocksDB or a
 * library of this process has registered; NULL: the usual ones. `families`: the names of the column
 * families to open, "default" among them, `count` of them; count 0: the default one. */
hl_read_code hl_reader_open(const char* directory, const char* scratch, const char* options,
                            const char* const* families, size_t count, hl_reader** reader);
void hl_reader_close(hl_reader* reader);

/* Views that are taken from now on show what the directory shows now. */
hl_read_code hl_reader_catch_up(hl_reader* reader);
/* Catches up until views have everything up to the token, a text that ends with zero. */
hl_read_code hl_reader_wait_for(hl_reader* reader, const char* token, uint32_t timeout_ms);
/* Catches up until views have everything that was acknowledged `most_ms` ago, or later. */
hl_read_code hl_reader_wait_for_fresh(hl_reader* reader, uint32_t most_ms, uint32_t timeout_ms);

/* --- views: the database at one moment ------------------------------------------------------- */

typedef struct hl_view hl_view;

/* The present one. NULL: no reader, or no memory. */
hl_view* hl_reader_view(hl_reader* reader);
void hl_view_release(hl_view* view);

/* Everything that was acknowledged by then is in the view: microseconds since 1970. 0: not known,
 * because nobody has vouched for the replica, or no view. */
uint64_t hl_view_as_of_us(const hl_view* view);
/* The sequence number up to which it shows the database; 0 for NULL. */
uint64_t hl_view_sequence(const hl_view* view);
/* `family`: an index into those that were opened. The value's bytes are followed by a zero that is
 * not counted, and are the caller's, to be freed by hl_read_free. */
hl_read_code hl_view_get(const hl_view* view, size_t family, const void* key, size_t key_size,
                         char** value, size_t* value_size);

typedef struct hl_iterator hl_iterator;

/* The family's keys in their order, from the first one that is not before `key`, or, if `key` is
 * NULL, from the first one. */
hl_read_code hl_iterator_create(const hl_view* view, size_t family, const void* key,
                                size_t key_size, hl_iterator** iterator);
void hl_iterator_destroy(hl_iterator* iterator);
/* Gives the next key and its value. Their bytes stay until the next call on the iterator.
 * HL_READ_NOT_FOUND: there is none any more. */
hl_read_code hl_iterator_next(hl_iterator* iterator, const char** key, size_t* key_size,
                              const char** value, size_t* value_size);

/* --- tokens ---------------------------------------------------------------------------------- */

#define HL_TOKEN_SIZE 264 /* the longest token, and its zero */

/* Writes into `token` the text that names everything written to the database up to `sequence`,
 * which rocksdb_get_latest_sequence_number tells after a write has returned. `directory`: the
 * database's, which is open over the plugin. `identity`: RocksDB's of the database; NULL: what its
 * file IDENTITY says. HL_READ_NOT_FOUND: the directory is in no group. */
hl_read_code hl_token_write(const char* directory, const char* identity, size_t identity_size,
                            uint64_t sequence, char token[HL_TOKEN_SIZE]);

#ifdef __cplusplus
}
#endif

#endif /* HYPERLOOP_PLUGIN_READER_C_H_ */
