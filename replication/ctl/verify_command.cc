// hyperloopctl verify
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ctl/command.h"
#include "ctl/nodes.h"

namespace hyperloop::ctl {
namespace {

struct Member {
  std::string name;
  std::unique_ptr<NodeView> view;
};

// Compares every member's region with the first one's. kCorruption names the first byte that
// differs.
Status Compare(const std::vector<Member>& members) {
  constexpr uint64_t kPiece = 1 << 20;
  const uint64_t size = members.front().view->region_size();
  for (const Member& member : members) {
    if (member.view->region_size() != size) {
      return Corruption(member.name + " has a region of " +
                        std::to_string(member.view->region_size()) + " B, " + members.front().name +
                        " one of " + std::to_string(size) + " B");
    }
  }
  std::vector<std::byte> expected(kPiece), found(kPiece);
  for (uint64_t at = 0; at < size; at += kPiece) {
    const uint64_t n = std::min(kPiece, size - at);
    HL_RETURN_IF_ERROR(members.front().view->Read(at, std::span(expected).first(n)));
    for (size_t i = 1; i < members.size(); ++i) {
      HL_RETURN_IF_ERROR(members[i].view->Read(at, std::span(found).first(n)));
      if (std::memcmp(expected.data(), found.data(), n) == 0) continue;
      const auto [a, b] = std::mismatch(
          expected.begin(), expected.begin() + static_cast<ptrdiff_t>(n), found.begin());
      char bytes[32];
      std::snprintf(bytes, sizeof bytes, "0x%02x and 0x%02x", std::to_integer<unsigned>(*a),
                    std::to_integer<unsigned>(*b));
      return Corruption("regions differ, first at offset " +
                        std::to_string(at + static_cast<uint64_t>(a - expected.begin())) + ": " +
                        members.front().name + " and " + members[i].name + " have " + bytes);
    }
  }
  return Status::Ok();
}

Status Verify(const Where& where, std::string* report) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(where));
  HL_ASSIGN_OR_RETURN(const std::string primary, nodes.LivingPrimary());
  if (!primary.empty()) {
    return Busy("the group is in use by " + primary +
                "; regions are equal only at rest, end it first");
  }
  std::vector<Member> members;
  for (const NodePlace& place : nodes.replicas()) {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, nodes.View(place));
    members.push_back({place.name, std::move(view)});
  }
  if (::access(nodes.primary_pool().c_str(), F_OK) == 0) {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, NodeView::OpenPool(nodes.primary_pool()));
    members.push_back({"primary", std::move(view)});
  }
  HL_RETURN_IF_ERROR(Compare(members));
  for (const Member& member : members) *report += (report->empty() ? "" : ", ") + member.name;
  *report += ": " + std::to_string(members.front().view->region_size()) + " B are equal";
  return Status::Ok();
}

}  // namespace

void AddVerify(CLI::App& app, Action* chosen) {
  auto where = std::make_shared<Where>();
  CLI::App* verify = app.add_subcommand(
      "verify",
      "whether the regions of all replicas and of the primary's pool are equal, byte by byte");
  AddWhere(verify, where.get());
  verify->callback([=] {
    *chosen = [=] {
      std::string report;
      const Status status = Verify(*where, &report);
      if (!status.ok()) return Fail(status);
      std::printf("%s\n", report.c_str());
      return static_cast<int>(kExitOk);
    };
  });
}

}  // namespace hyperloop::ctl
