// The table of options: each entry has the public description and the two functions that set and
// print it.
#include "hyperloop/replication/options.h"

#include <algorithm>
#include <array>
#include <set>

#include "hyperloop/core/nearest_name.h"
#include "hyperloop/replication/size.h"
#include "options/option_text.h"

namespace hyperloop {
namespace {

using option_text::CheckEndpoint;
using option_text::FormatBytes;
using option_text::FormatMilliseconds;
using option_text::ParseBoolean;
using option_text::ParseBytes;
using option_text::ParseInteger;
using option_text::ParseMilliseconds;

constexpr std::chrono::seconds kLeastHeartbeatTimeout{3};  // three questions of AbsentWatch
constexpr size_t kMaxText = 4096;                          // of a path
static_assert(kMaxWindow == 4096, "the range of the option window says so");

struct Option {
  OptionInfo info;
  // Sets the option, or returns what is wrong with the value (name, value and range are added by
  // the caller).
  std::string (*set)(std::string_view value, StoreOptions* options);
  std::string (*get)(const StoreOptions& options);
};

template <auto Member, uint64_t kLow, uint64_t kHigh>
std::string SetBytes(std::string_view value, StoreOptions* options) {
  std::optional<uint64_t> bytes = ParseBytes(value);
  if (!bytes) return "is not a size";
  if (*bytes < kLow || *bytes > kHigh) return "is out of range";
  options->*Member = *bytes;
  return "";
}

template <auto Member>
std::string GetBytes(const StoreOptions& options) {
  return FormatBytes(options.*Member);
}

template <auto Member, uint64_t kLow, uint64_t kHigh>
std::string SetInteger(std::string_view value, StoreOptions* options) {
  std::optional<uint64_t> number = ParseInteger(value);
  if (!number) return "is not a whole number";
  if (*number < kLow || *number > kHigh) return "is out of range";
  options->*Member = static_cast<uint32_t>(*number);
  return "";
}

template <auto Member>
std::string GetInteger(const StoreOptions& options) {
  return std::to_string(options.*Member);
}

template <auto Member>
std::string SetTime(std::string_view value, StoreOptions* options) {
  std::optional<std::chrono::milliseconds> time = ParseMilliseconds(value);
  if (!time) return "is not a time";
  if (*time < std::chrono::milliseconds(1) || *time > std::chrono::hours(1))
    return "is out of range";
  options->*Member = *time;
  return "";
}

std::string SetHeartbeatTimeout(std::string_view value, StoreOptions* options) {
  const std::optional<std::chrono::milliseconds> time = ParseMilliseconds(value);
  if (!time) return "is not a time";
  if (time->count() != 0 && (*time < kLeastHeartbeatTimeout || *time > std::chrono::hours(1)))
    return "is out of range";
  options->heartbeat_timeout = *time;
  return "";
}

template <auto Member>
std::string GetTime(const StoreOptions& options) {
  return FormatMilliseconds(options.*Member);
}

template <auto Member>
std::string SetBoolean(std::string_view value, StoreOptions* options) {
  std::optional<bool> flag = ParseBoolean(value);
  if (!flag) return "is not a truth value";
  options->*Member = *flag;
  return "";
}

template <auto Member>
std::string GetBoolean(const StoreOptions& options) {
  return options.*Member ? "true" : "false";
}

template <auto Member, size_t kLimit>
std::string SetText(std::string_view value, StoreOptions* options) {
  if (value.empty()) return "is empty";
  if (value.size() > kLimit) return "is too long";
  for (char c : value) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) return "has a control character";
  }
  options->*Member = std::string(value);
  return "";
}

template <auto Member>
std::string GetText(const StoreOptions& options) {
  return options.*Member;
}

std::string SetProvider(std::string_view value, StoreOptions* options) {
  if (value != "softrnic" && value != "verbs") return "is not a known provider";
  options->provider = std::string(value);
  return "";
}

std::string SetGidIndex(std::string_view value, StoreOptions* options) {
  if (value == "auto") {
    options->gid_index = -1;
    return "";
  }
  const std::optional<uint64_t> index = ParseInteger(value);
  if (!index || *index > 255) return "is not an index";
  options->gid_index = static_cast<int32_t>(*index);
  return "";
}

