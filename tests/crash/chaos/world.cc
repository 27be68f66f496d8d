#include "crash/chaos/world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "crash/chaos/refusals.h"
#include "hyperloop/core/softrnic.h"

namespace hyperloop::chaos {
namespace {

namespace stdfs = std::filesystem;

constexpr uint64_t kDisk = 96ull << 20;

std::string Tail(const std::string& text, size_t bytes) {
  return text.size() <= bytes ? text : "…" + text.substr(text.size() - bytes);
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, int seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void LetRun(World& world, uint64_t at_most_us) {
  const uint64_t pause = world.Random(at_most_us);
  world.Note("after " + std::to_string(pause) + " us");
  usleep(static_cast<useconds_t>(pause));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::map<std::string, std::string> FilesIn(const std::string& directory) {
  std::map<std::string, std::string> files;
  if (!stdfs::exists(directory)) return files;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    const std::string name = stdfs::relative(entry.path(), directory);
    if (!entry.is_regular_file() || name.starts_with("LOG") || name == "LOCK") continue;
    files[name] = ReadFile(entry.path());
  }
  return files;
}

void SetFiles(const std::string& directory, const std::map<std::string, std::string>& files) {
  const auto present = FilesIn(directory);
  for (const auto& [name, bytes] : present) {
    if (!files.contains(name)) stdfs::remove(directory + "/" + name);
  }
  for (const auto& [name, bytes] : files) {
    const auto found = present.find(name);
    if (found == present.end() || found->second != bytes) WriteFile(directory + "/" + name, bytes);
  }
}

std::map<std::string, std::string> LogLaneOf(std::map<std::string, std::string> files) {
  std::erase_if(files, [](const auto& file) {
    const std::string& name = file.first;
    return name.find('/') != std::string::npos ||  // what was set aside
           (name != "CURRENT" && !name.starts_with("MANIFEST-") && !name.ends_with(".log"));
  });
  return files;
}

bool HasTables(const std::string& directory, int at_least) {
  int tables = 0;
  for (const auto& entry : stdfs::directory_iterator(directory)) {
    if (entry.path().extension() == ".sst") ++tables;
  }
  return tables >= at_least;
}

std::string ProgramOf(const std::string& name) {
  return name == "chaos_writer" ? test::ProgramPath("../tests/chaos_writer")
                                : test::ProgramPath(name);
}

// --- Program

Program::Program(const std::vector<std::string>& argv, std::string log) : log_(std::move(log)) {
  unlink(log_.c_str());  // removes the output of an earlier program
  child_ = test::ChildProcess::Fork([&]() -> int {
    const int fd = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    std::vector<char*> args;
    for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);
    execv(args[0], args.data());
    return 127;
  });
}

bool Program::running() const {
  if (!started()) return false;
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child_.pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

bool Program::stopped() const {
  const std::string tasks = "/proc/" + std::to_string(child_.pid()) + "/task";
  for (const auto& task : stdfs::directory_iterator(tasks)) {
    const std::string stat = ReadFile(task.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat[name_end + 2] != 'T') return false;
  }
  return true;
}

void Program::Signal(int signal) {
  child_.Signal(signal);
  if (signal == SIGSTOP && running()) Eventually([this] { return !running() || stopped(); });
}

Ended Program::Wait() {
  const int status = child_.Wait();
  return {status, output()};
}

std::string Program::output() const { return ReadFile(log_); }

bool Program::AwaitLine(const std::string& begin) const {
  bool found = false;
  const auto look = [&] {
    const std::string text = "\n" + output();
    return text.find("\n" + begin) != std::string::npos;
  };
  Eventually([&] { return (found = look()) || !running(); });
  return found || look();
}

// --- World

World::World(uint64_t seed, std::optional<Datapath> datapath) : random_(seed) {
  if (Random(3) == 0) datapath_ = Datapath::kFanout;
  if (Random(4) == 0) ack_ = AckMode::kSync;
  if (Random(8) == 0) wait_ = WaitMode::kPoll;
  if (datapath) {
    datapath_ = *datapath;
    ack_ = AckMode::kAppend;
    wait_ = WaitMode::kEvent;
  }
  Prepare();
}

void World::Prepare() {
  std::string pattern = "/dev/shm/hyperloop-chaos-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return Fail("no folder in /dev/shm");
  folder_ = pattern;
  stdfs::create_directories(Path("cluster"));
  directory_ = Path("disk/db");
  MountDisk();
  const int fd = ::open(Path("progress").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (ftruncate(fd, sizeof(Progress)) != 0) Fail("no room for the progress file");
  void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return Fail("cannot map the progress file");
  progress_ = static_cast<Progress*>(memory);
  if (ack_ == AckMode::kSync) model_.set_only_sync_acknowledges();
  // Not 127.0.0.1, from whose ports connections go out: one of these could have the port of a
  // replica that is down.
  endpoints_.resize(kReplicas, "127.0.0.2:0");
  replicas_.resize(kReplicas);
  StartRnicd();
  for (uint32_t i = 0; i < kReplicas && !failed(); ++i) {
    if (!StartReplica(i)) Fail("replica " + std::to_string(i) + ": " + replicas_[i].output());
  }
  Note("three replicas, datapath " + std::string(DatapathName(datapath_)) +
       (ack_ == AckMode::kSync ? ", ack=sync" : ", ack=append") +
       (wait_ == WaitMode::kPoll ? ", wait=poll" : ", wait=event"));
}

World::~World() {
  writer_.Kill();
  for (Program& replica : replicas_) replica.Kill();
  rnicd_.Kill();
  if (progress_ != nullptr) munmap(progress_, sizeof(Progress));
  if (small_disk_) umount(Path("disk").c_str());
  std::error_code ignored;
  if (failed() && std::getenv("HYPERLOOP_CHAOS_KEEP") != nullptr) {
    std::printf("kept: %s\n", folder_.c_str());
    return;
  }
  stdfs::remove_all(folder_, ignored);
}

void World::MountDisk() {
  stdfs::create_directories(Path("disk"));
  small_disk_ = mount("tmpfs", Path("disk").c_str(), "tmpfs", 0,
                      ("size=" + std::to_string(kDisk)).c_str()) == 0;
}

bool World::directory_on_small_disk() const {
  return small_disk_ && directory_.starts_with(Path("disk"));
}

void World::ResizeDisk(uint64_t bytes) {
  if (bytes == 0) bytes = kDisk;
  if (mount("tmpfs", Path("disk").c_str(), "tmpfs", MS_REMOUNT,
            ("size=" + std::to_string(bytes)).c_str()) != 0) {
    Fail("cannot set the size of the small disk to " + std::to_string(bytes));
  }
}

uint64_t World::UsedOfDisk() const {
  struct statvfs fs {};
  statvfs(Path("disk").c_str(), &fs);
  return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

void World::Note(const std::string& event) { notes_.push_back(event); }

void World::Fail(const std::string& what) {
  if (!failure_.empty()) return Note("then: " + what.substr(0, 300));
  constexpr size_t kLongest = 1600;
  failure_ = what;
  if (what.size() > kLongest)
    failure_ = what.substr(0, kLongest / 2) + " … " + what.substr(what.size() - kLongest / 2);
}

std::string World::story() const {
  std::string text;
  for (const std::string& note : notes_) text += "  " + note + "\n";
  if (writer_.started() || !writer_.output().empty())
    text += "  writer said: " + Tail(writer_.output(), 1500) + "\n";
  return text + LastLogLines();
}

// The last errors in the log of the service's RocksDB, and all lines of the plugin.
std::string World::LastLogLines() const {
  std::string text;
  std::istringstream log(Log());
  for (std::string line; std::getline(log, line);) {
    for (const char* word : {"hyperloop: ", "rror", "ecover", "esume", "New memtable"}) {
      if (line.find("Options") != std::string::npos || line.find(word) == std::string::npos)
        continue;
      text += "  LOG: " + line.substr(0, 300) + "\n";
      break;
    }
  }
  return Tail(text, 12'000);
}

std::string World::Log() const {
  std::string text;
  if (!stdfs::exists(directory_ + "-log")) return text;
  for (const auto& entry : stdfs::directory_iterator(directory_ + "-log"))
    if (entry.path().string().ends_with("LOG")) text += ReadFile(entry.path());
  return text;
}

size_t World::TimesLogged(std::string_view words) const {
  const std::string log = Log();
  size_t times = 0;
  for (size_t at = log.find(words); at != log.npos; at = log.find(words, at + 1)) ++times;
  return times;
}

StoreOptions World::Options() const {
  StoreOptions options;
  options.replicas = endpoints_;
  options.device = Path("rnicd.sock");
  options.pool = primary_pool();
  options.datapath = datapath_;
  options.ack = ack_;
  options.wait = wait_;
  options.on_replica_failure = OnReplicaFailure::kBlock;
  options.journal_size = 512 << 10;
  options.table_capacity = 256;
  options.ack_timeout = std::chrono::seconds(30);
  options.connect_timeout = std::chrono::seconds(20);
  return options;
}

StoreOptions World::Impatient() const {
  StoreOptions options = Options();
  options.connect_timeout = options.ack_timeout = std::chrono::seconds(3);
  options.bulk_timeout = std::chrono::seconds(3);  // closing waits for a flush that is under way
  return options;
}

StoreOptions World::Second() {
  StoreOptions options = Options();
  options.pool = NewPath("second.pool");
  options.host = "second";
  return options;
}

void World::StartRnicd() {
  unlink(Path("rnicd.sock").c_str());
  rnicd_ = Program({ProgramOf("hyperloop-rnicd"), "--socket", Path("rnicd.sock"), "--spin-us", "0",
                    "--priority", "none"},
                   Path("rnicd.log"));
  if (!rnicd_.AwaitLine("ready")) Fail("the RNIC daemon does not start: " + rnicd_.output());
}

bool World::StartReplica(uint32_t i) {
  replicas_[i] = Program({ProgramOf("hyperloop-replica"), "--device", Path("rnicd.sock"), "--host",
                          "replica" + std::to_string(i), "--listen", endpoints_[i], "--pool",
                          pool(i), "--size", std::to_string(kRegionSize), "--insecure"},
                         Path("replica" + std::to_string(i) + ".log"));
  if (!replicas_[i].AwaitLine("ready ")) return false;
  const std::string text = replicas_[i].output();
  const size_t begin = text.find("ready ") + 6;
  endpoints_[i] = text.substr(begin, text.find('\n', begin) - begin);
  return true;
}

void World::Revive() {
  rnicd_.Signal(SIGCONT);
  if (!rnicd_.running()) StartRnicd();
  for (uint32_t i = 0; i < kReplicas; ++i) {
    replicas_[i].Signal(SIGCONT);
    if (!replicas_[i].running() && !StartReplica(i)) {
      return Fail("replica " + std::to_string(i) +
                  " does not start again: " + Tail(replicas_[i].output(), 600));
    }
  }
  AwaitReplicas();
}

void World::AwaitReplicas() {
  for (uint32_t i = 0; i < kReplicas; ++i) {
    std::string text;
    const bool answers = Eventually([&] {
      const Result<NodeStatus> member = Member(i);
      text = member.status().ToString();
      return member.ok();
    });
    if (!answers) Fail("replica " + std::to_string(i) + " does not answer: " + text);
  }
}

void World::StartWriter(const std::string& uri) {
  progress_->phase.store(Phase::kStarting);
  progress_->stop.store(0);
  writer_ = Program({ProgramOf("chaos_writer"), "write", uri, directory_, Path("progress")},
                    Path("writer" + std::to_string(programs_++) + ".log"));
}

bool World::AwaitAcknowledged(uint64_t more) {
  const uint64_t enough = progress_->acknowledged.load() + more;
  return Eventually(
             [&] { return progress_->acknowledged.load() >= enough || !writer_.running(); }) &&
         progress_->acknowledged.load() >= enough;
}

bool World::AwaitPhase(Phase phase) {
  return Eventually([&] { return progress_->phase.load() >= phase || !writer_.running(); }) &&
         progress_->phase.load() >= phase;
}

bool World::AwaitLargeWrite() {
  const auto begun = [&] {
    return std::any_of(
        std::begin(progress_->outcomes), std::end(progress_->outcomes),
        [](const auto& outcomes) { return outcomes[kFirstLarge].load() != Outcome::kNone; });
  };
  return Eventually([&] { return begun() || !writer_.running(); }) && begun();
}

bool World::StartWriting(uint64_t acknowledged) {
  if (failed()) return false;
  StartWriter();
  if (AwaitPhase(Phase::kWriting) && AwaitAcknowledged(acknowledged)) return true;
  Fail("the service does not come to write: " + Tail(writer_.output(), 1200));
  return false;
}

Ended World::CloseWriter() {
  progress_->stop.store(1);
  const Ended ended = writer_.Wait();
  if (ended.status == -1) {
    Fail("the service does not end, in phase " +
         std::to_string(static_cast<int>(progress_->phase.load())));
    writer_.Kill();
  } else if (ended.by_signal() || ended.status == kReadWrong) {
    Fail("the service ended with " + std::to_string(ended.status) + ": " +
         Tail(ended.output, 1200));
  }
  return ended;
}

void World::KillWriter() {
  if (writer_.started() && !writer_.running() && progress_->stop.load() == 0) {
    const Ended ended = writer_.Wait();
    if (ended.by_signal())
      Fail("the service was ended by signal " + std::to_string(ended.status - 128) + ": " +
           Tail(ended.output, 1200));
  }
  writer_.Kill();
}

void World::Life() {
  if (!StartWriting(20 + Random(500))) return;
  if (Coin()) {
    Note("a life, closed");
    if (const Ended ended = CloseWriter(); ended.status != kDone)
      Fail("closing ended with " + std::to_string(ended.status) + ": " + ended.output);
  } else {
    Note("a life, killed");
    KillWriter();
  }
}

Ended World::Run(const std::vector<std::string>& argv) const {
  static uint64_t runs = 0;
  Program program(argv, Path("run" + std::to_string(runs++ % 8) + ".log"));
  return program.Wait();
}

Ended World::Dump(const std::string& uri, const std::string& directory,
                  const std::string& out) const {
  return Run({ProgramOf("chaos_writer"), "dump", uri, directory, out});
}

Result<std::unique_ptr<rnic::Device>> World::Observer() const {
  return softrnic::OpenDaemonDevice({Path("rnicd.sock"), "observer"});
}

Result<NodeStatus> World::Member(uint32_t i) const {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<rnic::Device> device, Observer());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view,
                      NodeView::Connect(*device, "replica" + std::to_string(i)));
  return view->ReadStatus();
}

// The pool's file is the memory that the replica's RNIC writes to.
Result<std::string> World::MemberText(uint32_t i) const {
  HL_ASSIGN_OR_RETURN(const NodeStatus status, Member(i));
  const std::string bytes = ReadFile(pool(i));
  std::ostringstream text;
  text << "sealed " << status.sealed_epoch << " by " << status.owner << ", installed "
       << status.installed_epoch << ", group " << status.group << ", database " << status.database
       << ", released " << status.released << ", bytes " << std::hash<std::string>()(bytes);
  return text.str();
}

Shown World::Look() const {
  Shown shown{FilesIn(directory_), {}};
  for (uint32_t i = 0; i < kReplicas; ++i) {
    const Result<std::string> member = MemberText(i);
    shown.members.push_back(member.ok() ? *member : member.status().ToString());
  }
  return shown;
}

std::string Shown::Difference(const Shown& other) const {
  std::string text;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == other.members[i]) continue;
    text += "replica " + std::to_string(i) + " was {" + members[i] + "} and is {" +
            other.members[i] + "}; ";
  }
  for (const auto& [name, bytes] : files) {
    const auto found = other.files.find(name);
    if (found == other.files.end()) {
      text += name + " is gone; ";
    } else if (found->second != bytes) {
      text += name + " has other bytes; ";
    }
  }
  for (const auto& [name, bytes] : other.files) {
    if (!files.contains(name)) text += name + " is new; ";
  }
  return text;
}

void World::CheckRefused(const Ended& ended, const std::vector<std::string>& words) {
  if (failed()) return;
  if (ended.status == kDone)
    return Fail("granted what must be refused: " + Tail(ended.output, 600));
  if (ended.status == -1) return Fail("neither granted nor refused within a minute");
  if (ended.by_signal()) {
    return Fail("ended by signal " + std::to_string(ended.status - 128) +
                " instead of refused: " + Tail(ended.output, 1200));
  }
  if (!NamesAWayOut(ended.output))
    return Fail("a refusal that names no known way out: " + Tail(ended.output, 1200));
  for (const std::string& word : words) {
    if (ended.output.find(word) != std::string::npos) return;
  }
  if (!words.empty()) {
    std::string text = "a refusal for another reason than expected (";
    for (const std::string& word : words) text += "\"" + word + "\" ";
    Fail(text + "): " + Tail(ended.output, 1200));
  }
}

Ended World::ExpectRefused(const std::string& uri, const std::string& directory,
                           const std::vector<std::string>& words) {
  if (failed()) return {};
  const Shown before = Look();
  const auto files = FilesIn(directory);
  const Ended ended = Dump(uri, directory, Path("dump"));
  Note("open of " + directory.substr(folder_.size()) + " with " + uri.substr(0, uri.find('?')) +
       ": " + Tail(ended.output, 500));
  CheckRefused(ended, words);
  if (failed()) return ended;
  if (const std::string changed = before.Difference(Look()); !changed.empty())
    Fail("the refused open changed something: " + changed);
  if (FilesIn(directory) != files) Fail("the refused open changed files of " + directory);
  return ended;
}

void World::CheckProcesses() {
  const auto check = [&](Program& program, const std::string& name) {
    if (!program.started() || program.running()) return;
    const Ended ended = program.Wait();
    Fail(name + " ended by itself with " + std::to_string(ended.status) + ": " +
         Tail(ended.output, 800));
  };
  check(rnicd_, "the RNIC daemon");
  for (uint32_t i = 0; i < kReplicas; ++i) check(replicas_[i], "replica " + std::to_string(i));
}

void World::Settle() {
  if (failed()) return;
  KillWriter();
  CheckProcesses();
  model_.Follow(*progress_);
  Revive();
  if (failed()) return;
  const Ended ended = Dump(settle_uri_.empty() ? Uri() : settle_uri_, directory_, Path("dump"));
  settle_uri_.clear();
  if (ended.status != kDone) {
    return Fail("opening in order ended with " + std::to_string(ended.status) + ": " +
                Tail(ended.output, 1500));
  }
  std::string torn;
  const Content content = ReadDump(Path("dump"), &torn);
  if (!torn.empty()) return Fail("torn: " + torn + " has a value that was never written");
  if (const std::string wrong = model_.Check(content); !wrong.empty()) return Fail(wrong);
  model_.Settle(content);
  shared_.Add(content, *progress_);
  if (const std::string wrong = shared_.WhyNotLinearizable(*progress_); !wrong.empty())
    return Fail(wrong);
  CheckMembers(content);
}

void World::CheckMembers(const Content& content) {
  const Ended verify = Run({ProgramOf("hyperloopctl"), "verify", "--uri", Uri()});
  if (verify.status != 0)
    return Fail("verify after an open and close in order: " + Tail(verify.output, 800));
  for (uint32_t i = 0; i < kReplicas && !failed(); ++i) CheckExport(i, content);
}

Result<ExportReport> World::ExportAlone(uint32_t i) const {
  stdfs::remove_all(Path("export"));
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<rnic::Device> device, Observer());
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view,
                      NodeView::Connect(*device, "replica" + std::to_string(i)));
  HL_ASSIGN_OR_RETURN(const RegionImage image, view->Snapshot());
  return ExportFiles(image.bytes(), Path("export"), 0, false, pool(i) + ".files");
}

