// Counters as text: lines "name value" of the caller's host, then lines "qp.<number>.name value" of
// the caller's own queue pairs, for the counters that are not 0.
#include <sstream>
#include <utility>
#include <vector>

#include "softrnic/engine/control.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {

namespace {

using QueuePairs = std::vector<std::pair<uint32_t, QpCounters>>;

std::string CounterText(const QpCounters& sum, const QueuePairs& own) {
  std::ostringstream out;
#define HL_LINE(name) out << #name " " << sum.name << "\n";
  HL_QP_COUNTERS(HL_LINE)
#undef HL_LINE
  for (const auto& [qpn, count] : own) {
#define HL_LINE(name) \
  if (count.name != 0) out << "qp." << qpn << "." #name " " << count.name << "\n";
    HL_QP_COUNTERS(HL_LINE)
#undef HL_LINE
  }
  return out.str();
}

}  // namespace

// Only copies the numbers, because every host waits for it. The function that it returns makes the
// text.
std::function<std::string()> Control::Counters(const Context& c) const {
  QpCounters sum = c.host->retired;
  QueuePairs own;
  own.reserve(kMaxQpsPerContext);
  for (const Context* other : clients_.open()) {
    if (other->host != c.host) continue;
    ForEachQp(*other, [&](const Qp& qp) {
#define HL_ADD(name) sum.name += qp.count.name;
      HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
      if (other == &c) own.emplace_back(qp.qpn, qp.count);
    });
  }
  return [sum, own = std::move(own)] { return CounterText(sum, own); };
}

}  // namespace hyperloop::softrnic
