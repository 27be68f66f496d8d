// hyperloop-agent: exit status 0 after SIGTERM or SIGINT, 1 after an error, 2 for wrong usage.

#include <cstdio>
#include <string>

#include "agent/agent_program.h"
#include "common/end_signals.h"
#include "hyperloop/command_line/command_line.h"
#include "hyperloop/core/log_level.h"
#include "hyperloop/core/text.h"
#include "options/node_group.h"
#include "options/option_text.h"

namespace {

using hyperloop::agent::AgentOptions;
using hyperloop::agent::Ready;
using std::chrono::milliseconds;

// With whoever asks by HTTP.
constexpr milliseconds kPatience{250};

// A time with ms or s.
void AddTime(CLI::App& app, const std::string& name, milliseconds* time, milliseconds least,
             milliseconds most, const std::string& text) {
  using hyperloop::option_text::FormatMilliseconds;
  const auto parse = [=](const std::vector<std::string>& words) {
    const auto parsed = hyperloop::option_text::ParseMilliseconds(words.at(0));
    if (!parsed || *parsed < least || *parsed > most) {
      throw CLI::ValidationError(
          name, hyperloop::Text("'", words[0], "' is no time from ", FormatMilliseconds(least),
                                " to ", FormatMilliseconds(most), " (a number with ms or s)"));
    }
    *time = *parsed;
    return true;
  };
  app.add_option(name, parse, text)->type_name("TIME")->default_str(FormatMilliseconds(*time));
}

void AddGroupOptions(CLI::App& app, AgentOptions* options, std::string* group) {
  CLI::Option* const uri = app.add_option(
      "--uri", options->uri,
      "the group, with the device, the pool and the keys of this node, as a primary here "
      "would open it; restore=true and rebind=true are added. Required without --group");
  uri->type_name("URI");
  CLI::Option* const node =
      app.add_option("--node", options->node,
                     "this node's name, another one than each other agent's of the group. Required "
                     "without --group");
  node->type_name("NAME");
  CLI::Option* const db =
      app.add_option("--db", options->db,
                     "the service's database directory on this node, which is bound to the group; "
                     "made or set to what the group holds whenever the service takes the group. "
                     "Required without --group");
  db->type_name("DIR");
  app.add_option("--group", *group,
                 "the group of this name in this host's files (/etc/hyperloop, or the folder that "
                 "HYPERLOOP_NODE names): URI, this node's name, database, service and, with "
                 "http_port, --http are what the file groups/NAME.conf says, or leads to")
      ->excludes(uri)
      ->excludes(node)
      ->excludes(db)
      ->type_name("NAME");
  app.add_option("--replica-files", options->replica_files,
                 "the directory of files of a replica on this node (POOL.files): while the service "
                 "does not run here, its tables are linked beside DIR instead of brought from "
                 "other nodes. With --group it is that of the group's replica here")
      ->type_name("DIR");
  app.add_option("command", options->command,
                 "-- PROGRAM and its arguments: the service, which opens the database in DIR; with "
                 "--group, if it is another one than the group's file names");
}

// What stands in for the files of a group.
void Check(const CLI::App& app, const AgentOptions& options) {
  if (app.count("--group") != 0) return;
  for (const char* name : {"--uri", "--node", "--db"})
    if (app.count(name) == 0) throw CLI::RequiredError(name);
  if (options.command.empty()) throw CLI::RequiredError("command");
}

hyperloop::Status TakeFiles(const std::string& name, AgentOptions* options) {
  HL_ASSIGN_OR_RETURN(const hyperloop::NodeGroup group, hyperloop::ReadNodeGroup(name));
  return hyperloop::agent::TakeGroup(group, options);
}

void AddTimes(CLI::App& app, AgentOptions* options) {
  using std::chrono::seconds;
  auto& timing = options->timing;
  AddTime(app, "--look-interval", &timing.look_interval, milliseconds(50), seconds(5),
          "how often the group's replicas are looked at; at most a quarter of --lease");
  AddTime(app, "--failover-timeout", &timing.failover_timeout, seconds(2), seconds(600),
          "how long no replica that answers, of a majority, may show a sign of life of the primary "
          "before another node takes its place");
  AddTime(
      app, "--lease", &timing.lease, milliseconds(500), seconds(450),
      "how long a sign of life at a majority lets this node say that it is the primary; at most "
      "three quarters of --failover-timeout");
  AddTime(
      app, "--isolation-timeout", &timing.isolation_timeout, milliseconds(0), seconds(3600),
      "how long the service may run without a lease, or while it ends although another node "
      "has the group, before it is killed; 0ms: it stays, and as long as its signs of life reach "
      "any replica, no other node takes its place");
  AddTime(app, "--stagger", &timing.stagger, milliseconds(50), seconds(60),
          "how long a node waits on average, at random, before it takes a group that is free");
  AddTime(app, "--hold-off", &timing.hold_off, seconds(1), seconds(3600),
          "how much longer a node waits that has failed of late; it doubles with each further "
          "failure within an hour, to sixteen times as much");
  AddTime(app, "--start-timeout", &timing.start_timeout, seconds(1), seconds(3600),
          "how long the service may take to take the group and be ready; then it is ended. It must "
          "be enough to fetch all that this node lacks, and to replay the log");
  AddTime(app, "--take-timeout", &timing.take_timeout, seconds(1), seconds(3600),
          "how long the others leave a group to the node that operators chose for it "
          "(hyperloopctl agent switchover), before any takes it");
  AddTime(app, "--stop-timeout", &options->stop_timeout, milliseconds(100), seconds(3600),
          "how long the service may take to end after SIGTERM; then it is killed");
}

void AddShown(CLI::App& app, AgentOptions* options, std::string* ready) {
  CLI::Option* const http =
      app.add_option("--http", options->http.address,
                     "show /primary, /replica, /health, /cluster, /check, /history and /metrics by "
                     "HTTP at this numeric loopback address; port 0: a free one, which the first "
                     "line of output "
                     "names. Without it no port is open")
          ->type_name("ADDRESS:PORT");
  app.add_flag("--http-open", options->http.open,
               "--http may be an address that other machines reach: whoever reaches it reads the "
               "names of nodes and replicas, and how they are, without proving who he is")
      ->needs(http);
  app.add_option("--role-file", options->role_file,
                 "a file that says this node's role as JSON, and is replaced when that changes")
      ->type_name("FILE");
  app.add_option("--history", options->history_file,
                 "a file of what the agent decides, and why, one line of JSON each; a second one, "
                 "FILE.1, has what is older. With --group: DIR.history, beside the database")
      ->type_name("FILE");
  app.add_option("--ready", *ready,
                 "when the service is ready: serves, once it has the group; notify, once it has "
                 "said so, too (sd_notify, READY=1)")
      ->check(CLI::IsMember({"serves", "notify"}))
      ->capture_default_str();
}

void AddHooks(CLI::App& app, AgentOptions* options) {
  using std::chrono::seconds;
  app.add_option("--hook", options->hooks,
                 "a program that is told what becomes of this node (became-primary, lost-primary, "
                 "paused, resumed, drained, undrained): called as PROGRAM EVENT KEY, and again "
                 "with the same KEY until it ends with 0. May be repeated. With --group: in place "
                 "of those that the group's file names")
      ->type_name("PROGRAM");
  AddTime(app, "--hook-timeout", &options->hook_timeout, milliseconds(100), seconds(600),
          "how long a call of a hook may take; then it is killed, and tried again");
  AddTime(app, "--hook-repeat", &options->hook_repeat, milliseconds(0), seconds(86400),
          "how long after a call hooks are told the same again, for those whose effect runs out; "
          "0ms: never");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "One node of a service that fails over by itself: looks at a group's replicas, starts the "
      "service here when this node is to be the primary, and ends it when it is not. The replicas "
      "decide between nodes; agents do not speak to each other."};
  AgentOptions options;
  options.http.address_option = "--http";
  options.http.open_option = "--http-open";
  options.http.shows = "this node's pages";
  options.http.first_path = "/cluster";
  options.http.lowest_priority = false;  // a proxy waits for /primary
  options.http.patience = kPatience;
  std::string ready = "serves", log_level = "info", group;
  AddGroupOptions(app, &options, &group);
  AddTimes(app, &options);
  AddShown(app, &options, &ready);
  AddHooks(app, &options);
  hyperloop::AddLogLevel(app, &log_level);
  hyperloop::AddConfig(app);
  app.name("hyperloop-agent");
  app.positionals_at_end();
  app.set_version_flag("--version", "hyperloop-agent " HYPERLOOP_VERSION);
  hyperloop::AddHelpJson(app);
  if (const auto status =
          hyperloop::ParseCommandLine(app, argc, argv, [&] { Check(app, options); }))
    return *status;
  options.ready = ready == "notify" ? Ready::kNotify : Ready::kServes;

  hyperloop::BlockEndSignals();
  const auto log = hyperloop::StderrLog("hyperloop-agent", hyperloop::LogLevelOf(log_level));
  const hyperloop::Status taken = group.empty() ? hyperloop::Status() : TakeFiles(group, &options);
  const hyperloop::Status status = taken.ok() ? hyperloop::agent::RunAgent(options, log) : taken;
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-agent: %s\n", status.message().c_str());
  if (!taken.ok()) return 1;  // another try helps once the files are mended
  // What the files say may be mended, and another try helps then.
  const bool by_files = !group.empty() && hyperloop::agent::CheckTimes(options.timing).ok();
  return status.code() == hyperloop::Code::kInvalidArgument && !by_files ? 2 : 1;
}
