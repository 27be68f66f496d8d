// History: what the callers of a group were told, against what the group holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hyperloop::simulation {

// Pieces are appended one after the other, each with a number of its own. A piece that was
// acknowledged must be there, and one whose append failed may be; nothing else may, and their order
// is that of their numbers.
class History {
 public:
  // The next piece to append; from now on it may be there.
  struct Piece {
    uint64_t number = 0;
    std::string text;
  };
  // `note`: what stands behind its number; it has no ';' and begins with no digit.
  Piece Begin(std::string_view note);
  // `epoch`: the group's, now.
  void Acknowledge(uint64_t number, uint64_t epoch) {
    pieces_[number] = true;
    Serves(epoch);
  }
  // A primary has read what the group holds under this epoch, or it acknowledged something.
  void Serves(uint64_t epoch) { epoch_ = std::max(epoch_, epoch); }
  uint64_t epoch() const { return epoch_; }  // the newest that served; 0: none did
  uint64_t acknowledged() const;
  uint64_t begun() const { return next_ - 1; }  // pieces
  uint64_t bytes() const { return bytes_; }     // of all pieces
  // A small file that is replaced as a whole: the next value for it, which it may have from now on,
  // and the end of its replacing.
  std::string BeginCurrent();
  void AcknowledgeCurrent(const std::string& value, uint64_t epoch);
  // As Check and Look, for its value; empty: there is no such file.
  std::string CheckCurrent(const std::string& value);
  std::string LookCurrent(const std::string& value) const;

  // What is wrong with this content; empty: nothing. What it lacks is known to be gone from now on.
  std::string Check(std::string_view content);
  // The same, and nothing is relied on or known to be gone by it.
  std::string Look(std::string_view content) const;
  // `later` is this history as it went on. What has begun meanwhile may be there, too.
  void GoesOnAs(const History& later);

 private:
  uint64_t next_ = 1;
  uint64_t bytes_ = 0;
  uint64_t epoch_ = 0;
  std::map<uint64_t, bool> pieces_;  // by number: whether it was acknowledged
  // What the small file may hold, in the order of BeginCurrent.
  std::vector<std::string> currents_{""};
  uint64_t next_current_ = 1;
};

}  // namespace hyperloop::simulation