std::string SetMtu(std::string_view value, StoreOptions* options) {
  constexpr std::array<uint64_t, 6> kMtus = {0, 256, 512, 1024, 2048, 4096};
  const std::optional<uint64_t> bytes = ParseInteger(value);
  if (!bytes || std::find(kMtus.begin(), kMtus.end(), *bytes) == kMtus.end()) {
    return "is not an RDMA device's mtu";
  }
  options->mtu = static_cast<uint32_t>(*bytes);
  return "";
}

std::string SetMedia(std::string_view value, StoreOptions* options) {
  constexpr std::array<std::string_view, 6> kMedia = {"auto", "ram",           "file",
                                                      "pmem", "file-emulated", "pmem-emulated"};
  if (std::find(kMedia.begin(), kMedia.end(), value) == kMedia.end())
    return "is not a known medium";
  options->media = std::string(value);
  return "";
}

std::string SetDatapath(std::string_view value, StoreOptions* options) {
  options->datapath.reset();
  if (value == "auto") return "";
  const Result<Datapath> datapath = ParseDatapath(value);
  if (!datapath.ok()) return "is not a known datapath";
  options->datapath = *datapath;
  return "";
}

std::string SetAck(std::string_view value, StoreOptions* options) {
  if (value != "append" && value != "sync") return "is not a known acknowledgement mode";
  options->ack = value == "append" ? AckMode::kAppend : AckMode::kSync;
  return "";
}

std::string SetLocalWrite(std::string_view value, StoreOptions* options) {
  if (value != "acknowledged" && value != "overlapped") return "is not a known time to write";
  options->local_write =
      value == "acknowledged" ? LocalWrite::kAcknowledged : LocalWrite::kOverlapped;
  return "";
}

// By OnReplicaFailure.
constexpr std::array<std::string_view, 3> kFailureNames = {"auto", "block", "continue"};

std::string SetOnReplicaFailure(std::string_view value, StoreOptions* options) {
  const auto* const found = std::ranges::find(kFailureNames, value);
  if (found == kFailureNames.end()) return "is not known";
  options->on_replica_failure = static_cast<OnReplicaFailure>(found - kFailureNames.begin());
  return "";
}

std::string SetWait(std::string_view value, StoreOptions* options) {
  options->wait.reset();
  if (value == "auto") return "";
  for (const WaitMode wait : {WaitMode::kPoll, WaitMode::kEvent, WaitMode::kHybrid})
    if (value == WaitModeName(wait)) options->wait = wait;
  return options->wait ? "" : "is not a known way to wait";
}

std::string CheckReplicas(const std::vector<std::string>& replicas) {
  if (replicas.size() > kMaxGroupSize) {
    return "has " + std::to_string(replicas.size()) + " replicas, more than " +
           std::to_string(kMaxGroupSize);
  }
  std::set<std::string> seen;
  for (const std::string& replica : replicas) {
    if (std::string wrong = CheckEndpoint(replica); !wrong.empty())
      return "names \"" + replica + "\", which " + wrong;
    if (!seen.insert(replica).second) return "names " + replica + " twice";
  }
  return "";
}

std::string SetReplicas(std::string_view value, StoreOptions* options) {
  std::vector<std::string> replicas;
  for (size_t start = 0; start <= value.size();) {
    size_t comma = std::min(value.find(',', start), value.size());
    replicas.emplace_back(value.substr(start, comma - start));
    start = comma + 1;
  }
  if (std::string wrong = CheckReplicas(replicas); !wrong.empty()) return wrong;
  options->replicas = std::move(replicas);
  return "";
}

template <auto Member>
std::string SetReplica(std::string_view value, StoreOptions* options) {
  std::string replica(value);
  if (std::string wrong = CheckEndpoint(replica); !wrong.empty()) return wrong;
  options->*Member = std::move(replica);
  return "";
}

std::string GetReplicas(const StoreOptions& options) {
  std::string text;
  for (const std::string& replica : options.replicas) text += (text.empty() ? "" : ",") + replica;
  return text;
}

std::string SetMetricsFile(std::string_view value, StoreOptions* options) {
  constexpr std::string_view kEnd = ".prom";
  const std::string_view name = value.substr(value.rfind('/') + 1);
  if (!value.starts_with('/') || !name.ends_with(kEnd) || name.size() == kEnd.size())
    return "is not an absolute path that ends in .prom";
  return SetText<&StoreOptions::metrics_file, kMaxText>(value, options);
}

