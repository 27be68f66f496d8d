// SingleSteps, for tests and models: runs an engine one step at a time, and chooses the steps. An
// engine has one if EngineTestHooks::steps makes it: RandomSteps or FirstFoundSteps
// (testing/adversarial_schedule.h), or PacedBy (pacer.h). hyperloop_core itself has none.
//
// May call: Doorbells, Retries, QpTable, ReadyList, KeyTable, Snapshots, Transit, Requester, Dice.
#pragma once

#include <functional>
#include <memory>

namespace hyperloop::softrnic {

class Dice;
class Doorbells;
class KeyTable;
class QpTable;
class ReadyList;
class Requester;
class Retries;
class Snapshots;
class Transit;
struct EngineOptions;

// The parts of an engine that its steps may call. They outlive the SingleSteps.
struct EngineParts {
  const EngineOptions& options;
  Doorbells& doorbells;
  Retries& retries;
  QpTable& qps;
  ReadyList& ready;
  KeyTable& keys;
  Snapshots& snapshots;
  Transit& transit;
  Requester& requester;
  Dice& dice;
};

class SingleSteps {
 public:
  virtual ~SingleSteps() = default;
  // Does one thing that could happen next. False: nothing can.
  virtual bool Step() = 0;
};

using MakeSingleSteps = std::function<std::unique_ptr<SingleSteps>(const EngineParts&)>;

}  // namespace hyperloop::softrnic
