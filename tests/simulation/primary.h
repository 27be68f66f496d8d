// Primary: a process that has the group, appends pieces to it, and now and then writes a table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/replication/store.h"
#include "simulation/history.h"
#include "simulation/tables.h"
#include "simulation/world.h"

namespace hyperloop::simulation {

inline constexpr char kLog[] = "f", kCurrent[] = "CURRENT", kScratch[] = "1.dbtmp";

struct WriterOptions {
  uint64_t most_padding = 0;  // bytes that make pieces longer
  uint64_t at_once = 1;       // appends that wait together
  // Tables are written to the region, as logs are, and leave it when it fills.
  bool leave = false;
};

// A thread of its own appends until an append finds the group fenced or the primary ends.
class Primary {
 public:
  // Made by a thread of the primary's process. `live`: the tables that the log names.
  Primary(const World& world, size_t host, std::unique_ptr<Store> store, FileId file,
          History& history, Tables& tables, std::set<uint64_t> live, WriterOptions options);
  ~Primary();

  void Stop();
  // After Stop: appends more pieces than a group has slots. A group that is well acknowledges them
  // at once; meanwhile it may take in some replicas that were left out.
  Status AppendMany(History& history);
  Status Close();
  // The tables that the group lists, or why it cannot be asked.
  Result<std::set<WholeFile>> ListedTables() const;
  // The next appends follow each other without a pause.
  void Hurry();
  // Lists a table that takes a while to send, and returns without waiting for the replicas.
  void BeginLongTable();
  // While it rests, it appends nothing.
  void Rest(bool rests) { rests_ = rests; }
  size_t host() const { return host_; }
  uint64_t process() const { return process_; }
  bool fenced() const { return fenced_; }
  // Another primary has the group: nothing that is appended from now on may be acknowledged.
  void Overtaken() { overtaken_ = true; }
  bool broke_fence() const { return broke_fence_; }

 private:
  void Write(History& history, const WriterOptions& options);
  Status TakeTurn(History& history, const WriterOptions& options);
  void Pause();
  Status AppendSome(History& history, const WriterOptions& options);
  // Appends a piece with each note, and waits for them together.
  Status Append(History& history, const std::vector<std::string>& notes);
  // Replaces the small file as a whole.
  Status ReplaceCurrent(History& history);
  // Writes a table, and names it once the replicas have it. May give up another one then.
  Status WriteTable(History& history, const WriterOptions& options);
  Status ListTable(uint64_t table);
  Status WriteToRegion(uint64_t table);

  const World& world_;
  const size_t host_;
  const uint64_t process_;
  std::unique_ptr<Store> store_;
  const FileId file_;
  Tables& tables_;
  std::set<uint64_t> live_;  // only the writer uses it
  std::atomic<bool> stop_{false};
  std::atomic<int> busy_{0};
  std::atomic<bool> rests_{false};
  std::atomic<bool> fenced_{false};
  std::atomic<bool> overtaken_{false};
  std::atomic<bool> broke_fence_{false};
  std::thread writer_;  // last: it uses the members above
};

}  // namespace hyperloop::simulation
