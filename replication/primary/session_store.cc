#include "primary/session_store.h"

#include "device/device_choice.h"
#include "hyperloop/core/fork_detector.h"

namespace hyperloop {
namespace {

class SessionStore final : public Store {
 public:
  SessionStore(std::unique_ptr<ForkDetector> fork_detector, std::unique_ptr<Session> session)
      : fork_detector_(std::move(fork_detector)), session_(std::move(session)) {}
  ~SessionStore() override {
    // A child must neither release the group nor join its parent's threads. It leaves alone what it
    // inherited.
    if (!fork_detector_->IsOwner()) static_cast<void>(session_.release());
  }

  Status Take(const TakeRequest& request, TakeResult* result) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Take(request, result);
  }
  bool taken() const override { return fork_detector_->IsOwner() && session_->taken(); }

  Result<FileId> Create(std::string_view name) override {
    return Guarded([&](LogLane& files) { return files.Create(name); });
  }
  Result<FileId> Lookup(std::string_view name) override {
    return Guarded([&](LogLane& files) { return files.Lookup(name); });
  }
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end) override {
    return Guarded([&](LogLane& files) { return files.Append(file, data, end); });
  }
  Status Await(AppendTicket ticket) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Await(ticket);
  }
  Status Sync() override {
    return Guarded([&](LogLane& files) { return files.Sync(); });
  }
  Status Truncate(FileId file, uint64_t size) override {
    return Guarded([&](LogLane& files) { return files.Truncate(file, size); });
  }
  Status Rename(std::string_view from, std::string_view to) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Rename(from, to);
  }
  Status Remove(std::string_view name) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Remove(name);
  }
  void Finish(FileId file) override {
    if (fork_detector_->IsOwner()) session_->NoteFinished(file);
  }
  Status ListFile(const WholeFile& file) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->ListFile(file);
  }
  Status Fetch(const WholeFile& file,
               const std::function<Status(std::span<const char>)>& sink) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Fetch(file, sink);
  }
  Status AwaitFiles(Holders holders) override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->AwaitFiles(holders);
  }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) override {
    return Guarded([&](LogLane& files) { return files.Read(file, offset, out); });
  }

  Result<std::vector<FileInfo>> Files() override {
    return Guarded([](LogLane& files) { return files.Files(); });
  }
  const StoreOptions& options() const override { return session_->options(); }
  rnic::Media media() const override { return session_->media(); }
  Status Close() override {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->Close();
  }
  Statistics statistics() override {
    if (!fork_detector_->IsOwner()) return {};
    Statistics out =
        session_->PeekLane([](LogLane& files) { return files.statistics(); }, Statistics());
    out.epoch = session_->epoch();
    return out;
  }

 private:
  template <class Use>
  auto Guarded(Use use) -> decltype(use(std::declval<LogLane&>())) {
    HL_RETURN_IF_ERROR(CheckProcess());
    return session_->WithLane(use);
  }

  Status CheckProcess() const {
    if (fork_detector_->IsOwner()) return {};
    return Fenced("this is a forked child; the group belongs to its parent");
  }

  const std::unique_ptr<ForkDetector> fork_detector_;
  std::unique_ptr<Session> session_;
};

}  // namespace

Result<std::unique_ptr<Store>> OpenSessionStore(const StoreOptions& options,
                                                DeviceOpener open_device,
                                                std::shared_ptr<Log> log) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<ForkDetector> fork_detector, ForkDetector::Create());
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      Session::Create(options, std::move(open_device), std::move(log)));
  HL_RETURN_IF_ERROR(session->Look());
  return std::unique_ptr<Store>(new SessionStore(std::move(fork_detector), std::move(session)));
}

Result<std::unique_ptr<Store>> Store::Open(const StoreOptions& options, std::shared_ptr<Log> log) {
  return OpenSessionStore(
      options, [choice = DeviceChoice::Of(options)] { return OpenDevice(choice); }, std::move(log));
}

}  // namespace hyperloop
