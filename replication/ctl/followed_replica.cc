#include "ctl/followed_replica.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::ctl {
namespace {

constexpr char kSelf[] = "self";

// For CLI11: empty, or what is wrong.
std::string CheckReplica(const std::string& text) {
  const bool number = !text.empty() && text.size() <= 3 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return text == kSelf || number ? "" : "'" + text + "' is neither self nor a replica's number";
}

// As a replica has it in its configuration.
std::string AddressOf(const std::string& listen) {
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(listen);
  return endpoint.ok() ? endpoint->ToString() : listen;
}

// A way to one replica, which is made anew after it failed.
class WitnessWay {
 public:
  WitnessWay(const Where& where, std::string address)
      : where_(where), address_(std::move(address)) {}

  Result<NodeMark> Look() {
    if (view_ == nullptr) HL_RETURN_IF_ERROR(Reach());
    Result<NodeMark> mark = view_->Mark();
    if (!mark.ok()) view_.reset();
    return mark;
  }

 private:
  Status Reach() {
    HL_ASSIGN_OR_RETURN(Nodes found, Nodes::Find(where_));
    nodes_ = std::make_unique<Nodes>(std::move(found));
    for (const NodePlace& place : nodes_->replicas()) {
      if (AddressOf(place.listen) != address_) continue;
      if (place.state == ProcessState::kDead) return Unavailable(place.name + " is dead");
      HL_ASSIGN_OR_RETURN(view_, nodes_->View(place));
      return {};
    }
    return NotFound("the group has no replica " + address_);
  }

  const Where where_;
  const std::string address_;
  std::unique_ptr<Nodes> nodes_;  // owns the device
  std::unique_ptr<NodeView> view_;
};

}  // namespace

void AddFollowedReplica(CLI::App* command, FollowedReplica* replica) {
  AddWhere(command, &replica->where);
  command
      ->add_option("--replica", replica->number,
                   "which replica of the group to read: its number, or self, the one on this "
                   "machine")
      ->required()
      ->check(CLI::Validator(CheckReplica, ""))
      ->type_name("N");
  command
      ->add_option("--files", replica->files,
                   "the replica's directory of whole files, where it is not known otherwise")
      ->type_name("DIR");
}

Result<ReplicaFollower::Replica> Connect(const FollowedReplica& replica) {
  HL_ASSIGN_OR_RETURN(Nodes found, Nodes::Find(replica.where));
  const auto nodes = std::make_shared<Nodes>(std::move(found));  // it owns the device
  HL_ASSIGN_OR_RETURN(const NodePlace* place,
                      replica.number == kSelf
                          ? nodes->OwnReplica()
                          : nodes->Replica(static_cast<uint32_t>(std::stoul(replica.number))));
  // The pool of a dead one could be read, but then its process could not start again.
  if (place->state == ProcessState::kDead)
    return Unavailable(Text(place->name, " is dead; start it, or name another replica"));
  HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, nodes->View(*place));
  const std::string files = replica.files.empty() ? place->files : replica.files;
  return ReplicaFollower::Replica{nodes, std::move(view), files, AddressOf(place->listen)};
}

Result<std::vector<Vouching::Witness>> WitnessesOf(const Where& where) {
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(where));
  StoreOptions store;
  HL_RETURN_IF_ERROR(ParseStoreUri(uri, &store).WithContext("--uri"));
  std::vector<Vouching::Witness> witnesses;
  for (const std::string& listen : store.replicas) {
    const std::string address = AddressOf(listen);
    const auto way = std::make_shared<WitnessWay>(where, address);
    witnesses.push_back({address, [way] { return way->Look(); }});
  }
  return witnesses;
}

}  // namespace hyperloop::ctl
