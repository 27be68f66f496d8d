// hyperloopctl doctor. With --db it becomes hyperloop-directory.
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ctl/command.h"
#include "ctl/daemons.h"
#include "ctl/directory_program.h"
#include "ctl/elf.h"
#include "ctl/findings.h"
#include "ctl/nodes.h"
#include "ctl/preload.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "options/node_group.h"

namespace hyperloop::ctl {
namespace {

Finding Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (count >= 2) return {Verdict::kGood, std::to_string(count) + " processors"};
  return {Verdict::kNote,
          "1 processor: primary and RNIC daemon take turns, latency will be tens of microseconds"};
}

Finding Kernel() {
  utsname name{};
  ::uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  const std::string text = std::string("Linux ") + name.release;
  // pidfd_open and close_range.
  if (major > 5 || (major == 5 && minor >= 11)) return {Verdict::kGood, text};
  return {Verdict::kBad, text + ": 5.11 or later is needed"};
}

Finding SharedMemory() {
  struct statvfs space {};
  if (::statvfs("/dev/shm", &space) != 0) {
    return {Verdict::kNote, "no /dev/shm: pools must lie on a disk, with media=file"};
  }
  const uint64_t free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  const std::string text = "/dev/shm has " + std::to_string(free >> 20) + " MiB free";
  constexpr uint64_t kWanted =
      2ull << 30;  // a cluster of three with the default regions, and room for a database
  if (free >= kWanted) return {Verdict::kGood, text};
  return {Verdict::kNote,
          text +
              "; a default cluster takes 1 GiB: mount -o remount,size=4G /dev/shm, or smaller "
              "--region-size"};
}

Finding LockedMemory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string size =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
  return {Verdict::kGood, "locked memory limit " + size +
                              " (the software RNIC locks none; hardware providers need it)"};
}

Finding Priority() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NICE, &limit);
  if (::geteuid() == 0 || limit.rlim_cur >= 40) {
    return {Verdict::kGood, "the RNIC daemon may raise its priority"};
  }
  return {Verdict::kNote,
          "no permission to raise priorities: the RNIC daemon runs at normal priority, and latency "
          "tails are longer under load"};
}

Finding Programs() {
  const Result<std::string> folder = ProgramFolder();
  if (!folder.ok()) return {Verdict::kBad, folder.status().message()};
  std::string missing;
  for (const char* name : {"hyperloop-rnicd", "hyperloop-replica"}) {
    if (::access((*folder + "/" + name).c_str(), X_OK) != 0) missing += std::string(" ") + name;
  }
  if (missing.empty())
    return {Verdict::kGood, "hyperloop-rnicd and hyperloop-replica are in " + *folder};
  return {Verdict::kBad, "missing in " + *folder + ":" + missing};
}

Finding Plugin() {
  const Result<std::string> plugin = FindPlugin();
  if (!plugin.ok()) return {Verdict::kBad, plugin.status().message()};
  const Result<ElfInfo> elf = ReadElf(*plugin);
  if (!elf.ok()) return {Verdict::kBad, elf.status().message()};
  for (const std::string& needed : elf->needed) {
    if (needed.starts_with("librocksdb")) {
      return {Verdict::kGood, *plugin + " is for " + needed};
    }
  }
  return {Verdict::kGood, *plugin + " is for any RocksDB that the program brings"};
}

Finding Daemons() {
  std::string shared;
  for (const auto& [cpu, pids] : DaemonsByProcessor())
    if (pids.size() > 1) shared += (shared.empty() ? "" : "; ") + SharedProcessor(cpu, pids);
  if (shared.empty()) return {Verdict::kGood, "no two RNIC daemons keep to the same processor"};
  return {Verdict::kNote, shared};
}

Finding StockProgram(const std::string& name) {
  const Result<std::string> program = FindProgram(name);
  if (!program.ok()) return {Verdict::kNote, program.status().message()};
  const Result<std::string> plugin = FindPlugin();
  if (!plugin.ok()) return {Verdict::kNote, *program + " is there"};
  const Status status = CheckPreload(*program, *plugin);
  if (status.ok()) return {Verdict::kGood, *program + " takes the plugin"};
  return {Verdict::kNote, status.message()};
}

// What the file of hosts says of this one.
Finding OwnHost(const identity::KeyRing& keys, const std::vector<identity::HostLine>& hosts) {
  const std::string file = keys.hosts_file();
  const auto own = std::ranges::find(hosts, keys.name(), &identity::HostLine::name);
  const std::string print =
      Text("put there, on all hosts alike, what hyperloopctl node init --name ", keys.name(),
           " --address ADDRESS prints here");
  if (own == hosts.end())
    return {Verdict::kBad, Text(file, " has no line of this host, ", keys.name(), ": ", print)};
  if (own->key != keys.public_key())
    return {Verdict::kBad,
            Text(file, " has another key for this host, ", keys.name(), ": ", print)};
  return {Verdict::kGood, Text(file, " names ", hosts.size(), " hosts; this one is ", keys.name(),
                               " at ", own->address)};
}

