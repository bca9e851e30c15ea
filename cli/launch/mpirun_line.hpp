// The mpirun command that `sprat launch` becomes. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sprat::cli {

/// What was asked for, and what is known about where.
struct LaunchRequest {
  std::string hosts = {};                   ///< "a:8,b:8" as mpirun takes it; empty: this machine.
  int ranks = 0;                            ///< 0: as many as there are slots.
  std::string custom_options = {};          ///< For mpirun, split as a shell does.
  std::vector<std::string> command = {};    ///< And its arguments.
  std::vector<std::string> variables = {};  ///< Set here; every rank is to have them.
  std::string interface = {};               ///< SPRAT_INTERFACE, or empty.
  bool as_root = false;
  int cores = 1;  ///< Of this machine.
};

/// Our options, then the custom ones as they are, then the command. Of ours, one that a custom
/// option says again is left out: the user's holds. Throws UsageError.
std::vector<std::string> mpirun_line(const LaunchRequest& request);

/// Words as a shell splits them: blanks, '...', "...", backslashes. Throws UsageError if a quote
/// stays open.
std::vector<std::string> split_words(std::string_view text);
/// The words as one line that a shell splits into them again.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace sprat::cli
