// The cheapest path through sizes and algorithms (Viterbi 1967).
#include "cli/bench/choice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

namespace sprat::cli {
namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
const std::string usual;  // a path's name for what is chosen without new rules

double cost_of(const Measured& finding, const std::string& algorithm) {
  if (algorithm == usual || algorithm == finding.usual) {
    return 0;
  }
  const auto measured = finding.ratio.find(algorithm);
  if (measured == finding.ratio.end()) {
    return impossible;  // it does not fit
  }
  const bool unclear = measured->second > 1 - clear_gain && measured->second < 1;
  return unclear ? 0 : std::log(measured->second);
}

/// The largest size that belongs to the smaller of two neighbours.
std::size_t boundary(std::size_t smaller, std::size_t larger) {
  if (smaller == 0 || larger / smaller < 4) {  // nothing has a ratio to 0
    return smaller + (larger - smaller) / 2;
  }
  return std::bit_floor(static_cast<std::size_t>(
      std::sqrt(static_cast<double>(smaller) * static_cast<double>(larger))));
}

/// An algorithm for each finding.
std::vector<std::string> cheapest_path(const std::vector<Measured>& findings) {
  struct Step {
    double cost = 0;
    std::string before;
  };
  std::set<std::string> names = {usual};
  for (const Measured& finding : findings) {
    for (const auto& [algorithm, ratio] : finding.ratio) {
      names.insert(algorithm);
    }
  }
  const double change = -std::log(1 - clear_gain);
  std::vector<std::map<std::string, Step>> steps(findings.size());
  for (std::size_t i = 0; i < findings.size(); ++i) {
    for (const std::string& name : names) {
      // A list begins, and ends, with what is usual.
      Step best{i == 0 ? (name == usual ? 0 : change) : steps[i - 1][name].cost, name};
      for (const std::string& before : names) {
        if (i == 0) {
          break;
        }
        const double so_far = steps[i - 1][before].cost + change;
        if (before != name && so_far < best.cost) {
          best = {so_far, before};
        }
      }
      best.cost += cost_of(findings[i], name);
      steps[i][name] = best;
    }
  }
  std::vector<std::string> path(findings.size());
  for (std::size_t i = findings.size(); i-- > 0;) {
    const auto& here = steps[i];
    path[i] = i + 1 < findings.size()
                  ? steps[i + 1][path[i + 1]].before
                  : std::ranges::min_element(here, {}, [change](const auto& step) {
                      return step.second.cost + (step.first == usual ? 0 : change);
                    })->first;
  }
  return path;
}

}  // namespace

std::vector<Stretch> preferred(const std::vector<Measured>& findings) {
  const std::vector<std::string> path = cheapest_path(findings);
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == usual) {
      continue;
    }
    const auto measured = findings[i].ratio.find(path[i]);
    const double ratio = measured == findings[i].ratio.end() ? 1 : measured->second;
    const std::size_t most = i + 1 == path.size()
                                 ? std::numeric_limits<std::size_t>::max()
                                 : boundary(findings[i].bytes, findings[i + 1].bytes);
    if (i > 0 && path[i - 1] == path[i]) {
      Stretch& last = stretches.back();
      last.most_bytes = most;
      last.best = std::min(last.best, ratio);
      last.worst = std::max(last.worst, ratio);
    } else {
      const std::size_t least = i == 0 ? 0 : boundary(findings[i - 1].bytes, findings[i].bytes) + 1;
      stretches.push_back({least, most, path[i], ratio, ratio});
    }
  }
  return stretches;
}

}  // namespace sprat::cli
