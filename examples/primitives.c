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

int main(int argc, char **argv) {
  static const char text[] = "written once, by the primary";
  struct node primary, replica[REPLICAS];
  hl_info chain[REPLICAS], primary_info;
  hl_options options;
  hl_group *group;
  hl_ticket ticket, done;
  uint64_t found[REPLICAS];
  char host[32];
  int i, all;

  if (argc != 2) {
    fprintf(stderr, "usage: %s SOCKET-OF-HYPERLOOP-RNICD\n", argv[0]);
    return 2;
  }

  /* Set-up: makes each node's end, then passes each node's info to the others. */
  hl_options_init(&options);
  options.group_size = REPLICAS;
  open_node(&primary, argv[1], "primary");
  check(hl_group_create(primary.region, &options, &group));
  check(hl_group_info(group, &primary_info));
  for (i = 0; i < REPLICAS; ++i) {
    sprintf(host, "replica%d", i);
    open_node(&replica[i], argv[1], host);
    check(hl_member_create(replica[i].region, &options, (uint32_t)i, &replica[i].member));
    check(hl_member_info(replica[i].member, &chain[i]));
  }
  for (i = 0; i < REPLICAS; ++i)
    check(hl_member_connect(replica[i].member, &primary_info, chain, REPLICAS));
  check(hl_group_connect(group, chain, REPLICAS));
  printf("a group of %d replicas; from here on only their RNICs work\n", REPLICAS);

  printf("gWRITE + gFLUSH of %u bytes at offset 0\n", (unsigned)sizeof(text));
  memcpy(bytes(&primary, 0), text, sizeof(text));
  check(hl_write(group, 0, sizeof(text), 1, &ticket));
  check(hl_wait(group, ticket, NULL));
  for (all = 1, i = 0; i < REPLICAS; ++i)
    all = all && memcmp(bytes(&replica[i], 0), text, sizeof(text)) == 0;
  expect(all, "every replica has the primary's bytes");

  printf("gMEMCPY from offset 0 to 4096\n");
  check(hl_memcopy(group, 0, 4096, sizeof(text), 0, &ticket));
  check(hl_wait(group, ticket, NULL));
  for (all = 1, i = 0; i < REPLICAS; ++i)
    all = all && memcmp(bytes(&replica[i], 4096), text, sizeof(text)) == 0;
  expect(all, "every replica copied within its own memory");
  expect(memcmp(bytes(&primary, 4096), text, sizeof(text)) == 0, "so did the primary");

  printf("gCAS at 8192 from 0 to 7, on replicas 0 and 2 (execute map 101)\n");
  check(hl_cas(group, 8192, 0, 7, 5, &ticket));
  check(hl_wait(group, ticket, found));
  for (i = 0; i < REPLICAS; ++i)
    printf("  replica %d found %u and has %u\n", i, (unsigned)found[i],
           (unsigned)word(&replica[i], 8192));
  expect(word(&replica[0], 8192) == 7 && word(&replica[2], 8192) == 7, "0 and 2 changed");
  expect(word(&replica[1], 8192) == 0, "1 did not: its bit is not in the map");

  printf("gCAS at 8192 from 0 to 9, on all\n");
  check(hl_cas(group, 8192, 0, 9, 7, &ticket));
  check(hl_wait(group, ticket, found));
  expect(found[0] == 7 && found[1] == 0 && found[2] == 7, "the result map says who differed");
  expect(word(&replica[0], 8192) == 7 && word(&replica[1], 8192) == 9, "only the equal one changed");

  printf("gFLUSH, and what an error looks like\n");
  check(hl_flush(group, 0, REGION_BYTES, &ticket));
  check(hl_wait_all(group));
  check(hl_poll(group, &done));
  expect(done == ticket, "all operations are acknowledged");
  expect(hl_write(group, REGION_BYTES, 1, 0, &ticket) == HL_INVALID_ARGUMENT,
         "a write outside the region is refused");
  {
    char why[256];
    hl_last_error(why, sizeof(why));
    printf("  (\"%s\")\n", why);
  }

  hl_group_destroy(group);
  for (i = 0; i < REPLICAS; ++i) {
    hl_member_destroy(replica[i].member);
    hl_region_destroy(replica[i].region);
    hl_device_close(replica[i].device);
  }
  hl_region_destroy(primary.region);
  hl_device_close(primary.device);
  return 0;
}
