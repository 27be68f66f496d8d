#include "simulation/primary.h"

#include <utility>
#include <vector>

#include "simulation/scheduler.h"

namespace hyperloop::simulation {
namespace {

constexpr uint64_t kPause = 3'000'000, kMostPause = 100'000'000;  // nanoseconds between two appends
constexpr int kBusyAppends = 20;
constexpr int kMostSlots = 64;                 // with the longest window
constexpr uint64_t kSlowAppend = 500'000'000;  // nanoseconds; half of what an operation may take
constexpr int kMostSlow = 3;

constexpr uint64_t kMostBytes = 512 << 10;  // from then on pieces are short, so that the data fits

// Of so many turns of the writer, one writes a table, and one replaces the small file. Half of all
// write a table if tables are to leave the region.
constexpr uint64_t kTurns = 8;
constexpr size_t kMostTables = 6;  // a table more, and one is given up
// More than half of the extents, so that tables have to leave.
constexpr size_t kMostInRegion = 12;

uint64_t Choose(uint64_t bound) { return Scheduler::Get().Choose(bound); }

}  // namespace

Primary::Primary(const World& world, size_t host, std::unique_ptr<Store> store, FileId file,
                 History& history, Tables& tables, std::set<uint64_t> live, WriterOptions options)
    : world_(world),
      host_(host),
      process_(Scheduler::Process()),
      store_(std::move(store)),
      file_(file),
      tables_(tables),
      live_(std::move(live)),
      writer_([this, &history, options] { Write(history, options); }) {}

Primary::~Primary() {
  const AsProcess as(process_);
  Stop();
  store_.reset();
}

void Primary::Stop() {
  stop_ = true;
  if (writer_.joinable()) writer_.join();
}

Status Primary::AppendMany(History& history) {
  const AsProcess as(process_);
  int slow = 0;
  for (int i = 0; i < kMostSlots; ++i) {
    const uint64_t begun = Scheduler::Get().Now();
    HL_RETURN_IF_ERROR(AppendSome(history, {0, 1}));
    if (Scheduler::Get().Now() - begun > kSlowAppend && ++slow > kMostSlow)
      return TimedOut("the group stops again and again");
  }
  return {};
}

Status Primary::Close() {
  const AsProcess as(process_);
  return store_->Close();
}

Result<std::set<WholeFile>> Primary::ListedTables() const {
  HL_ASSIGN_OR_RETURN(const std::vector<FileInfo> files, store_->Files());
  std::set<WholeFile> listed;
  for (const FileInfo& file : files)
    if (file.lane == Lane::kBulk) listed.insert({file.name, file.size, file.checksum});
  return listed;
}

void Primary::BeginLongTable() {
  const AsProcess as(process_);
  store_->ListFile(FileOfTable(tables_.WriteLong(host_))).IgnoreError();
}

void Primary::Hurry() { busy_ = kBusyAppends; }

void Primary::Write(History& history, const WriterOptions& options) {
  while (Pause(), !stop_ && !world_.IsDead(process_)) {
    fenced_ = TakeTurn(history, options).code() == Code::kFenced;
    if (fenced_) return;
  }
}

Status Primary::TakeTurn(History& history, const WriterOptions& options) {
  const uint64_t turn = Choose(kTurns);
  if (options.leave && turn >= kTurns / 2) return WriteTable(history, options);
  switch (turn) {
    case 0:
      return WriteTable(history, options);
    case 1:
      return ReplaceCurrent(history);
    default:
      return AppendSome(history, options);
  }
}

void Primary::Pause() {
  const auto rested = [this] { return !rests_ || stop_; };
  Scheduler::Get().Wait(rested);
  const auto ready = [this] { return busy_ > 0 || stop_; };
  Scheduler::Get().Wait(ready, Scheduler::Get().Now() + kPause + Choose(kMostPause - kPause));
  if (busy_ > 0) --busy_;
}

Status Primary::AppendSome(History& history, const WriterOptions& options) {
  std::vector<std::string> notes;
  const uint64_t most = history.bytes() < kMostBytes ? options.most_padding : 0;
  for (uint64_t n = 0; n < options.at_once; ++n)
    notes.push_back(std::string(Choose(most + 1), '-'));
  return Append(history, notes);
}

Status Primary::ReplaceCurrent(History& history) {
  const bool overtaken = overtaken_;
  const std::string value = history.BeginCurrent();
  HL_ASSIGN_OR_RETURN(const FileId file, store_->Create(kScratch));
  HL_ASSIGN_OR_RETURN(const AppendTicket cut, store_->Append(file, "to be cut"));
  HL_RETURN_IF_ERROR(store_->Await(cut));
  HL_RETURN_IF_ERROR(store_->Truncate(file, 0));
  HL_ASSIGN_OR_RETURN(const AppendTicket written, store_->Append(file, value));
  HL_RETURN_IF_ERROR(store_->Await(written));
  HL_RETURN_IF_ERROR(store_->Rename(kScratch, kCurrent));
  if (world_.IsDead(process_)) return {};  // nobody hears of it
  if (overtaken) broke_fence_ = true;
  history.AcknowledgeCurrent(value, store_->statistics().epoch);
  return {};
}

Status Primary::ListTable(uint64_t table) {
  const uint64_t pools_lost = world_.pools_lost();
  HL_RETURN_IF_ERROR(store_->ListFile(FileOfTable(table)));
  HL_RETURN_IF_ERROR(store_->AwaitFiles(Holders::kCaughtUp));
  if (world_.IsDead(process_)) return {};
  if (pools_lost == world_.pools_lost() &&
      !world_.MajoritiesHold(FileOfTable(table), store_->statistics().epoch))
    tables_.lacking().insert(table);
  return {};
}

Status Primary::WriteToRegion(uint64_t table) {
  HL_ASSIGN_OR_RETURN(const FileId file, store_->Create(NameOfTable(table)));
  HL_ASSIGN_OR_RETURN(const AppendTicket written, store_->Append(file, BytesOfTable(table)));
  HL_RETURN_IF_ERROR(store_->Await(written));
  store_->Finish(file);
  return {};
}

Status Primary::WriteTable(History& history, const WriterOptions& options) {
  const uint64_t table = tables_.Write(host_);
  HL_RETURN_IF_ERROR(options.leave ? WriteToRegion(table) : ListTable(table));
  if (world_.IsDead(process_)) return {};
  tables_.named().insert(table);
  HL_RETURN_IF_ERROR(Append(history, {NamingOf(table)}));
  live_.insert(table);
  const size_t most = options.leave ? kMostInRegion : kMostTables;
  if (live_.size() <= most || world_.IsDead(process_)) return {};
  const auto given_up = std::next(live_.begin(), static_cast<ptrdiff_t>(Choose(live_.size())));
  const uint64_t former = *given_up;
  HL_RETURN_IF_ERROR(Append(history, {GivingUpOf(former)}));
  if (world_.IsDead(process_)) return {};
  live_.erase(given_up);
  tables_.named().erase(former);
  tables_.directory(host_).erase(former);
  return store_->Remove(NameOfTable(former));
}

Status Primary::Append(History& history, const std::vector<std::string>& notes) {
  std::vector<std::pair<uint64_t, AppendTicket>> under_way;
  Status appended;
  const bool overtaken = overtaken_;
  for (const std::string& note : notes) {
    if (!appended.ok()) break;
    const History::Piece piece = history.Begin(note);
    const Result<AppendTicket> ticket = store_->Append(file_, piece.text);
    appended = ticket.status();
    if (ticket.ok()) under_way.emplace_back(piece.number, *ticket);
  }
  for (const auto& [number, ticket] : under_way) {
    const Status awaited = store_->Await(ticket);
    if (world_.IsDead(process_)) return Unavailable("this process is dead");  // nobody hears of it
    if (awaited.ok()) {
      history.Acknowledge(number, store_->statistics().epoch);
      Scheduler::Get().Note(number);
    }
    if (awaited.ok() && overtaken) broke_fence_ = true;
    if (!awaited.ok()) appended = awaited;
  }
  return appended;
}

}  // namespace hyperloop::simulation
