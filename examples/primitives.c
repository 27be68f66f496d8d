/* The group primitives from C: a primary and three replicas, each an emulated host of one
 * hyperloop-rnicd. In production each is a process of its own, and the infos travel by any channel.
 * Here one process is all four, and only reads a replica's memory.
 *
 *   SOCKET=$(mktemp -d)/rnicd.sock
 *   build/bin/hyperloop-rnicd --socket $SOCKET &
 *   build/examples/primitives_c $SOCKET
 *
 * Exit status 0 if every primitive did what HyperLoop specifies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hyperloop/core/hyperloop.h"

#define REPLICAS 3
#define REGION_BYTES (64 * 1024)

/* Ends the program with the library's own words. */
static void check(hl_code code) {
  char text[512];
  if (code == HL_OK) return;
  hl_last_error(text, sizeof(text));
  fprintf(stderr, "%s: %s\n", hl_code_name(code), text);
  exit(1);
}

static void expect(int holds, const char *what) {
  printf("  %-60s %s\n", what, holds ? "yes" : "NO");
  if (!holds) exit(1);
}

struct node {
  hl_device *device;
  hl_region *region;
  hl_member *member; /* of a replica */
};

static void open_node(struct node *node, const char *socket_path, const char *host) {
  check(hl_device_open_softrnic(socket_path, host, &node->device));
  check(hl_region_create(node->device, REGION_BYTES, &node->region));
}

static char *bytes(struct node *node, size_t offset) {
  return (char *)hl_region_data(node->region) + offset;
}

static uint64_t word(struct node *node, size_t offset) {
  uint64_t value;
  memcpy(&value, bytes(node, offset), sizeof(value));
  return value;
}

/* What one process has here; each node has its own part of it in production. */
struct cluster {
  struct node primary, replica[REPLICAS];
  hl_group *group;
};

/* Makes each node's end, then passes each node's info to the others. */
static void set_up(struct cluster *c, const char *socket_path) {
  hl_info chain[REPLICAS], primary_info;
  hl_options options;
  char host[32];
  int i;

  hl_options_init(&options);
  options.group_size = REPLICAS;
  open_node(&c->primary, socket_path, "primary");
  check(hl_group_create(c->primary.region, &options, &c->group));
  check(hl_group_info(c->group, &primary_info));
  for (i = 0; i < REPLICAS; ++i) {
    sprintf(host, "replica%d", i);
    open_node(&c->replica[i], socket_path, host);
    check(hl_member_create(c->replica[i].region, &options, (uint32_t)i, &c->replica[i].member));
    check(hl_member_info(c->replica[i].member, &chain[i]));
  }
  for (i = 0; i < REPLICAS; ++i)
    check(hl_member_connect(c->replica[i].member, &primary_info, chain, REPLICAS));
  check(hl_group_connect(c->group, chain, REPLICAS));
  printf("a group of %d replicas; from here on only their RNICs work\n", REPLICAS);
}

static void tear_down(struct cluster *c) {
  int i;
  hl_group_destroy(c->group);
  for (i = 0; i < REPLICAS; ++i) {
    hl_member_destroy(c->replica[i].member);
    hl_region_destroy(c->replica[i].region);
    hl_device_close(c->replica[i].device);
  }
  hl_region_destroy(c->primary.region);
  hl_device_close(c->primary.device);
}

static const char text[] = "written once, by the primary";

static int every_replica_has_text(struct cluster *c, size_t offset) {
  int i;
  for (i = 0; i < REPLICAS; ++i)
    if (memcmp(bytes(&c->replica[i], offset), text, sizeof(text)) != 0) return 0;
  return 1;
}

static void write_and_copy(struct cluster *c) {
  hl_ticket ticket;

  printf("gWRITE + gFLUSH of %u bytes at offset 0\n", (unsigned)sizeof(text));
  memcpy(bytes(&c->primary, 0), text, sizeof(text));
  check(hl_write(c->group, 0, sizeof(text), 1, &ticket));
  check(hl_wait(c->group, ticket, NULL));
  expect(every_replica_has_text(c, 0), "every replica has the primary's bytes");

  printf("gMEMCPY from offset 0 to 4096\n");
  check(hl_memcopy(c->group, 0, 4096, sizeof(text), 0, &ticket));
  check(hl_wait(c->group, ticket, NULL));
  expect(every_replica_has_text(c, 4096), "every replica copied within its own memory");
  expect(memcmp(bytes(&c->primary, 4096), text, sizeof(text)) == 0, "so did the primary");
}

static void compare_and_swap(struct cluster *c) {
  struct node *replica = c->replica;
  uint64_t found[REPLICAS];
  hl_ticket ticket;
  int i;

  printf("gCAS at 8192 from 0 to 7, on replicas 0 and 2 (execute map 101)\n");
  check(hl_cas(c->group, 8192, 0, 7, 5, &ticket));
  check(hl_wait(c->group, ticket, found));
  for (i = 0; i < REPLICAS; ++i)
    printf("  replica %d found %u and has %u\n", i, (unsigned)found[i],
           (unsigned)word(&replica[i], 8192));
  expect(word(&replica[0], 8192) == 7 && word(&replica[2], 8192) == 7, "0 and 2 changed");
  expect(word(&replica[1], 8192) == 0, "1 did not: its bit is not in the map");

  printf("gCAS at 8192 from 0 to 9, on all\n");
  check(hl_cas(c->group, 8192, 0, 9, 7, &ticket));
  check(hl_wait(c->group, ticket, found));
  expect(found[0] == 7 && found[1] == 0 && found[2] == 7, "the result map says who differed");
  expect(word(&replica[0], 8192) == 7 && word(&replica[1], 8192) == 9, "only the equal one changed");
}

static void flush_and_fail(struct cluster *c) {
  hl_ticket ticket, done;
  char why[256];

  printf("gFLUSH, and what an error looks like\n");
  check(hl_flush(c->group, 0, REGION_BYTES, &ticket));
  check(hl_wait_all(c->group));
  check(hl_poll(c->group, &done));
  expect(done == ticket, "all operations are acknowledged");
  expect(hl_write(c->group, REGION_BYTES, 1, 0, &ticket) == HL_INVALID_ARGUMENT,
         "a write outside the region is refused");
  hl_last_error(why, sizeof(why));
  printf("  (\"%s\")\n", why);
}

int main(int argc, char **argv) {
  struct cluster c;

  if (argc != 2) {
    fprintf(stderr, "usage: %s SOCKET-OF-HYPERLOOP-RNICD\n", argv[0]);
    return 2;
  }
  set_up(&c, argv[1]);
  write_and_copy(&c);
  compare_and_swap(&c);
  flush_and_fail(&c);
  tear_down(&c);
  return 0;
}