constexpr uint64_t kKiB = 1ull << 10, kGiB = 1ull << 30;

std::string SetRegionSize(std::string_view value, StoreOptions* options) {
  if (value == "0") {
    options->region_size = 0;
    return "";
  }
  return SetBytes<&StoreOptions::region_size, kMinRegionSize, kMaxRegionSize>(value, options);
}

using S = StoreOptions;
constexpr Option kOptions[] = {
    {{"replicas", "list of host:port", "", "1 to 8, separated by commas",
      "Control endpoints of the replicas, in chain order; in a URI they stand between \"//\" and "
      "\"?\"."},
     SetReplicas,
     GetReplicas},
    {{"provider", "one of softrnic|verbs", "softrnic", "softrnic, verbs",
      "Which kind of RDMA device carries the group: the software RNIC, or any that libibverbs "
      "knows (docs/verbs.md)."},
     SetProvider,
     GetText<&S::provider>},
    {{"device", "text", "", "a path, NAME or NAME:PORT",
      "softrnic: the socket of hyperloop-rnicd on this machine, required; verbs: the RDMA device, "
      "by default the first with an active port."},
     SetText<&S::device, kMaxText>,
     GetText<&S::device>},
    {{"host", "text", "primary", "1 to 63 characters",
      "softrnic: the emulated host whose RNIC this process uses."},
     SetText<&S::host, 63>,
     GetText<&S::host>},
    {{"gid_index", "integer", "auto", "auto, 0 to 255",
      "verbs: which address of the device; auto prefers RoCE v2 with IPv4."},
     SetGidIndex,
     [](const S& o) { return o.gid_index < 0 ? "auto" : std::to_string(o.gid_index); }},
    {{"mtu", "integer", "0", "0, 256, 512, 1024, 2048, 4096",
      "verbs: bytes of payload in a packet, equal on all nodes; 0 takes the port's."},
     SetMtu,
     GetInteger<&S::mtu>},
    {{"traffic_class", "integer", "0", "0 to 255", "verbs: traffic class of the packets (DSCP)."},
     SetInteger<&S::traffic_class, 0, 255>,
     GetInteger<&S::traffic_class>},
    {{"pool", "text", "", "a path",
      "The primary's own PMDK pool, a node of the group like each replica's; created when it does "
      "not exist. Required."},
     SetText<&S::pool, kMaxText>,
     GetText<&S::pool>},
    {{"keys", "text", "", "a path",
      "The keys directory of this host (hyperloopctl keys): its identity, and whom it trusts. With "
      "it the primary and its replicas prove to each other who they are, and encrypt what they say "
      "on the control plane; replicas that other machines reach answer nobody else. Without it "
      "only replicas on this machine that were started with --insecure can be used."},
     SetText<&S::keys, kMaxText>,
     GetText<&S::keys>},
    {{"datapath", "one of auto|offload|fanout|cpu-polling|cpu-event", "auto",
      "auto, offload, fanout, cpu-polling, cpu-event",
      "How operations reach the replicas: offload, down a chain that the replicas' RNICs forward "
      "alone (needs an RNIC with cross-channel operations); fanout, the primary writes each "
      "replica itself, no replica CPU either; auto, offload where one RNIC serves all replicas, "
      "and fanout otherwise, which is faster between machines; cpu-polling and cpu-event, down a "
      "chain that each replica's CPU forwards, polling without end or woken by its RNIC: "
      "baselines, and they stand still when a replica's process does."},
     SetDatapath,
     [](const S& o) { return std::string(o.datapath ? DatapathName(*o.datapath) : "auto"); }},
    {{"ack", "one of append|sync", "append", "append, sync",
      "When a write counts as durable on every replica: when Append returns, or only when Sync "
      "returns (appends are then "
      "pipelined, and a Put without sync=true is not yet replicated when it returns)."},
     SetAck,
     [](const S& o) { return std::string(o.ack == AckMode::kAppend ? "append" : "sync"); }},
    {{"wait", "one of auto|poll|hybrid|event", "auto", "auto, poll, hybrid, event",
      "How the primary waits for acknowledgements: poll looks for them without end, which is "
      "fastest; event sleeps until its RNIC wakes it, which costs some tens of microseconds and "
      "saves the processor; hybrid polls for poll_us and then sleeps, or sleeps at once while "
      "acknowledgements take longer; auto, hybrid where the primary may use fewer than four "
      "processors or has another RNIC than a replica, and poll otherwise."},
     SetWait,
     [](const S& o) { return std::string(o.wait ? WaitModeName(*o.wait) : "auto"); }},
    {{"poll_us", "integer", "50", "1 to 1000000",
      "With wait=hybrid: microseconds of polling before the primary sleeps."},
     SetInteger<&S::poll_us, 1, 1'000'000>,
     GetInteger<&S::poll_us>},
    {{"window", "integer", "64", "1 to 4096", "Group operations under way at once, at most."},
     SetInteger<&S::window, 1, kMaxWindow>,
     GetInteger<&S::window>},
    {{"journal_size", "bytes", "32M", "256K to 4G",
      "Size of the journal ring; applied when the group is formatted."},
     SetBytes<&S::journal_size, 256 * kKiB, 4 * kGiB>,
     GetBytes<&S::journal_size>},
    {{"region_size", "bytes", "0", "0, or 4M to 15G",
      "Size of the replicated region, which every node must have; 0 takes that of the first "
      "replica."},
     SetRegionSize,
     GetBytes<&S::region_size>},
    {{"table_capacity", "integer", "4096", "64 to 1048576",
      "Files that the database directory can hold at once, SST files included; applied when the "
      "group is formatted."},
     SetInteger<&S::table_capacity, 64, 1048576>,
     GetInteger<&S::table_capacity>},
    {{"media", "one of auto|ram|file|pmem|file-emulated|pmem-emulated", "auto",
      "auto, ram, file, pmem, file-emulated, pmem-emulated",
      "What durable means for the primary's pool: pmem flushes CPU caches, file calls msync, ram "
      "survives any failure that "
      "spares one member's power; auto detects it. More than the pool's place can promise is "
      "refused; NAME-emulated runs that code path and promises what ram does."},
     SetMedia,
     GetText<&S::media>},
    {{"local_sync", "boolean", "false", "true, false",
      "Also fsync the local copies of logs; those of MANIFEST and CURRENT always are. Not "
      "needed for safety: the group is the truth, and local copies are set to it at open."},
     SetBoolean<&S::local_sync>,
     GetBoolean<&S::local_sync>},
    {{"local_write", "one of overlapped|acknowledged", "overlapped", "overlapped, acknowledged",
      "When the local copies of log files are written: overlapped, while the replicas work, which "
      "hides the local write; acknowledged, once the group has the bytes, so that whoever reads "
      "them beside the primary (a secondary instance) sees nothing that may still fail. "
      "acknowledged needs ack=append."},
     SetLocalWrite,
     [](const S& o) {
       return std::string(o.local_write == LocalWrite::kAcknowledged ? "acknowledged"
                                                                     : "overlapped");
     }},
    {{"metrics_file", "text", "", "an absolute path that ends in .prom",
      "Write metrics of the group and of this primary into this file every 5 s, for "
      "node_exporter's "
      "textfile collector (docs/monitoring.md). The file is replaced whole, everybody may read it, "
      "and it is removed when the database is closed. Nobody else may be able to replace files in "
      "its directory."},
     SetMetricsFile,
     GetText<&S::metrics_file>},
    {{"takeover", "boolean", "false", "true, false",
      "Take the group at open even from a primary that is alive; that one is fenced for good."},
     SetBoolean<&S::takeover>,
     GetBoolean<&S::takeover>},
    {{"restore", "boolean", "false", "true, false",
      "Allow an empty database directory to be filled from a group that holds a database."},
     SetBoolean<&S::restore>,
     GetBoolean<&S::restore>},
    {{"rebind", "boolean", "false", "true, false",
      "Bind the group to this directory in place of the one that it is bound to, which is refused "
      "from then on until it is opened with rebind=true itself."},
     SetBoolean<&S::rebind>,
     GetBoolean<&S::rebind>},
    {{"adopt", "boolean", "false", "true, false",
      "Take a database that the directory holds, and that was in no group, into a group that holds "
      "none. Opening it then waits until every replica has all of it. Does nothing for a directory "
      "that is its group's already."},
     SetBoolean<&S::adopt>,
     GetBoolean<&S::adopt>},
    {{"add_replica", "host:port", "", "one of the replicas",
      "Take this replica, a fresh one, into a group that does not have it yet, while all others "
      "run. The database is served while the replica is sent its SST and blob files. Does nothing "
      "if the group has the replica already."},
     SetReplica<&S::add_replica>,
     GetText<&S::add_replica>},
    {{"remove_replica", "host:port", "", "none of the replicas",
      "Go on for good without this replica of a group of three or more. The replica need not run, "
      "all others must. Does nothing if the group does not have it."},
     SetReplica<&S::remove_replica>,
     GetText<&S::remove_replica>},
    {{"on_replica_failure", "one of auto|block|continue", "auto", "auto, block, continue",
      "What a primary does when a replica fails: auto, continue with three replicas or more, and "
      "else block; block, writes wait for it and then fail; "
      "continue, once it was not heard of for a fifth of ack_timeout, and for 0.8 s or, if that is "
      "less, 0.2 s and 45 % of ack_timeout, the group goes on with the others, if they are a "
      "majority of its replicas, and takes the replica in again when it is back, while writes "
      "wait. "
      "A database then also opens without that replica."},
     SetOnReplicaFailure,
     [](const S& o) {
       return std::string(kFailureNames[static_cast<size_t>(o.on_replica_failure)]);
     }},
    {{"min_replicas", "integer", "0", "0 to 8",
      "With on_replica_failure=continue: the group never goes on with fewer replicas, nor with "
      "fewer than a majority of all that it has."},
     SetInteger<&S::min_replicas, 0, 8>,
     GetInteger<&S::min_replicas>},
    {{"heartbeat_timeout", "milliseconds", "0ms", "0, 3s to 3600s",
      "With on_replica_failure=continue: a replica that answers no request for so long is left "
      "out, although its RNIC still acknowledges writes, if the others answer. 0: it stays, and a "
      "flush waits for it."},
     SetHeartbeatTimeout,
     GetTime<&S::heartbeat_timeout>},
    {{"ack_timeout", "milliseconds", "10s", "1ms to 3600s",
      "How long a write may take while the group does not answer: half of it to wait for an "
      "acknowledgement, half to bring the group back; then it fails with a retryable error and its "
      "outcome is open."},
     SetTime<&S::ack_timeout>,
     GetTime<&S::ack_timeout>},
    {{"space_timeout", "milliseconds", "10s", "1ms to 3600s",
      "Longest wait for room in the journal ring or the data area; then the write fails with "
      "NoSpace."},
     SetTime<&S::space_timeout>,
     GetTime<&S::space_timeout>},
    {{"connect_timeout", "milliseconds", "5s", "1ms to 3600s",
      "Longest wait for a replica's control endpoint to answer. With on_replica_failure=continue "
      "an "
      "opening waits a tenth of it for the others once a majority has answered."},
     SetTime<&S::connect_timeout>,
     GetTime<&S::connect_timeout>},
    {{"bulk_timeout", "milliseconds", "60s", "1ms to 3600s",
      "Longest time without progress that a change of the MANIFEST waits for SST and blob files to "
      "reach a replica; then it fails, and RocksDB tries again."},
     SetTime<&S::bulk_timeout>,
     GetTime<&S::bulk_timeout>},
};

