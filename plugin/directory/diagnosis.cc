#include "diagnosis.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "file_system/file_system.h"
#include "hyperloop/core/text.h"
#include "local/local_file_system.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "opening/pairing_file.h"

namespace hyperloop::plugin {
namespace {

using Kind = Finding::Kind;

// RocksDB begins each line of its info log with the local time in this form.
constexpr char kTimeFormat[] = "%Y/%m/%d-%H:%M:%S";
constexpr size_t kTimeLength = 26;  // with a dot and microseconds

// When the directory was bound: since then it must be opened with the plugin.
std::string TimeOfPairing(const std::string& directory) {
  struct stat found {};
  std::tm local{};
  std::array<char, 64> text{};
  const std::string path = directory + "/" + std::string(kPairingFileName);
  if (::stat(path.c_str(), &found) != 0 || ::localtime_r(&found.st_mtime, &local) == nullptr)
    return "";
  std::strftime(text.data(), text.size(), kTimeFormat, &local);
  std::array<char, 32> micros{};
  std::snprintf(micros.data(), micros.size(), ".%06ld", found.st_mtim.tv_nsec / 1000);
  return std::string(text.data()) + micros.data();
}

// What an info log says about the opening with which it begins.
struct Opening {
  std::string time, file_system;  // empty: it does not say
  bool took_group = false;        // the plugin says so, whatever file system is above it
};

Opening ReadOpening(rocksdb::FileSystem& fs, const std::string& path) {
  std::string text(64 << 10, 0);
  const Result<uint64_t> length = ReadLocal(fs, path, 0, text);
  if (!length.ok()) return {};
  text.resize(*length);
  constexpr std::string_view kOption = "Options.fs: ";
  const size_t option = text.find(kOption);
  if (option == std::string::npos) return {};
  const size_t line = text.rfind('\n', option) + 1;  // npos + 1: the first line
  const size_t name = option + kOption.size();
  return {text.substr(line, kTimeLength), text.substr(name, text.find('\n', name) - name),
          text.find("hyperloop: took group ") != std::string::npos};
}

bool IsOurs(const std::string& file_system) {
  return file_system == HyperloopFileSystem::kClassName() || file_system == kBindingFileSystemName;
}

class Diagnosis {
 public:
  explicit Diagnosis(const std::string& directory)
      : fs_(LocalFileSystem()), directory_(directory) {}

  std::vector<Finding> Make(const StoreOptions* group) {
    LookAtPairing();
    if (bound_) LookForOtherPrograms();
    if (group != nullptr) {
      CompareWithGroup(*group);
    } else {
      Add(Kind::kNote,
          "the group was not asked: give --uri URI, or bind the directory "
          "(HYPERLOOP_BIND, /etc/hyperloop/bindings)");
    }
    return std::move(findings_);
  }

 private:
  void Add(Kind kind, std::string text) { findings_.push_back({kind, std::move(text)}); }

  void LookAtPairing() {
    PairingFile file;
    if (const Status read = ReadPairing(*fs_, directory_, &file); !read.ok())
      return Add(Kind::kBad, read.message());
    if (file.pairing.group.empty()) {
      const bool database = SizeOf(*fs_, directory_ + "/CURRENT").ok();
      return Add(Kind::kNote, directory_ + " is of no group: it has no " +
                                  std::string(kPairingFileName) +
                                  (database ? ". It holds a plain database, which hyperloopctl "
                                              "adopt takes into a group"
                                            : ", and it holds no database"));
    }
    bound_ = true;
    Add(Kind::kGood, directory_ + " belongs to group " + file.pairing.group + ", as database " +
                         file.pairing.database);
    if (file.IsCopy()) Add(Kind::kNote, directory_ + " is a copy of " + file.recorded.path);
    if (!file.finished)
      Add(Kind::kNote, "the opening that bound it was cut short; the next one goes on");
  }

  // RocksDB writes LOG at each opening that may change the database.
  void LookForOtherPrograms() {
    std::vector<std::string> names;
    if (!fs_->GetChildren(directory_, rocksdb::IOOptions(), &names, nullptr).ok()) return;
    std::sort(names.begin(), names.end());
    const std::string bound = TimeOfPairing(directory_);
    for (const std::string& name : names) {
      if (name != "LOG" && !name.starts_with("LOG.old.")) continue;
      const Opening opening = ReadOpening(*fs_, directory_ + "/" + name);
      if (opening.took_group || IsOurs(opening.file_system)) continue;
      if (opening.file_system.empty() || opening.time <= bound) continue;
      Add(Kind::kNote,
          Text("at ", opening.time, " a program opened the database without the plugin, says ",
               name, " (its file system was ", opening.file_system,
               "): such an opening changes the database, also if nothing is put"));
    }
  }

  void CompareWithGroup(StoreOptions group) {
    group.takeover = false;
    HyperloopFileSystem fs(fs_, group, Store::Open);
    std::vector<HyperloopFileSystem::Remark> remarks;
    const Status fits = fs.Examine(directory_, &remarks);
    for (const auto& [level, text] : remarks)
      Add(level == LogLevel::kError ? Kind::kBad : Kind::kNote, "the opening: " + text);
    if (fits.ok()) return Add(Kind::kGood, "the group takes the directory as it is");
    const bool out_of_reach = fits.code() == Code::kUnavailable || fits.code() == Code::kTimedOut;
    if (fits.code() == Code::kBusy)
      return Add(Kind::kNote, fits.message() + ". The two are compared when it has closed");
    Add(Kind::kBad, (out_of_reach ? "the group is out of reach: " : "") + fits.message());
  }

  const std::shared_ptr<rocksdb::FileSystem> fs_;
  const std::string directory_;
  std::vector<Finding> findings_;
  bool bound_ = false;
};

}  // namespace

std::vector<Finding> Diagnose(const std::string& directory, const StoreOptions* group) {
  return Diagnosis(directory).Make(group);
}

}  // namespace hyperloop::plugin
