/* The group primitives from C: gWRITE, gMEMCPY, gCAS and gFLUSH over a chain of replicas whose
 * RNICs do the work (HyperLoop, SIGCOMM 2018, section 4.2). The C++ interface, with the full
 * semantics, is group.h; this one says the same in C99 over it.
 *
 *   primary:  device, region, group  ─┐ exchange hl_info by any channel:  ┌─ device, region, member
 *             hl_group_info ──────────┼─────────── primary's ────────────▶│  hl_member_connect
 *             hl_group_connect ◀──────┴─────────── each member's ─────────┘  hl_member_info
 *
 * Members connect before the group does. From then on a member's process may sleep: its RNIC serves
 * the group (with datapath cpu-polling or cpu-event a thread of the process, which must run) until
 * the member is destroyed or the process ends.
 *
 * Results. Every function that can fail returns an hl_code, and sets its outputs on HL_OK only.
 * hl_last_error has the text of the calling thread's last failure, with numbers and remedy.
 * A null pointer where one is needed is HL_INVALID_ARGUMENT, never a crash; the *_destroy and
 * *_close functions take NULL and do nothing.
 *
 * Lifetime. A handle is the caller's until it is destroyed, each exactly once, in any order: what
 * was made from a handle keeps what it needs alive. (So a device is let go of when its handle and
 * all its regions, groups and members are gone.) The bytes of a region are valid until its own
 * handle and every group and member on it are destroyed.
 *
 * Threads. Calls on different handles may run at once; calls on one handle, and on a region and
 * what is made from it, one at a time. hl_last_error is per thread. After fork, the child's calls
 * fail and destroying handles there does nothing to the parent. */
#ifndef HYPERLOOP_CORE_HYPERLOOP_H_
#define HYPERLOOP_CORE_HYPERLOOP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- results ------------------------------------------------------------------------------- */

/* The same causes, by the same numbers, as hyperloop::Code of status.h. */
typedef enum hl_code {
  HL_OK = 0,
  HL_INVALID_ARGUMENT = 1, /* a value is wrong: range, alignment, null pointer */
  HL_NOT_FOUND = 2,
  HL_ALREADY_EXISTS = 3,
  HL_PERMISSION_DENIED = 4, /* the daemon belongs to another user */
  HL_UNAVAILABLE = 5,       /* no daemon there, or a peer is out of reach; may come back */
  HL_TIMED_OUT = 6,         /* no acknowledgement in time; the outcome is indeterminate */
  HL_BUSY = 7,
  HL_NO_SPACE = 8, /* memory or a limit of the device is exhausted */
  HL_CORRUPTION = 9,
  HL_FENCED = 10,
  HL_PROTECTION = 11,    /* a key, bound or access right was violated */
  HL_NOT_SUPPORTED = 12, /* the device lacks the capability */
  HL_ABORTED = 13,       /* an earlier failure broke the group; indeterminate */
  HL_INTERNAL = 14       /* a bug of the library */
} hl_code;

/* "ok", "invalid argument", …; "unknown" for other numbers. A constant: do not free. */
const char* hl_code_name(hl_code code);

/* Copies the text of this thread's last failed call, cut to size - 1 bytes and zero terminated,
 * into the caller's buffer (nothing if size is 0). Returns its whole length without the zero, as
 * snprintf does; 0 and "" if no call failed yet. Kept until this thread's next failure. */
size_t hl_last_error(char* buffer, size_t size);

/* --- devices ------------------------------------------------------------------------------- */

typedef struct hl_device hl_device;

/* Attaches this process to the emulated host `host` ([A-Za-z0-9._-], 1 to 63 characters; made on
 * first use) of the hyperloop-rnicd that listens at `socket_path`. HL_UNAVAILABLE: nobody listens
 * there. HL_PERMISSION_DENIED: it serves another user. */
hl_code hl_device_open_softrnic(const char* socket_path, const char* host, hl_device** device);
/* 1 while the device works; 0 once its daemon is gone, in a forked child, and for NULL. One load.
 */
int hl_device_alive(const hl_device* device);
void hl_device_close(hl_device* device);

/* --- regions: the memory that a group replicates -------------------------------------------- */

typedef struct hl_region hl_region;

/* What a flush makes durable: HL_RAM nothing (another machine's memory is what is trusted), HL_FILE
 * the file by msync, HL_PMEM persistent memory by cache line write-back. */
typedef enum hl_media {
  HL_RAM = 0,
  HL_FILE = 1,
  HL_PMEM = 2,
  HL_MEDIA_MAX = 0x7fffffff /* no medium; any number a caller passes stays a number to refuse */
} hl_media;

/* `size` bytes (at least 64) of zeroed memory from the device, registered. */
hl_code hl_region_create(hl_device* device, size_t size, hl_region** region);
/* Registers memory of the caller's: [address, address + size) must be a shared mapping of `fd` at
 * `fd_offset` (page aligned), open for reading and writing; it stays mapped while the region
 * lives. The descriptor is duplicated. */
hl_code hl_region_register(hl_device* device, void* address, size_t size, int fd,
                           uint64_t fd_offset, hl_media media, hl_region** region);
