#include "primary/pairing.h"

#include "hyperloop/core/text.h"

namespace hyperloop {

Status CheckPairing(const TakeRequest& request, const StoreOptions& options, const Uuid& group,
                    const Binding& binding, size_t files) {
  const std::string own_group = FormatUuid(group);
  const std::string own_database = FormatUuid(binding.database);
  if (!request.pairing.group.empty()) {
    if (request.pairing.group != own_group) {
      return InvalidArgument(Text(request.directory, " belongs to group ", request.pairing.group,
                                  ", these replicas are group ", own_group,
                                  "; name that group's replicas, or use another directory"));
    }
    if (request.pairing.database == own_database || options.rebind) return {};
    return InvalidArgument(Text(
        "group ", own_group, " now belongs to database ", own_database, " (", binding.directory,
        "), ", request.directory, " holds database ", request.pairing.database,
        "; open that directory, or give rebind=true to bind the group to this one again: it "
        "is then set to what the group holds"));
  }
  if (!request.directory_empty && files == 0) {
    if (options.adopt) return {};
    return InvalidArgument(Text(request.directory, " holds a database that was never in group ",
                                own_group,
                                "; take it into the group (hyperloopctl adopt, or adopt=true), "
                                "open it without the group, or name an empty directory"));
  }
  if (!request.directory_empty) {
    return InvalidArgument(Text(request.directory, " holds a database that was never in group ",
                                own_group, ", which holds the ", files, " files of ",
                                binding.directory,
                                "; open it without the group, name an empty directory, or empty "
                                "the group (hyperloopctl reset) and take it in (hyperloopctl "
                                "adopt)"));
  }
  if (files == 0) return {};
  if (!options.restore) {
    return InvalidArgument(
        Text(request.directory, " is empty but group ", own_group, " holds the ", files,
             " files of ", binding.directory,
             "; give restore=true and rebind=true to fill this directory from the group, or use "
             "fresh replicas"));
  }
  if (options.rebind || binding.database == kNilUuid) return {};
  return InvalidArgument(
      Text("group ", own_group, " is bound to ", binding.directory, " (database ", own_database,
           "), which would be refused once ", request.directory,
           " has taken its place; open it there, or, if that directory is gone, add rebind=true"));
}

}  // namespace hyperloop