constexpr size_t kOptionCount = std::size(kOptions);

constexpr auto kInfos = [] {
  std::array<OptionInfo, kOptionCount> infos{};
  for (size_t i = 0; i < kOptionCount; ++i) infos[i] = kOptions[i].info;
  return infos;
}();

constexpr auto kNames = [] {
  std::array<std::string_view, kOptionCount> names{};
  for (size_t i = 0; i < kOptionCount; ++i) names[i] = kOptions[i].info.name;
  return names;
}();

Result<const Option*> Find(std::string_view name) {
  for (const Option& option : kOptions) {
    if (option.info.name == name) return &option;
  }
  return InvalidArgument("unknown option \"" + std::string(name) +
                         "\"; the nearest known one is \"" +
                         std::string(NearestName(name, kNames)) + "\"");
}

}  // namespace

std::span<const OptionInfo> StoreOptionTable() { return kInfos; }

Status SetStoreOption(std::string_view name, std::string_view value, StoreOptions* options) {
  HL_ASSIGN_OR_RETURN(const Option* option, Find(name));
  std::string wrong = option->set(value, options);
  if (wrong.empty()) return Status::Ok();
  return InvalidArgument("option " + std::string(name) + "=\"" + std::string(value) + "\" " +
                         wrong + "; accepted: " + std::string(option->info.type) + ", " +
                         std::string(option->info.range));
}

