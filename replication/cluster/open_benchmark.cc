// Measures how long a primary takes to take a group that was closed in order, phase by phase, with
// real replica processes on this machine.
//
//   open_benchmark REGION_MIB REPLICAS CONTENT [ROUNDS [FOLDER]]
//
// CONTENT is what the group holds: "little" (64 KiB), "full" (four fifths of the data area), or
// "emptied" (nothing, after all of it was in use). Each of the ROUNDS (5) takes the group as a new
// Store would, with the default options, and closes it. The line of the median round is printed as
// the store logs it. The cluster is made in FOLDER (/dev/shm), and is removed at the end. It needs
// (REPLICAS + 1) x REGION_MIB there.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/store.h"
#include "support/append_durably.h"
#include "support/log_lines.h"
#include "support/must.h"

namespace hyperloop {
namespace {

constexpr uint64_t kPiece = 1 << 20;

class Bench {
 public:
  Bench(const ClusterInfo& cluster, std::string folder) : folder_(std::move(folder)) {
    Must(ParseStoreUri(cluster.uri, &options_));
  }

  // Returns the milliseconds and the line of the log.
  std::pair<double, std::string> TakeAndClose() {
    const auto store = Taken();
    Must(store->Close());
    for (const std::string& line : log_->lines()) {
      const size_t at = line.find(kTook);
      if (at != std::string::npos)
        return {std::atof(line.c_str() + at + kTook.size()), line.substr(at + kTook.size())};
    }
    Must(NotFound("the store does not say how long it took"));
    return {};
  }

  void Fill(const std::string& content) {
    const auto store = Taken();
    const bool little = content == "little";
    const std::string piece(little ? 64 << 10 : kPiece, 'x');
    const uint64_t most = little ? piece.size() : store->statistics().data_bytes / 5 * 4;
    const FileId file = Must(store->Create("000001.log"));
    for (uint64_t done = 0; done + piece.size() <= most; done += piece.size())
      Must(AppendDurably(*store, file, piece));
    if (content == "emptied") Must(store->Remove("000001.log"));
    Must(store->Close());
  }

 private:
  static constexpr std::string_view kTook = "the taking took ";

  std::unique_ptr<Store> Taken() {
    log_ = std::make_shared<LogLines>();
    auto store = Must(Store::Open(options_, log_));
    TakeRequest request;
    request.directory = folder_;
    request.directory_empty = pairing_.group.empty();
    request.pairing = pairing_;
    TakeResult taken;
    Must(store->Take(request, &taken));
    pairing_ = taken.pairing;
    return store;
  }

  const std::string folder_;
  StoreOptions options_;
  Pairing pairing_;
  std::shared_ptr<LogLines> log_;
};

int Run(int argc, char** argv) {
  const std::string content = argc > 3 ? argv[3] : "";
  if (content != "little" && content != "full" && content != "emptied") {
    std::fprintf(stderr,
                 "usage: open_benchmark REGION_MIB REPLICAS little|full|emptied [ROUNDS "
                 "[FOLDER]]\n");
    return 2;
  }
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  std::string folder = std::string(argc > 5 ? argv[5] : "/dev/shm") + "/open_benchmark.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) Must(FromErrno(errno, folder));
  ClusterOptions options;
  options.directory = folder + "/cluster";
  options.region_size = std::strtoull(argv[1], nullptr, 10) << 20;
  options.replicas = static_cast<uint32_t>(std::atoi(argv[2]));
  options.programs = Must(ProgramFolder()) + "/../bin";
  options.die_with_caller = true;
  Bench bench(Must(StartCluster(options)), folder);
  bench.Fill(content);
  std::vector<std::pair<double, std::string>> times;
  for (int i = 0; i < rounds; ++i) times.push_back(bench.TakeAndClose());
  std::sort(times.begin(), times.end());
  std::printf("%s MiB, %s replicas, %s: %s\n", argv[1], argv[2], content.c_str(),
              times[times.size() / 2].second.c_str());
  Must(StopCluster(options.directory).status());
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace hyperloop

int main(int argc, char** argv) { return hyperloop::Run(argc, argv); }
