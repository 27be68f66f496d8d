/* A program that reads, through the Reader's C interface, a directory that `hyperloopctl follow`
 * keeps:
 *
 *   follower DIR SCRATCH [TOKEN]    prints all keys and values; with a token, once its write is
 *                                   there
 */
#include <hyperloop/plugin/reader_c.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPatienceMs = 60000 };

static void check(hl_read_code code) {
  char text[512];
  if (code == HL_READ_OK) return;
  hl_read_last_error(text, sizeof text);
  fprintf(stderr, "follower: %s\n", text);
  exit(1);
}

int main(int count, char** arguments) {
  hl_reader* reader = NULL;
  hl_iterator* iterator = NULL;
  hl_view* view;
  const char *key, *value;
  size_t key_size, value_size;
  hl_read_code code;
  if (count != 3 && count != 4) {
    fprintf(stderr, "usage: follower DIR SCRATCH [TOKEN]\n");
    return 2;
  }
  check(hl_reader_open(arguments[1], arguments[2], NULL, NULL, 0, &reader));
  if (count == 4) check(hl_reader_wait_for(reader, arguments[3], kPatienceMs));
  view = hl_reader_view(reader);
  check(hl_iterator_create(view, 0, NULL, 0, &iterator));
  while ((code = hl_iterator_next(iterator, &key, &key_size, &value, &value_size)) == HL_READ_OK)
    printf("%.*s %.*s\n", (int)key_size, key, (int)value_size, value);
  if (code != HL_READ_NOT_FOUND) check(code);
  hl_iterator_destroy(iterator);
  hl_view_release(view);
  hl_reader_close(reader);
  return 0;
}