Result<std::string> GetStoreOption(std::string_view name, const StoreOptions& options) {
  HL_ASSIGN_OR_RETURN(const Option* option, Find(name));
  return option->get(options);
}

namespace {

bool MayBeEmpty(std::string_view option, const StoreOptions& options) {
  return option == "keys" || option == "metrics_file" || option == "add_replica" ||
         option == "remove_replica" || (option == "device" && options.provider == "verbs");
}

Status CheckChange(const StoreOptions& options) {
  const std::string &added = options.add_replica, &removed = options.remove_replica;
  const auto listed = [&](const std::string& replica) {
    return std::ranges::count(options.replicas, replica) != 0;
  };
  if (!added.empty() && !removed.empty()) {
    return InvalidArgument(
        "add_replica and remove_replica: a group changes by one replica at a time; open the "
        "database with one of them first, and then with the other");
  }
  if (!added.empty() && !listed(added))
    return InvalidArgument("add_replica=" + added + " is not listed; list it among the replicas");
  if (!removed.empty() && listed(removed)) {
    return InvalidArgument("remove_replica=" + removed +
                           " is listed; list the replicas that are to stay");
  }
  return Status::Ok();
}

}  // namespace

bool GoesOnWithoutSome(const StoreOptions& options) {
  if (options.on_replica_failure == OnReplicaFailure::kAuto) return options.replicas.size() >= 3;
  return options.on_replica_failure == OnReplicaFailure::kContinue;
}