Content World::DumpExport(const std::string& who) {
  const Ended opened = Dump("-", Path("export"), Path("export-dump"));
  if (opened.status != kDone)
    Fail("stock RocksDB cannot open the " + who + ": " + Tail(opened.output, 800));
  std::string torn;
  Content content = ReadDump(Path("export-dump"), &torn);
  if (!torn.empty()) Fail("torn in the " + who + ": " + torn);
  stdfs::remove_all(Path("export"));
  stdfs::remove_all(Path("export-log"));
  return content;
}

void World::CheckEachAlone() {
  if (failed()) return;
  model_.Follow(*progress_);
  Revive();
  uint32_t lacking = 0;
  for (uint32_t i = 0; i < kReplicas && !failed(); ++i) {
    const std::string who = "export of replica " + std::to_string(i) + " alone";
    const Result<ExportReport> report = ExportAlone(i);
    if (!report.ok()) return Fail(who + ": " + report.status().ToString());
    // Tables that no MANIFEST names yet may be on their way. A replica that was still being sent
    // older ones says which it lacks, and the others must do without it.
    if (!report->missing.empty()) {
      if (Dump("-", Path("export"), Path("export-dump")).status != kDone) {
        Note("replica " + std::to_string(i) + " still lacks " + report->missing[0]);
        if (++lacking > (kReplicas - 1) / 2) return Fail(who + ": so do too many others");
        continue;
      }
      if (const Status again = ExportAlone(i).status(); !again.ok())
        return Fail(who + ": " + again.ToString());
    }
    const Content content = DumpExport(who);
    if (const std::string wrong = model_.Check(content); !wrong.empty()) Fail(who + ": " + wrong);
  }
}

Result<std::map<std::string, std::string>> World::GroupFiles(uint32_t i) const {
  HL_RETURN_IF_ERROR(ExportAlone(i).status());
  std::map<std::string, std::string> files = LogLaneOf(FilesIn(Path("export")));
  stdfs::remove_all(Path("export"));
  return files;
}

void World::CheckExport(uint32_t i, const Content& content) {
  const std::string to = Path("export");
  stdfs::remove_all(to);
  const Ended ended = Run({ProgramOf("hyperloopctl"), "export", "--uri", Uri(), "--replica",
                           std::to_string(i), "--files", pool(i) + ".files", "--to", to});
  const std::string who = "export of replica " + std::to_string(i);
  if (ended.status != 0) return Fail(who + ": " + Tail(ended.output, 800));
  if (access(kLdb, X_OK) == 0) {
    const Ended consistent = Run({kLdb, "--db=" + to, "checkconsistency"});
    if (consistent.status != 0 || consistent.output.find("OK") == std::string::npos)
      Fail("ldb checkconsistency of the " + who + ": " + Tail(consistent.output, 800));
  }
  if (DumpExport(who) != content) Fail("the " + who + " has another content than the database");
}

}  // namespace hyperloop::chaos
