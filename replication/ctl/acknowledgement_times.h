// AcknowledgementTimes: how long acknowledgements took, from the file of metrics that a primary
// writes (metrics_file).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hyperloop::ctl {

class AcknowledgementTimes {
 public:
  // Reads the page for what it says of this group. What is not the text that a primary writes
  // counts as nothing.
  void Read(std::string_view page, std::string_view group);

  // The least limit, in seconds, that this share of the acknowledgements kept which were timed
  // between the two newest different pages. None: none was.
  std::optional<double> Quantile(double share) const;

 private:
  // By limit in seconds, how many took at most that.
  using Counts = std::map<double, double>;
  Counts before_, now_;
};

}  // namespace hyperloop::ctl
