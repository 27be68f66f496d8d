// Options of a replicated store: one struct, and one table of (name, type, default, range, text)
// that the parser, the plugin's registration, --help texts and docs/options.md all use.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/group.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

enum class AckMode : uint8_t { kAppend, kSync };
enum class LocalWrite : uint8_t { kAcknowledged, kOverlapped };
// kAuto: kContinue for three replicas or more, which can agree without one of them, else kBlock.
enum class OnReplicaFailure : uint8_t { kAuto, kBlock, kContinue };

struct StoreOptions {
  // "host:port" of the control endpoints of 1 to 8 replicas, in the order of the chain.
  std::vector<std::string> replicas;
  std::string provider = "softrnic";
  // softrnic: path of hyperloop-rnicd's socket; verbs: NAME or NAME:PORT, empty: the first active
  std::string device;
  std::string host = "primary";      // softrnic: emulated host to attach to
  int32_t gid_index = -1;            // verbs; −1: chosen by the provider
  uint32_t mtu = 0;                  // verbs, bytes; 0: the port's
  uint32_t traffic_class = 0;        // verbs
  std::string pool;                  // path of the primary's own pool; created when absent
  std::string keys;                  // directory of identity and trusted keys; empty: none
  std::optional<Datapath> datapath;  // none: auto, chosen each time the group is armed
  AckMode ack = AckMode::kAppend;
  std::optional<WaitMode> wait;  // none: auto, chosen each time the group is armed
  uint32_t poll_us = 50;         // µs that wait=hybrid polls
  uint32_t window = 64;
  uint64_t journal_size = 32ull << 20;  // bytes; applied when the group is formatted
  uint64_t region_size = 0;             // bytes; 0: that of the first replica
  uint32_t table_capacity = 4096;       // files; applied when the group is formatted
  // Bytes, a power of two; applied when the group is formatted. Not an option of URIs, because a
  // smaller one is only good for the small regions of simulations.
  uint32_t extent_size = 1u << 20;
  std::string media = "auto";                        // auto, ram, file, pmem, …-emulated
  bool local_sync = false;                           // fsync the local copies of log files too
  LocalWrite local_write = LocalWrite::kOverlapped;  // when those copies are written
  std::string metrics_file;  // where metrics are written again and again; empty: nowhere
  bool takeover = false;     // take the group from a primary that lives
  bool restore = false;      // fill an empty database directory from the group
  bool rebind = false;       // take the group from the directory that it is bound to
  bool adopt = false;        // take the database of a plain directory into an empty group
  // "host:port" of a listed replica that the group may not have yet, and of one that the group may
  // have and that is not listed. At most one of the two is given.
  std::string add_replica;
  std::string remove_replica;
  // Replicas of the group, by "host:port", that are lost for good: a taking goes on without them
  // even if those that are left are no majority. Nobody may ever use what they hold after that.
  // Not an option of URIs, because it is meant for one taking (survivors.h).
  std::vector<std::string> given_up;
  OnReplicaFailure on_replica_failure = OnReplicaFailure::kAuto;
  uint32_t min_replicas = 0;  // kContinue: never fewer than so many, nor than a majority of all
  // kContinue: a replica that answers no request for so long is left out, although its RNIC serves
  // on; 0: never.
  std::chrono::milliseconds heartbeat_timeout{0};
  std::chrono::milliseconds ack_timeout{10000};
  std::chrono::milliseconds space_timeout{10000};
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds bulk_timeout{60000};
};

// Whether the group goes on without a replica that fails (on_replica_failure).
bool GoesOnWithoutSome(const StoreOptions& options);

struct OptionInfo {
  std::string_view name;
  std::string_view type;  // "bytes", "integer", "milliseconds", "text", "boolean", "one of a|b",
                          // "host:port", "list of host:port"
  std::string_view default_value;  // as GetStoreOption prints it; empty: none
  std::string_view range;          // the accepted values, in words
  std::string_view text;           // one sentence
};
// Every option of StoreOptions, in documentation order.
std::span<const OptionInfo> StoreOptionTable();

// Sets one option from text. kInvalidArgument names the option, the value and what would be
// accepted; an unknown name lists the nearest known one. Sizes take K, M, G (binary) suffixes,
// times take ms, s.
Status SetStoreOption(std::string_view name, std::string_view value, StoreOptions* options);
// The canonical text of one option's present value.
Result<std::string> GetStoreOption(std::string_view name, const StoreOptions& options);
// "hyperloop://h1:p1,h2:p2?name=value&name=value" (also "hyperloop" and "hyperloop:" alone, with
// options to follow). Percent-decoding in values. Anything unknown, doubled or malformed is
// kInvalidArgument and leaves `options` unchanged.
//
// "hyperloop:///NAME?name=value" is the group NAME of this host's files
// (hyperloop/identity/hosts.h), which are read now: replicas, this host's name, keys, device and
// pool, and the options that hold for all hosts, which cannot be set here. Besides
// kInvalidArgument, kNotFound: there is no such group here, or no host; kPermissionDenied: others
// could have written a file, or this process may not read it.
Status ParseStoreUri(std::string_view uri, StoreOptions* options);
// Checks that hold across options (replica count and duplicates, window range, device given for
// softrnic, pool given …).
Status ValidateStoreOptions(const StoreOptions& options);
// The URI that ParseStoreUri turns into `options` again; defaults left out.
std::string FormatStoreUri(const StoreOptions& options);
// The page docs/options.md, made from the table.
std::string StoreOptionsMarkdown();

}  // namespace hyperloop
