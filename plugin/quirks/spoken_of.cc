#include "spoken_of.h"

namespace hyperloop::plugin::spoken_of {
namespace {

// The address is only compared, never followed.
struct State {
  const BoundDirectory* bound = nullptr;
  bool opening = false;
};
thread_local State state;

}  // namespace

void Opening(const BoundDirectory& bound) { state = {&bound, true}; }

void Opened() { state = {}; }

void WritesManifest(const BoundDirectory& bound) {
  if (state.bound != &bound) state = {&bound, false};
}

// Whoever opens a database reads its MANIFEST, too. Any other reader opens it to read only.
void ReadsManifest(const BoundDirectory* bound) {
  if (!IsOpening(bound)) state = {};
}

void Nothing() { state = {}; }

bool Is(const BoundDirectory* bound) { return bound != nullptr && state.bound == bound; }

bool IsOpening(const BoundDirectory* bound) { return Is(bound) && state.opening; }

}  // namespace hyperloop::plugin::spoken_of
