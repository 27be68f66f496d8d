// The table of all metrics that the programs and the plugin show: the one place for their names,
// types, labels and help texts. Code that adds a sample names a row of it, which the compiler looks
// up; docs/metrics.md is made from it.
//
// Names follow the conventions of Prometheus: base units, and counters that end with _total.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace hyperloop::metrics {

enum class Type : uint8_t { kGauge, kCounter, kHistogram };

// Who shows a metric, as a set of bits.
inline constexpr uint8_t kRnicd = 1, kReplica = 2, kPrimary = 4, kFollower = 8, kAgent = 16;

struct Info {
  std::string_view name;
  Type type;
  uint8_t shown_by;
  std::string_view labels;  // their names, with commas between them; empty: none
  std::string_view help;    // one sentence without a full stop, '"' or '\'
};

inline constexpr Info kTable[] = {
    // --- every program
    {"hyperloop_build_info", Type::kGauge, kRnicd | kReplica | kFollower | kAgent,
     "program,version", "Always 1; the labels say what runs"},
    {"process_start_time_seconds", Type::kGauge, kRnicd | kReplica | kFollower | kAgent, "",
     "When the program started, in seconds since 1970"},

    // --- hyperloop-rnicd: what each emulated host's queue pairs did since its first client came
    {"hyperloop_rnic_queue_pairs", Type::kGauge, kRnicd, "host",
     "Queue pairs that the host has now"},
    {"hyperloop_rnic_wqes_fetched_total", Type::kCounter, kRnicd, "host", "WQEs decoded"},
    {"hyperloop_rnic_wqes_executed_total", Type::kCounter, kRnicd, "host",
     "WQEs that ran to their end"},
    {"hyperloop_rnic_nops_total", Type::kCounter, kRnicd, "host", "NOPs that ran"},
    {"hyperloop_rnic_sends_total", Type::kCounter, kRnicd, "host", "SENDs that succeeded"},
    {"hyperloop_rnic_writes_total", Type::kCounter, kRnicd, "host", "WRITEs that succeeded"},
    {"hyperloop_rnic_reads_total", Type::kCounter, kRnicd, "host", "READs that succeeded"},
    {"hyperloop_rnic_atomics_total", Type::kCounter, kRnicd, "host",
     "Atomic operations that succeeded"},
    {"hyperloop_rnic_waits_total", Type::kCounter, kRnicd, "host", "WAITs fetched"},
    {"hyperloop_rnic_enables_total", Type::kCounter, kRnicd, "host",
     "SEND_EN and RECV_EN that ran"},
    {"hyperloop_rnic_read_responses_nonzero_total", Type::kCounter, kRnicd, "host",
     "READs of at least one byte that the host answered, which are flushes"},
    {"hyperloop_rnic_bytes_sent_total", Type::kCounter, kRnicd, "host", "Payload bytes sent"},
    {"hyperloop_rnic_bytes_received_total", Type::kCounter, kRnicd, "host",
     "Payload bytes received"},
    {"hyperloop_rnic_recv_scatter_bytes_total", Type::kCounter, kRnicd, "host",
     "Bytes that receives scattered"},
    {"hyperloop_rnic_ring_bytes_by_scatter_total", Type::kCounter, kRnicd, "host",
     "Bytes that receives scattered into memory of rings or doorbell records"},
    {"hyperloop_rnic_ring_bytes_by_other_total", Type::kCounter, kRnicd, "host",
     "Bytes that anything else wrote into such memory; a replica's stays as it was after set-up"},
    {"hyperloop_rnic_cqes_total", Type::kCounter, kRnicd, "host", "CQEs written"},
    {"hyperloop_rnic_error_cqes_total", Type::kCounter, kRnicd, "host",
     "CQEs written that report an error"},
    {"hyperloop_rnic_rnr_stalls_total", Type::kCounter, kRnicd, "host",
     "Times a queue stopped because its peer had no receive posted"},
    {"hyperloop_rnic_rnr_retries_total", Type::kCounter, kRnicd, "host",
     "Times the timer of such a queue expired"},
    {"hyperloop_rnic_ack_stalls_total", Type::kCounter, kRnicd, "host",
     "Times a queue stopped because its peer was not there"},
    {"hyperloop_rnic_ack_timeouts_total", Type::kCounter, kRnicd, "host",
     "Times a queue waited for an answer in vain"},
    {"hyperloop_rnic_wait_stalls_total", Type::kCounter, kRnicd, "host",
     "Times a queue stopped at a WAIT"},
    {"hyperloop_rnic_fence_stalls_total", Type::kCounter, kRnicd, "host",
     "Times a queue stopped at a fence or at the limit of READs under way"},
    {"hyperloop_rnic_stale_fetches_total", Type::kCounter, kRnicd, "host",
     "WQEs that ran from a copy which memory no longer equalled"},
    {"hyperloop_rnic_doorbells_total", Type::kCounter, kRnicd, "host",
     "Doorbells taken, which are what the host's processors started"},
    {"hyperloop_rnic_media_flushes_total", Type::kCounter, kRnicd, "host",
     "Ranges of memory made durable"},
    {"hyperloop_rnic_media_flushed_bytes_total", Type::kCounter, kRnicd, "host",
     "Bytes of these ranges"},
    {"hyperloop_rnic_link_packets_sent_total", Type::kCounter, kRnicd, "host",
     "Request packets to queue pairs at other daemons"},
    {"hyperloop_rnic_link_packets_received_total", Type::kCounter, kRnicd, "host",
     "Packets from queue pairs at other daemons"},
    {"hyperloop_rnic_link_retransmits_total", Type::kCounter, kRnicd, "host", "Packets sent again"},
    {"hyperloop_rnic_link_duplicates_total", Type::kCounter, kRnicd, "host",
     "Requests that had run already and were not run again"},

    // --- hyperloop-rnicd: the daemon itself, and its links to the daemons of other machines
    {"hyperloop_rnicd_clients", Type::kGauge, kRnicd, "", "Connections of clients that are served"},
    {"hyperloop_rnicd_turns_total", Type::kCounter, kRnicd, "",
     "Turns of the data thread, those that found nothing included"},
    {"hyperloop_rnicd_idle_turns_total", Type::kCounter, kRnicd, "",
     "Turns that found nothing to do"},
    {"hyperloop_rnicd_sleeps_total", Type::kCounter, kRnicd, "",
     "Times the data thread went to sleep"},
    {"hyperloop_rnicd_host_stalls_total", Type::kCounter, kRnicd, "",
     "Times the machine kept the data thread from running for more than 1 ms"},
    {"hyperloop_rnicd_link_up", Type::kGauge, kRnicd, "peer",
     "Whether the link to the daemon of these hosts is up"},
    {"hyperloop_rnicd_link_cipher_info", Type::kGauge, kRnicd, "peer,cipher",
     "Always 1, while the link is up; the label says what seals it, or none without keys"},
    {"hyperloop_rnicd_link_frames_sent_total", Type::kCounter, kRnicd, "",
     "Frames sent on all links"},
    {"hyperloop_rnicd_link_frames_received_total", Type::kCounter, kRnicd, "",
     "Frames received on all links"},
    {"hyperloop_rnicd_link_sent_bytes_total", Type::kCounter, kRnicd, "",
     "Bytes sent on all links, as on the wire"},
    {"hyperloop_rnicd_link_received_bytes_total", Type::kCounter, kRnicd, "",
     "Bytes received on all links, as on the wire"},
    {"hyperloop_rnicd_link_connects_total", Type::kCounter, kRnicd, "",
     "Times a link came up for the first time"},
    {"hyperloop_rnicd_link_reconnects_total", Type::kCounter, kRnicd, "",
     "Times a link came up after a cut"},
    {"hyperloop_rnicd_link_connections_refused_total", Type::kCounter, kRnicd, "",
     "Connections at the port of the links that were refused"},
    {"hyperloop_rnicd_link_claims_refused_total", Type::kCounter, kRnicd, "",
     "Packets refused because they spoke for a host that their sender is not"},
    {"hyperloop_rnicd_link_answer_bytes", Type::kGauge, kRnicd, "",
     "Bytes of answers that neighbours have not taken yet"},

    // --- hyperloop-replica
    {"hyperloop_replica_info", Type::kGauge, kReplica, "node,group,media",
     "Always 1; the labels say which node of which group this is, and on which media"},
    {"hyperloop_replica_sampled_timestamp_seconds", Type::kGauge, kReplica, "",
     "When the thread that serves primaries last looked at what is shown here, in seconds since "
     "1970"},
    {"hyperloop_replica_device_up", Type::kGauge, kReplica, "", "Whether the RNIC serves"},
    {"hyperloop_replica_region_bytes", Type::kGauge, kReplica, "", "Size of the replicated region"},
    {"hyperloop_replica_sealed_epoch", Type::kGauge, kReplica, "",
     "Epoch that was promised last; 0: no primary ever took this node"},
    {"hyperloop_replica_installed_epoch", Type::kGauge, kReplica, "",
     "Epoch under which this node's log was made equal to the primary's"},
    {"hyperloop_replica_released", Type::kGauge, kReplica, "",
     "Whether the owner has closed the group in order, so that no heartbeat is to be expected"},
    {"hyperloop_replica_heartbeat_age_seconds", Type::kGauge, kReplica, "",
     "Time since this node saw the owner's heartbeat move, by its own clock"},
    {"hyperloop_replica_members", Type::kGauge, kReplica, "",
     "Replicas of the installed configuration"},
    {"hyperloop_replica_absent", Type::kGauge, kReplica, "",
     "Replicas that the installed configuration goes on without"},
    {"hyperloop_replica_ring_bytes", Type::kGauge, kReplica, "", "Size of the journal ring"},
    {"hyperloop_replica_ring_used_bytes", Type::kGauge, kReplica, "",
     "Bytes of the ring between the log's head and its tail; looked at every ten seconds"},
    {"hyperloop_replica_sequence", Type::kGauge, kReplica, "",
     "Number of the newest record of the log"},
    {"hyperloop_replica_acknowledged_sequence", Type::kGauge, kReplica, "",
     "Greatest number that a record of the log states as acknowledged by all"},
    {"hyperloop_replica_data_bytes", Type::kGauge, kReplica, "", "Size of the data area"},
    {"hyperloop_replica_data_used_bytes", Type::kGauge, kReplica, "",
     "Bytes of its extents that are in use, as executed"},
    {"hyperloop_replica_damaged", Type::kGauge, kReplica, "what",
     "Whether the idle check found damage in the region, or damaged files lie set aside"},
    {"hyperloop_replica_filling", Type::kGauge, kReplica, "",
     "Whether a primary has begun to write the region, and has not said yet that it is whole"},
    {"hyperloop_replica_awaits_opening", Type::kGauge, kReplica, "",
     "Whether hyperloopctl promote, switchover or adopt took the group last, so that its database "
     "is still to be opened"},
    {"hyperloop_replica_refuses_files", Type::kGauge, kReplica, "",
     "Whether the last SST or blob file could not be written, as on a disk that is full"},
    {"hyperloop_replica_files_disk_bytes", Type::kGauge, kReplica, "",
     "Size of the file system on which the SST and blob files lie"},
    {"hyperloop_replica_files_disk_free_bytes", Type::kGauge, kReplica, "",
     "Bytes that are free there for this replica"},
    {"hyperloop_replica_checks_total", Type::kCounter, kReplica, "",
     "Times the whole region was checked while nobody wrote to it"},
    {"hyperloop_replica_requests_total", Type::kCounter, kReplica, "",
     "Requests of the control plane that were handled"},
    {"hyperloop_replica_requests_refused_total", Type::kCounter, kReplica, "",
     "Requests of the control plane that were answered with an error"},

    // --- hyperloopctl follow
    {"hyperloop_follower_info", Type::kGauge, kFollower, "directory,group",
     "Always 1; the labels say which directory shows which group"},
    {"hyperloop_follower_looked_timestamp_seconds", Type::kGauge, kFollower, "",
     "When the replica was last read without an error, in seconds since 1970"},
    {"hyperloop_follower_lag_seconds", Type::kGauge, kFollower, "",
     "How long ago everything acknowledged was shown for certain: a majority of the replicas "
     "vouched "
     "for this one then; before the first time, since the program started"},
    {"hyperloop_follower_replica_lag_seconds", Type::kGauge, kFollower, "",
     "How long ago everything that this replica had was shown, whoever vouches for it; before the "
     "first time, and in a new epoch, since the program started"},
    {"hyperloop_follower_sequence", Type::kGauge, kFollower, "",
     "Number of the last record that is shown"},
    {"hyperloop_follower_lag_records", Type::kGauge, kFollower, "",
     "Records of the replica's log that are not known to be acknowledged, so not shown"},
    {"hyperloop_follower_lag_bytes", Type::kGauge, kFollower, "", "Bytes of these records"},
    {"hyperloop_follower_waits_for_file", Type::kGauge, kFollower, "",
     "Whether a table that the replica has lacked for seconds holds up what is shown"},
    {"hyperloop_follower_retained_bytes", Type::kGauge, kFollower, "",
     "Bytes of files that the group has dropped and readers may still open"},

    // --- hyperloop-agent
    {"hyperloop_agent_info", Type::kGauge, kAgent, "group,node",
     "Always 1; the labels say which node this is, and of which group, once that is known"},
    {"hyperloop_agent_state", Type::kGauge, kAgent, "node,state",
     "Always 1; the labels say which node this is, and in which state its agent is"},
    {"hyperloop_agent_primary", Type::kGauge, kAgent, "",
     "Whether this node's service has the group, is ready, and has a lease that is not over"},
    {"hyperloop_agent_able", Type::kGauge, kAgent, "",
     "Whether nothing keeps this node from taking the group, whether it has it or not; "
     "hyperloopctl agent check says what does"},
    {"hyperloop_agent_standby_ready", Type::kGauge, kAgent, "",
     "Whether the files that the group held were all beside this node's directory at some time "
     "since the agent's standby was started last; 0 while none runs"},
    {"hyperloop_agent_epoch", Type::kGauge, kAgent, "",
     "Newest epoch that a replica which answers has promised"},
    {"hyperloop_agent_paused", Type::kGauge, kAgent, "",
     "Whether operators have paused all agents of the group, so that none starts a service"},
    {"hyperloop_agent_drained", Type::kGauge, kAgent, "",
     "Whether operators want no service to run on this node"},
    {"hyperloop_agent_visible_replicas", Type::kGauge, kAgent, "",
     "Replicas of the group that answered the agent's last look"},
    {"hyperloop_agent_looks_total", Type::kCounter, kAgent, "", "Looks at the group"},
    {"hyperloop_agent_looks_without_majority_total", Type::kCounter, kAgent, "",
     "Looks that decided nothing: no majority of the replicas answered, or they answered late"},
    {"hyperloop_agent_takings_total", Type::kCounter, kAgent, "",
     "Times the agent started its service so that it takes the group"},
    {"hyperloop_agent_start_failures_total", Type::kCounter, kAgent, "",
     "Times the service ended, or was ended, except in order with its agent, for operators, or "
     "after "
     "another node won"},
    {"hyperloop_agent_service_ends_total", Type::kCounter, kAgent, "",
     "Times the service ended, for whatever reason"},
    {"hyperloop_agent_hook_calls_total", Type::kCounter, kAgent, "hook", "Times a hook was called"},
    {"hyperloop_agent_hook_failures_total", Type::kCounter, kAgent, "hook",
     "Calls of it that could not be made, failed, or were killed because they took too long"},
    {"hyperloop_agent_hook_waiting_seconds", Type::kGauge, kAgent, "hook",
     "For how long the hook was to be told something that no call of it has taken yet; 0: it was "
     "told everything"},

    // --- the primary, which writes them into a file
    {"hyperloop_primary_written_timestamp_seconds", Type::kGauge, kPrimary, "group",
     "When this was written, in seconds since 1970"},
    {"hyperloop_primary_up", Type::kGauge, kPrimary, "group",
     "Whether the group serves: 0 while it is out of reach, and for good once fenced"},
    {"hyperloop_primary_fenced", Type::kGauge, kPrimary, "group",
     "Whether another primary has taken the group"},
    {"hyperloop_primary_epoch", Type::kGauge, kPrimary, "group", "Epoch of this primary"},
    {"hyperloop_primary_info", Type::kGauge, kPrimary, "datapath,group,wait",
     "Always 1; the labels say how operations reach the replicas now, and how the primary waits "
     "for "
     "them"},
    {"hyperloop_primary_replica_present", Type::kGauge, kPrimary, "group,replica",
     "Whether this replica is a member of the configuration; 0: the group goes on without it"},
    {"hyperloop_primary_replica_suspected", Type::kGauge, kPrimary, "group,replica",
     "Whether this replica is a member that has answered no request for a while; its RNIC may "
     "serve "
     "on"},
    {"hyperloop_primary_replica_catches_up", Type::kGauge, kPrimary, "group,replica",
     "Whether this replica is a member that lacks files of the database from before, so that it "
     "does not count as one that holds it"},
    {"hyperloop_primary_replica_slow", Type::kGauge, kPrimary, "group,replica",
     "Whether this replica catches up, and took files so slowly that nobody waits for it"},
    {"hyperloop_primary_replica_files_lacking", Type::kGauge, kPrimary, "group,replica",
     "SST and blob files of the database that this replica is not known to hold"},
    {"hyperloop_primary_replica_files_lacking_bytes", Type::kGauge, kPrimary, "group,replica",
     "Bytes of these files that it has not got yet"},
    {"hyperloop_primary_next_failure_stops_writes", Type::kGauge, kPrimary, "group",
     "Whether the failure of one more replica would stop the writes of a group that serves"},
    {"hyperloop_primary_bears_failure_when_whole", Type::kGauge, kPrimary, "group",
     "Whether it would not if all replicas were members, answered and held all files: what options "
     "and number of replicas allow"},
    {"hyperloop_primary_acknowledgement_seconds", Type::kHistogram, kPrimary, "group",
     "Time from an append, or with ack=sync from a sync, until all replicas acknowledged it; one "
     "in 16 is timed"},
    {"hyperloop_primary_appends_total", Type::kCounter, kPrimary, "group", "Appends to log files"},
    {"hyperloop_primary_append_bytes_total", Type::kCounter, kPrimary, "group",
     "Bytes of these appends"},
    {"hyperloop_primary_syncs_total", Type::kCounter, kPrimary, "group",
     "Syncs that waited for the replicas, which ack=sync makes"},
    {"hyperloop_primary_sequence", Type::kGauge, kPrimary, "group",
     "Number of the newest record of the log"},
    {"hyperloop_primary_acknowledged_sequence", Type::kGauge, kPrimary, "group",
     "Number of the newest record that is known to be durable on every replica"},
    {"hyperloop_primary_records_in_flight", Type::kGauge, kPrimary, "group",
     "Records that are not known to be durable on every replica yet"},
    {"hyperloop_primary_window", Type::kGauge, kPrimary, "group",
     "Group operations under way at once, at most"},
    {"hyperloop_primary_ring_bytes", Type::kGauge, kPrimary, "group", "Size of the journal ring"},
    {"hyperloop_primary_ring_used_bytes", Type::kGauge, kPrimary, "group",
     "Bytes of the ring between the log's head and its tail"},
    {"hyperloop_primary_ring_waits_total", Type::kCounter, kPrimary, "group",
     "Times a call waited for room in the ring"},
    {"hyperloop_primary_checkpoints_total", Type::kCounter, kPrimary, "group",
     "Times the log's head was moved"},
    {"hyperloop_primary_data_bytes", Type::kGauge, kPrimary, "group", "Size of the data area"},
    {"hyperloop_primary_data_used_bytes", Type::kGauge, kPrimary, "group",
     "Bytes of its extents that are in use"},
    {"hyperloop_primary_data_reserved_bytes", Type::kGauge, kPrimary, "group",
     "Bytes of it that are kept for MANIFEST and CURRENT"},
    {"hyperloop_primary_data_waits_total", Type::kCounter, kPrimary, "group",
     "Times an append waited for room in the data area"},
    {"hyperloop_primary_failed_calls_total", Type::kCounter, kPrimary, "group",
     "Calls that failed because the group was out of reach or fenced"},
    {"hyperloop_primary_recoveries_total", Type::kCounter, kPrimary, "group",
     "Times the group was brought back after it had failed, or a replica was taken in again"},
    {"hyperloop_primary_damaged_files", Type::kGauge, kPrimary, "group",
     "The primary's own SST and blob files that are known to be damaged and wait to be mended"},
};
inline constexpr size_t kRows = std::size(kTable);

// The row of that name; kRows: there is none.
constexpr size_t RowOf(std::string_view name) {
  size_t row = 0;
  while (row < kRows && kTable[row].name != name) ++row;
  return row;
}

// A row, by its name. A name that the table does not have is an error of the compiler.
class Metric {
 public:
  consteval Metric(const char* name) : row_(RowOf(name)) {  // NOLINT(google-explicit-constructor)
    if (row_ == kRows) throw "the table of metrics has no row of that name";
  }
  constexpr size_t row() const { return row_; }

 private:
  size_t row_;
};

// The page docs/metrics.md.
std::string Markdown();

}  // namespace hyperloop::metrics
