// Which algorithm to prefer for which sizes, from measurements: few rules, each clearly worth it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace sprat::cli {

/// One size of a collective, measured by every algorithm that fits.
struct Measured {
  std::size_t bytes = 0;
  std::string usual;  ///< What is chosen without new rules.
  /// Time over the usual algorithm's, of samples taken in turns: the median.
  std::map<std::string, double> ratio;
};

/// Sizes from least to most bytes, both included, for which one algorithm is to be preferred.
struct Stretch {
  std::size_t least_bytes = 0, most_bytes = 0;
  std::string algorithm;
  double best = 1, worst = 1;  ///< Ratios within.
};

/// Less than this share of time saved is noise, and so is what a change of algorithm must save.
inline constexpr double clear_gain = 0.05;

/// `findings` ascend in bytes. What is best by the sum over sizes of the time's logarithm, where
/// an unclear gain counts nothing, a loss counts, and each change of algorithm costs a clear gain,
/// as if the usual one came before the first size and after the last.
/// Sizes that keep what is usual are left out. The first stretch of a list reaches down to 0, the
/// last up to the largest number; others meet between two sizes.
std::vector<Stretch> preferred(const std::vector<Measured>& findings);

}  // namespace sprat::cli
