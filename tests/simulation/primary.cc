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

constexpr uint64_t kMostBytes = 2 << 20;  // from then on pieces are short, so that the data fits

uint64_t Choose(uint64_t bound) { return Scheduler::Get().Choose(bound); }

}  // namespace

Primary::Primary(const World& world, size_t host, std::unique_ptr<Store> store, FileId file,
                 History& history, WriterOptions options)
    : world_(world),
      host_(host),
      process_(Scheduler::Process()),
      store_(std::move(store)),
      file_(file),
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

void Primary::Hurry() { busy_ = kBusyAppends; }

void Primary::Write(History& history, const WriterOptions& options) {
  while (Pause(), !stop_ && !world_.IsDead(process_)) {
    const Status appended = AppendSome(history, options);
    fenced_ = appended.code() == Code::kFenced;
    if (fenced_) return;
  }
}

void Primary::Pause() {
  const auto ready = [this] { return busy_ > 0 || stop_; };
  Scheduler::Get().Wait(ready, Scheduler::Get().Now() + kPause + Choose(kMostPause - kPause));
  if (busy_ > 0) --busy_;
}

Status Primary::AppendSome(History& history, const WriterOptions& options) {
  std::vector<std::pair<uint64_t, AppendTicket>> under_way;
  Status appended;
  const bool overtaken = overtaken_;
  for (uint64_t n = 0; n < options.at_once && appended.ok(); ++n) {
    const uint64_t most = history.bytes() < kMostBytes ? options.most_padding : 0;
    const History::Piece piece = history.Begin(Choose(most + 1));
    const Result<AppendTicket> ticket = store_->Append(file_, piece.text);
    appended = ticket.status();
    if (ticket.ok()) under_way.emplace_back(piece.number, *ticket);
  }
  for (const auto& [number, ticket] : under_way) {
    const Status awaited = store_->Await(ticket);
    if (world_.IsDead(process_)) return awaited;  // nobody hears of it
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