/* The region's first byte, offset 0 of all operations; NULL for NULL. */
void* hl_region_data(hl_region* region);
size_t hl_region_size(const hl_region* region);
void hl_region_destroy(hl_region* region);

/* --- members and groups ---------------------------------------------------------------------- */

#define HL_MAX_GROUP_SIZE 8

/* What all nodes of a group must agree on, ack_timeout_ms excepted. */
typedef struct hl_options {
  const char* datapath;    /* "offload" … as the option `datapath` of docs/options.md */
  uint32_t group_size;     /* replicas, 1 to HL_MAX_GROUP_SIZE */
  uint32_t window;         /* operations under way at most, 1 to 4096 */
  uint32_t slots;          /* a power of two from max(8, 2 * window) to 8192; 0: chosen */
  uint32_t ack_timeout_ms; /* of the primary: longest wait for an acknowledgement, at least 1 */
} hl_options;
/* offload, 1 replica, window 64, slots 0, 10,000 ms. Call it first: fields may be added. */
void hl_options_init(hl_options* options);

/* What one node must know of another, to be passed on as these bytes. Opaque. */
typedef struct hl_info {
  uint32_t size;
  unsigned char bytes[252];
} hl_info;

typedef struct hl_member hl_member;

/* The end of replica `position` (0 is next to the primary). HL_NOT_SUPPORTED: the device cannot run
 * the datapath. */
hl_code hl_member_create(hl_region* region, const hl_options* options, uint32_t position,
                         hl_member** member);
hl_code hl_member_info(const hl_member* member, hl_info* info);
/* `chain`: the infos of all `count` members in order, this one's too. Once only. */
hl_code hl_member_connect(hl_member* member, const hl_info* primary, const hl_info* chain,
                          size_t count);
/* Ends service at once: operations under way stay unacknowledged. */
void hl_member_destroy(hl_member* member);

typedef struct hl_group hl_group;

hl_code hl_group_create(hl_region* region, const hl_options* options, hl_group** group);
hl_code hl_group_info(const hl_group* group, hl_info* info);
/* All members are connected already. */
hl_code hl_group_connect(hl_group* group, const hl_info* chain, size_t count);
/* Operations under way stay unacknowledged. */
void hl_group_destroy(hl_group* group);

/* --- the primitives ---------------------------------------------------------------------------
 * Asynchronous: each starts one operation and returns its ticket (1, 2, 3 …). Offsets are region
 * offsets. Operations take effect on every replica in the order of their tickets. A call waits, at
 * most ack_timeout_ms, while the window is full or an operation under way uses the same bytes in a
 * way that order would not keep apart. The caller must not change bytes that an operation under way
 * reads, or writes at the primary (gMEMCPY).
 *
 * HL_INVALID_ARGUMENT: a range leaves the region, is empty, overlaps or is not aligned; nothing was
 * started and the group goes on. HL_TIMED_OUT, HL_ABORTED, HL_UNAVAILABLE, HL_PROTECTION: the group
 * is broken for good, and every operation without an acknowledgement is indeterminate. So it is
 * after HL_CORRUPTION (an acknowledgement that does not fit). */

typedef uint64_t hl_ticket;

/* gWRITE: the primary's bytes [offset, offset + size) appear on every replica; size 1 B to 1 GiB.
 * With `flush` (not 0) they are durable on every replica once acknowledged. */
hl_code hl_write(hl_group* group, uint64_t offset, uint64_t size, int flush, hl_ticket* ticket);
/* gMEMCPY: every replica, and the primary, copies within its own region. Ranges must not overlap.
 */
hl_code hl_memcopy(hl_group* group, uint64_t source, uint64_t destination, uint64_t size, int flush,
                   hl_ticket* ticket);
/* gCAS: each replica i with bit i set in `execute_map` compares its 8 bytes at `offset` (a multiple
 * of 8, host byte order) with `expected` and, where equal, stores `desired`. hl_wait tells what
 * each found. The primary's own bytes are left alone. */
hl_code hl_cas(hl_group* group, uint64_t offset, uint64_t expected, uint64_t desired,
               uint32_t execute_map, hl_ticket* ticket);
/* gFLUSH: what was started before is durable on every replica once acknowledged. The range is
 * checked, and advisory: a flush drains queues, not ranges. */
hl_code hl_flush(hl_group* group, uint64_t offset, uint64_t size, hl_ticket* ticket);

/* Waits until the operation of `ticket`, and all before it, are acknowledged for all replicas.
 * `originals`: NULL, or group_size words that receive what a gCAS found at each replica that
 * executed it (0 elsewhere). Results are kept until `window` further operations were started. */
hl_code hl_wait(hl_group* group, hl_ticket ticket, uint64_t* originals);
hl_code hl_wait_all(hl_group* group);
/* Without waiting: the newest ticket such that it and all before it are acknowledged; 0: none. */
hl_code hl_poll(hl_group* group, hl_ticket* acknowledged);

#ifdef __cplusplus
}
#endif

#endif /* HYPERLOOP_CORE_HYPERLOOP_H_ */
