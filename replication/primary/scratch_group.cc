#include "hyperloop/replication/scratch_group.h"

#include "device/device_choice.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

class SessionScratch final : public ScratchGroup {
 public:
  SessionScratch(std::unique_ptr<Session> session, Session::Primitives lent)
      : session_(std::move(session)), lent_(std::move(lent)) {}
  ~SessionScratch() override { Close().IgnoreError(); }

  Group& group() override { return *lent_.group; }
  rnic::Device& device() override { return *lent_.device; }
  const std::vector<std::string>& replica_hosts() const override { return lent_.replica_hosts; }
  uint64_t offset() const override { return lent_.offset; }
  std::span<std::byte> bytes() const override { return lent_.bytes; }
  Status Close() override { return session_->Close(); }

 private:
  const std::unique_ptr<Session> session_;
  const Session::Primitives lent_;
};

}  // namespace

Result<std::unique_ptr<ScratchGroup>> ScratchGroup::Take(const StoreOptions& options,
                                                         const std::string& who,
                                                         std::shared_ptr<Log> log) {
  const auto open_device = [choice = DeviceChoice::Of(options)] { return OpenDevice(choice); };
  StoreOptions scratch = options;
  scratch.restore = false;  // a group with files is refused before anything changes
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      Session::Make(std::move(scratch), open_device, std::move(log)));
  TakeRequest request;
  request.directory = who;
  TakeResult taken;
  HL_RETURN_IF_ERROR(session->Take(request, &taken));
  HL_ASSIGN_OR_RETURN(Session::Primitives lent, session->Lend());
  return std::unique_ptr<ScratchGroup>(
      std::make_unique<SessionScratch>(std::move(session), std::move(lent)));
}

}  // namespace hyperloop
