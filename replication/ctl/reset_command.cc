// hyperloopctl reset
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::ctl {
namespace {

// Takes the group as a primary without a database, removes every file, and releases the group.
Result<size_t> Reset(const Where& where) {
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(where));
  StoreOptions options;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options).WithContext("--uri"));
  options.restore = options.rebind = true;  // the group may hold files, which are to be removed
  options.takeover = false;
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(options, nullptr));
  TakeRequest request;
  request.directory = "hyperloopctl reset";
  TakeResult taken;
  HL_RETURN_IF_ERROR(store->Take(request, &taken));
  for (const FileInfo& file : taken.files) {
    HL_RETURN_IF_ERROR(store->Remove(file.name).WithContext("removing " + file.name));
  }
  HL_RETURN_IF_ERROR(store->Close());
  return taken.files.size();
}

}  // namespace

void AddReset(CLI::App& app, Action* chosen) {
  auto where = std::make_shared<Where>();
  auto yes = std::make_shared<bool>(false);
  CLI::App* reset = app.add_subcommand("reset",
                                       "remove every file of a group, so that another database may "
                                       "use it; refused while a primary lives");
  AddWhere(reset, where.get());
  reset->add_flag("--yes", *yes, "confirm that the group's copy of the database is to be removed");
  reset->callback([=] {
    *chosen = [=] {
      if (!*yes) {
        return Fail(InvalidArgument(
            "reset removes the group's copy of its database; say --yes if that is meant"));
      }
      const Result<size_t> removed = Reset(*where);
      if (!removed.ok()) return Fail(removed.status());
      std::printf("%zu files removed; the group is empty\n", *removed);
      return static_cast<int>(kExitOk);
    };
  });
}

}  // namespace hyperloop::ctl
