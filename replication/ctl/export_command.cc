// hyperloopctl export
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "files/export.h"

namespace hyperloop::ctl {
namespace {

struct ExportOptions {
  Where where;
  uint32_t replica = 0;
  std::string to;
  bool live = false;
};

// What the other members know, so that a damaged log is told from a short one.
struct Known {
  uint64_t acked_seq = 0;
  uint64_t installed_epoch = 0;  // the greatest of any member
};

Known AskOthers(Nodes& nodes, const std::string& group, uint64_t installed_epoch) {
  Known known;
  for (const NodePlace& place : nodes.replicas()) {
    const Result<std::unique_ptr<NodeView>> view = nodes.View(place);
    if (!view.ok()) continue;  // a member out of reach knows nothing
    const Result<NodeStatus> status = (*view)->ReadStatus();
    if (!status.ok() || status->group != group) continue;
    known.installed_epoch = std::max(known.installed_epoch, status->installed_epoch);
    if (status->installed_epoch == installed_epoch) {
      known.acked_seq = std::max(known.acked_seq, status->acked_seq);
    }
  }
  return known;
}

Result<ExportReport> Export(const ExportOptions& options) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(options.where));
  HL_ASSIGN_OR_RETURN(const NodePlace* place, nodes.Replica(options.replica));
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, nodes.View(*place));
  if (!options.live) {
    HL_ASSIGN_OR_RETURN(const std::string primary, nodes.LivingPrimary());
    if (!primary.empty()) {
      return Busy("the group is in use by " + primary +
                  "; end it first, or add --live for a consistent prefix of what it wrote");
    }
  }
  HL_ASSIGN_OR_RETURN(const NodeStatus status, view->ReadStatus());
  if (!status.formatted) return NotFound(place->name + " holds no database yet");
  const Known known = AskOthers(nodes, status.group, status.installed_epoch);
  if (known.installed_epoch > status.installed_epoch) {
    std::fprintf(stderr,
                 "hyperloopctl: warning: %s has the log of epoch %llu, another member that of "
                 "epoch %llu; it may lack "
                 "acknowledged writes\n",
                 place->name.c_str(), static_cast<unsigned long long>(status.installed_epoch),
                 static_cast<unsigned long long>(known.installed_epoch));
  }
  HL_ASSIGN_OR_RETURN(const RegionImage image, view->Snapshot());
  return ExportFiles(image.bytes(), options.to, known.acked_seq);
}

bool EndsWith(const std::string& name, std::string_view end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}
// Tables and blobs are part of the database; OPTIONS and IDENTITY are written anew at open.
bool HoldsData(const std::string& name) {
  return EndsWith(name, ".sst") || EndsWith(name, ".blob");
}

int Run(const ExportOptions& options) {
  const Result<ExportReport> report = Export(options);
  if (!report.ok()) return Fail(report.status());
  std::printf("exported %llu files, %llu B, up to sequence %llu, to %s\n",
              static_cast<unsigned long long>(report->files),
              static_cast<unsigned long long>(report->bytes),
              static_cast<unsigned long long>(report->last_seq), options.to.c_str());
  size_t needed = 0;
  for (const std::string& name : report->missing) {
    const bool need = HoldsData(name);
    needed += need ? 1 : 0;
    std::fprintf(stderr, "hyperloopctl: %s: %s\n",
                 need ? "missing" : "left out (RocksDB makes its own)", name.c_str());
  }
  if (needed == 0) return kExitOk;
  std::fprintf(stderr,
               "hyperloopctl: the bytes of %zu files are with the primary only; RocksDB opens the "
               "export once they are copied there from its directory\n",
               needed);
  return kExitIncomplete;
}

}  // namespace

void AddExport(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export",
                                         "write the files that a replica holds into a directory "
                                         "that stock RocksDB opens; works on running, "
                                         "stopped and dead replicas, whose pools it never writes");
  AddWhere(command, &options->where);
  command->add_option("--replica", options->replica, "which one, from 0")->required();
  command->add_option("--to", options->to, "a directory that is empty or does not exist")
      ->required();
  command->add_flag("--live", options->live, "although a primary is at work: a consistent prefix");
  command->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
