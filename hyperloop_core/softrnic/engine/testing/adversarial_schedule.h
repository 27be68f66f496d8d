// Adversarial schedules for EngineTestHooks::steps: an engine does one thing at a time, chosen
// among all that could happen next.
//
// A step is one WQE of a queue. With deferred delivery it is also the delivery of a queue's oldest
// request without an answer, the acknowledgement of its oldest answer, or a WQE that is fetched
// again, as a retransmission does.
#pragma once

#include <memory>

#include "softrnic/engine/single_steps.h"

namespace hyperloop::softrnic {

// Chooses by chance (EngineTestHooks::seed).
std::unique_ptr<SingleSteps> RandomSteps(const EngineParts& engine);
// Takes the first thing that it finds.
std::unique_ptr<SingleSteps> FirstFoundSteps(const EngineParts& engine);
// Options by which requests and answers reach their ends at once, or (`deferred`) in later steps,
// of which the first that is found comes first.
EngineOptions Delivering(bool deferred);

}  // namespace hyperloop::softrnic
