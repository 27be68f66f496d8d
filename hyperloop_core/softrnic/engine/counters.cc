// Counters as text: lines "name value" of a host, then lines "qp.<number>.name value" of those of
// its queue pairs that are the caller's, for the counters that are not 0.
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/core/name.h"
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

void Control::Count(const Tally& tally, QpCounters* sum, uint64_t* queue_pairs) const {
  *sum = tally.retired;
  *queue_pairs = 0;
  // Contexts that are being closed count too: some of their queue pairs are in `retired` already.
  clients_.ForEachContext([&](const Context& context) {
    if (context.host->tally != &tally) return;
    ForEachQp(context, [&](const Qp& qp) {
#define HL_ADD(name) sum->name += qp.count.name;
      HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
      ++*queue_pairs;
    });
  });
}

// Only copies the numbers, because every host waits for it. The function that it returns makes the
// text.
Result<std::function<std::string()>> Control::Counters(const Context& c,
                                                       const QueryCountersArgs& args) const {
  const Tally* tally = c.host->tally;
  if (args.host[0] != 0) {
    std::string host;
    if (!ToName(args.host, &host))
      return InvalidArgument(Text("counters: a host name is ", kNameRule));
    tally = clients_.FindTally(host);
    if (tally == nullptr)
      return NotFound(Text("counters: no host ", host, " has been attached to this device"));
  }
  QpCounters sum;
  uint64_t queue_pairs = 0;
  Count(*tally, &sum, &queue_pairs);
  QueuePairs own;
  own.reserve(kMaxQpsPerContext);
  if (c.host->tally == tally)
    ForEachQp(c, [&](const Qp& qp) { own.emplace_back(qp.qpn, qp.count); });
  return std::function<std::string()>(
      [sum, own = std::move(own)] { return CounterText(sum, own); });
}

}  // namespace hyperloop::softrnic
