// AppendDurably: Append, then Await, as one call.
#pragma once

#include <string_view>

#include "hyperloop/replication/store.h"

namespace hyperloop {

// `files`: a Store or a LogLane.
template <class Files>
Status AppendDurably(Files& files, FileId file, std::string_view data) {
  HL_ASSIGN_OR_RETURN(const AppendTicket ticket, files.Append(file, data));
  return files.Await(ticket);
}

}  // namespace hyperloop