Status ValidateStoreOptions(const StoreOptions& options) {
  if (options.replicas.empty()) {
    return InvalidArgument(
        "no replicas given; write hyperloop://host:port,host:port?… or replicas=host:port,…");
  }
  // Values set in code rather than from text pass the same checks.
  for (const Option& option : kOptions) {
    std::string value = option.get(options);
    if (value.empty() && MayBeEmpty(option.info.name, options)) continue;
    bool required = option.info.name == "device" || option.info.name == "pool";
    if (value.empty() && required) {
      return InvalidArgument("option " + std::string(option.info.name) +
                             " is not set: " + std::string(option.info.text));
    }
    StoreOptions scratch;
    HL_RETURN_IF_ERROR(SetStoreOption(option.info.name, value, &scratch));
  }
  if (options.provider == "verbs" && options.datapath == Datapath::kOffload) {
    return InvalidArgument(
        "datapath=offload needs an RNIC whose queues can start one another, and provider=verbs has "
        "none; choose datapath=fanout, cpu-polling or cpu-event, or provider=softrnic");
  }
  if (options.local_write == LocalWrite::kAcknowledged && options.ack == AckMode::kSync) {
    return InvalidArgument(
        "local_write=acknowledged needs ack=append: with ack=sync an append waits for no replica, "
        "so its local copy would hold bytes that may still fail");
  }
  HL_RETURN_IF_ERROR(CheckChange(options));
  if (options.adopt && options.restore) {
    return InvalidArgument(
        "adopt=true fills the group from the directory, and restore=true the directory from the "
        "group; give one of them");
  }
  if (options.min_replicas > options.replicas.size()) {
    return InvalidArgument("min_replicas=" + std::to_string(options.min_replicas) + " of " +
                           std::to_string(options.replicas.size()) +
                           " listed replicas; give at most that, or 0");
  }
  if (options.heartbeat_timeout.count() != 0 && !GoesOnWithoutSome(options)) {
    return InvalidArgument("heartbeat_timeout=" + FormatMilliseconds(options.heartbeat_timeout) +
                           " leaves a silent replica out, which needs on_replica_failure=continue; "
                           "give that too, or heartbeat_timeout=0");
  }
  if (options.region_size != 0 && options.journal_size >= options.region_size) {
    return InvalidArgument(
        "journal_size=" + FormatBytes(options.journal_size) +
        " leaves no room for data in region_size=" + FormatBytes(options.region_size) +
        "; make the region at least twice the journal");
  }
  return Status::Ok();
}

}  // namespace hyperloop
