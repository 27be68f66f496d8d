// Writes docs/metrics.md: `metrics_page FILE`.
#include <cstdio>
#include <fstream>

#include "hyperloop/metrics/table.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  std::ofstream page(argv[1], std::ios::trunc);
  page << hyperloop::metrics::Markdown();
  page.close();
  if (!page) {
    std::fprintf(stderr, "cannot write %s\n", argv[1]);
    return 1;
  }
  return 0;
}
