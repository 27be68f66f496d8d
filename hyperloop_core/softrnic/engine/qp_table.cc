#include "softrnic/engine/qp_table.h"

namespace hyperloop::softrnic {

Qp* QpTable::FindPeer(Qp& qp) {
  if (!qp.connected) return nullptr;
  Qp* const peer = qps_.Find(qp.remote_qpn);
  if (peer == nullptr || peer->host->gid != qp.remote_gid || !peer->connected ||
      peer->remote_qpn != qp.qpn || peer->remote_gid != qp.host->gid || qp.orphaned ||
      peer->orphaned)
    return nullptr;
  qp.peer = peer;
  return peer;
}

void QpTable::Disconnect(Qp& qp) {
  const auto has_spoken = [](const Qp& end) {
    return RequestsRun(end) != end.requests_before || end.part != nullptr;
  };
  Qp* const other = qp.connected ? FindPeer(qp) : nullptr;
  if (other != nullptr && other != &qp) {
    other->orphaned = has_spoken(qp) || has_spoken(*other);
    other->peer = nullptr;
  }
  qp.peer = nullptr;
}

}  // namespace hyperloop::softrnic
