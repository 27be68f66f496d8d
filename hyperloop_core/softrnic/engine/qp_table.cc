#include "softrnic/engine/qp_table.h"

namespace hyperloop::softrnic {

Qp* QpTable::FindPeer(Qp& qp) {
  if (!qp.peer.connected) return nullptr;
  Qp* const peer = qps_.Find(qp.peer.qpn);
  if (peer == nullptr || peer->host->gid != qp.peer.gid || !peer->peer.connected ||
      peer->peer.qpn != qp.qpn || peer->peer.gid != qp.host->gid || qp.peer.orphaned ||
      peer->peer.orphaned)
    return nullptr;
  qp.peer.cached = peer;
  return peer;
}

void QpTable::Disconnect(Qp& qp) {
  const auto has_spoken = [](const Qp& end) {
    return RequestsRun(end) != end.peer.requests_before || end.send.part != nullptr;
  };
  Qp* const other = qp.peer.connected ? FindPeer(qp) : nullptr;
  if (other != nullptr && other != &qp) {
    other->peer.orphaned = has_spoken(qp) || has_spoken(*other);
    other->peer.cached = nullptr;
  }
  qp.peer.cached = nullptr;
}

}  // namespace hyperloop::softrnic
