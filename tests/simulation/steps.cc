#include "simulation/steps.h"

#include <cstdint>

namespace hyperloop::simulation {

void Steps::Step() {
  // No number is taken in other runs, so that they are what they were.
  if (writer_.leave && Below(4) == 0) return StopAllReplicas();
  switch (Below(59)) {
    case 0:
      return Restart(AnyReplica(), /*power=*/false);
    case 1:
      return Restart(AnyReplica(), /*power=*/true);
    case 2:
    case 10:
      return StopOrStart(AnyReplica());
    case 3:
      return CutAndHeal(AnyReplica());
    case 4:
      Say("the primary vanishes");
      Vanish(primary_);
      CheckMembersAlone();
      return Heal(), OpenSoon();
    case 5:
      return CloseAndOpen();
    case 6:
      return Takeover();
    case 7:
    case 37:
    case 38:
      return DamageOne();
    case 11:
      return Race();
    case 13:
    case 14:
    case 15:
      return DieWhileOpening();
    case 16:
    case 17:
      return OpenWithSome();
    case 18:
    case 19:
      return WakeUpLate();
    case 20:
      return StopReplica(AnyReplica());
    case 8:
    case 9:
      return DisturbLink();
    case 21:
    case 22:
    case 23:
    case 24:
      return ChangeReplicas();
    case 25:
    case 26:
    case 27:
    case 28:
    case 29:
      return ChangesCutShort();
    case 30:
      return LosePool();
    case 31:
    case 32:
    case 33:
      return RestartRnic();
    case 34:
    case 35:
    case 36:
      return FailDisk();
    case 39:
    case 40:
    case 41:
      return AddWhileItServes();
    case 42:
    case 43:
      return DamageTable();
    case 44:
    case 45:
      return LoseDirectories();
    case 46:
    case 47:
    case 48:
      return SealOneThatIsBehind();
    case 49:
    case 50:
    case 51:
      return Inspect(AnyReplica());
    case 52:
    case 53:
      return ChangeKey(AnyHost());
    case 54:
    case 55:
    case 56:
      return SilenceReplica();
    default:
      return LoseAllPower();
  }
}

}  // namespace hyperloop::simulation