// What a group's file says, next to the hosts and to the groups before it.
Finding OneGroup(const std::string& path, const std::vector<identity::HostLine>& hosts,
                 std::vector<identity::GroupFile>* before) {
  Result<identity::GroupFile> group = identity::ReadGroup(path);
  if (!group.ok()) return {Verdict::kBad, group.status().message()};
  for (const std::string& host : group->hosts) {
    if (std::ranges::count(hosts, host, &identity::HostLine::name) == 0)
      return {Verdict::kBad,
              Text(path, " names ", host, ", which has no line among the hosts: add ",
                   "it there, or take it out here")};
    for (const identity::GroupFile& other : *before)
      if (std::ranges::count(other.hosts, host) != 0)
        return {Verdict::kBad,
                Text(path, " names ", host, ", which is a host of group ", other.name,
                     ", too: take it out of one, because by these files the RNIC of a host is one "
                     "replica's")};
  }
  Finding good{Verdict::kGood, Text("group ", group->name, " has ", group->hosts.size(),
                                    " hosts, replicas at port ", group->port)};
  before->push_back(*std::move(group));
  return good;
}

}  // namespace

std::vector<Finding> NodeFiles(const std::string& folder) {
  const std::string own = identity::KeysFolderIn(folder);
  struct stat there {};
  const bool is_anothers =
      stat(own.c_str(), &there) == 0 && there.st_uid != 0 && there.st_uid != geteuid();
  if (is_anothers || (access(own.c_str(), X_OK) != 0 && errno == EACCES))
    return {{Verdict::kNote,
             Text("to judge the hosts of ", folder, ", call it as who may read ", own)}};
  const auto keys = identity::KeyRing::Load(own);
  if (keys.status().code() == Code::kNotFound)
    return {{Verdict::kGood, "this machine has no host's keys in " + folder}};
  if (!keys.ok()) return {{Verdict::kBad, keys.status().message()}};
  const std::string file = (*keys)->hosts_file();
  if (file.empty()) return {{Verdict::kGood, (*keys)->dir() + " points to no file of hosts"}};
  const auto hosts = identity::ReadHosts(file);
  if (hosts.status().code() == Code::kNotFound)
    return {
        {Verdict::kBad, Text("hosts file ", file, " is not there: make it, on all hosts alike, ",
                             "of the lines that hyperloopctl node init prints on each")}};
  if (!hosts.ok()) return {{Verdict::kBad, hosts.status().message()}};
  std::vector<Finding> findings{OwnHost(**keys, *hosts)};
  const auto paths = identity::GroupFilesBeside(file);
  if (!paths.ok()) findings.push_back({Verdict::kBad, paths.status().message()});
  std::vector<identity::GroupFile> groups;
  for (const std::string& path : paths.ok() ? *paths : std::vector<std::string>()) {
    findings.push_back(OneGroup(path, *hosts, &groups));
    if (findings.back().verdict == Verdict::kBad || findings.front().verdict == Verdict::kBad)
      continue;
    // What is left to judge are values.
    const auto read = ReadNodeGroup(groups.back().name, folder);
    Status judged = read.status();
    if (read.ok() && !read->service.empty())
      judged = CheckForAgents(read->store).WithContext(read->file);
    if (!judged.ok()) findings.back() = {Verdict::kBad, judged.message()};
  }
  return findings;
}

bool ShowFindings(const std::vector<Finding>& findings) {
  bool good = true;
  for (const Finding& finding : findings) {
    static constexpr const char* kMarks[] = {"ok  ", "note", "BAD "};
    std::printf("%s  %s\n", kMarks[static_cast<int>(finding.verdict)], finding.text.c_str());
    good = good && finding.verdict != Verdict::kBad;
  }
  return good;
}

namespace {

int RunDoctor(const std::string& folder) {
  std::vector<Finding> findings{
      Kernel(),  Processors(), SharedMemory(), LockedMemory(),           Priority(),
      Daemons(), Programs(),   Plugin(),       StockProgram("db_bench"), StockProgram("ldb")};
  std::ranges::move(NodeFiles(folder), std::back_inserter(findings));
  return ShowFindings(findings) ? kExitOk : kExitFailure;
}

}  // namespace

void AddDoctor(CLI::App& app, Action* chosen) {
  struct Options {
    std::string db;
    std::string node = identity::NodeFolder();
    Where where;
  };
  auto options = std::make_shared<Options>();
  CLI::App* doctor = app.add_subcommand(
      "doctor",
      "show what this machine offers and lacks, or what has happened to a database directory; exit "
      "status 1 if something needed is missing, or the directory does not fit its group");
  CLI::Option* db = doctor->add_option(
      "--db", options->db,
      "compare this database directory with its group, and say what to do; only reads, and takes "
      "the group from nobody");
  doctor
      ->add_option("--node", options->node,
                   "the folder of this host's keys, its file of hosts and its groups. Default: "
                   "HYPERLOOP_NODE, else /etc/hyperloop")
      ->type_name("DIR")
      ->excludes(db);
  CLI::Option_group* where =
      AddWhere(doctor, &options->where,
               "the group; default: what the directory is bound to (HYPERLOOP_BIND, "
               "/etc/hyperloop/bindings)");
  where->require_option(0, 1);
  for (const char* option : {"--dir", "--uri"}) where->get_option(option)->needs(db);
  doctor->callback([=] {
    *chosen = [=] {
      if (options->db.empty()) return RunDoctor(options->node);
      return Fail(BecomeDirectoryProgram(DirectoryCall::Doctor{}, options->db, options->where));
    };
  });
}

}  // namespace hyperloop::ctl
