// Counters as text: "name value" lines of the caller's host, then "qp.<number>.name value" of his
// own queue pairs.
#include "softrnic/engine_impl.h"
#include "softrnic/engine_text.h"

namespace hyperloop::softrnic {

std::string Engine::Impl::CounterText(const Context& c) {
  QpCounters sum = c.host->retired;
  std::ostringstream own;
  qps.ForEach([&](const Qp& qp) {
    if (qp.host != c.host) return;
#define HL_ADD(name) sum.name += qp.count.name;
    HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
    if (qp.context != &c) return;
#define HL_LINE(name) \
  if (qp.count.name != 0) own << "qp." << qp.qpn << "." #name " " << qp.count.name << "\n";
    HL_QP_COUNTERS(HL_LINE)
#undef HL_LINE
  });
  std::ostringstream out;
#define HL_LINE(name) out << #name " " << sum.name << "\n";
  HL_QP_COUNTERS(HL_LINE)
#undef HL_LINE
  out << own.str();
  return out.str();
}

}  // namespace hyperloop::softrnic
