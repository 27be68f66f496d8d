// hyperloop-replica: exit code 0 after SIGTERM, 1 for anything that went wrong, 2 for wrong usage.
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "replica/replica_program.h"

int main(int argc, char** argv) {
  CLI::App app{
      "One replica of a HyperLoop group: holds a copy of the region in a PMDK pool, arms its RNIC, "
      "and sleeps while "
      "the RNIC replicates."};
  hyperloop::ReplicaOptions options;
  app.add_option("--pool", options.pool, "path of the PMDK pool; made when absent")->required();
  app.add_option("--size", options.size, "bytes of the region (K, M, G); needed to make the pool")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--listen", options.listen,
                 "HOST:PORT of the control endpoint; port 0: a free one")
      ->capture_default_str();
  app.add_option("--device", options.device, "socket of hyperloop-rnicd")->required();
  app.add_option("--host", options.host, "name of the emulated host to attach to")->required();
  app.add_option("--media", options.media, "what the pool lies on: auto, ram, file, pmem")
      ->check(CLI::IsMember({"auto", "ram", "file", "pmem"}))
      ->capture_default_str();
  app.add_option(
         "--datapath-cpu", options.datapath_cpu,
         "processor for the forwarding thread of datapaths cpu-polling and cpu-event, which "
         "the primary's option chooses; default: any")
      ->check(CLI::Range(0, CPU_SETSIZE - 1));
  app.set_version_flag("--version", HYPERLOOP_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  // Before any thread starts, so that signals are taken by RunReplica alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto log = hyperloop::StderrLog("hyperloop-replica");
  const hyperloop::Status status = hyperloop::RunReplica(options, log.get());
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-replica: %s\n", status.message().c_str());
  return 1;
}
