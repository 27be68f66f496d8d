// hyperloopctl doctor. With --db it becomes hyperloop-directory.
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "ctl/command.h"
#include "ctl/daemons.h"
#include "ctl/directory_program.h"
#include "ctl/elf.h"
#include "ctl/nodes.h"
#include "ctl/preload.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::ctl {
namespace {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string text;
};

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

int Run() {
  bool bad = false;
  for (const Finding& finding :
       {Kernel(), Processors(), SharedMemory(), LockedMemory(), Priority(), Daemons(), Programs(),
        Plugin(), StockProgram("db_bench"), StockProgram("ldb")}) {
    static constexpr const char* kMarks[] = {"ok  ", "note", "BAD "};
    std::printf("%s  %s\n", kMarks[static_cast<int>(finding.verdict)], finding.text.c_str());
    bad = bad || finding.verdict == Verdict::kBad;
  }
  return bad ? kExitFailure : kExitOk;
}

}  // namespace

void AddDoctor(CLI::App& app, Action* chosen) {
  struct Options {
    std::string db;
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
  CLI::Option_group* where =
      AddWhere(doctor, &options->where,
               "the group; default: what the directory is bound to (HYPERLOOP_BIND, "
               "/etc/hyperloop/bindings)");
  where->require_option(0, 1);
  for (const char* option : {"--dir", "--uri"}) where->get_option(option)->needs(db);
  doctor->callback([=] {
    *chosen = [=] {
      if (options->db.empty()) return Run();
      return Fail(BecomeDirectoryProgram(DirectoryCall::Doctor{}, options->db, options->where));
    };
  });
}

}  // namespace hyperloop::ctl
