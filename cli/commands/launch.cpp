// `sprat launch`: ranks on this machine or on several hosts, by mpirun.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/command.hpp"
#include "cli/launch/mpirun_line.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "sprat/config.hpp"

namespace sprat::cli {
namespace {

/// A rank and a size of this shell would make every rank the same one.
constexpr std::array own_place = {"SPRAT_RANK", "SPRAT_SIZE"};

/// Our settings, and on other hosts what programs need to start, as far as they are set here. Some
/// settings are no communicator's, such as those of the NCCL library, so all of our names count.
std::vector<std::string> variables_to_pass(bool other_hosts) {
  std::vector<std::string> names = own_variables();
  if (other_hosts) {
    names.insert(names.begin(), {"PATH", "LD_LIBRARY_PATH"});
  }
  std::erase_if(names, [](const std::string& name) {
    const char* value = environment(name.c_str());
    return value == nullptr || *value == '\0' ||
           std::ranges::find(own_place, name) != own_place.end();
  });
  return names;
}

/// mpirun looks for programs in PATH only; this one may not lie there.
void find_ourselves(std::string& program) {
  std::error_code failed;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (program == "sprat" && !failed) {
    program = own.string();
  }
}

[[noreturn]] void become(std::vector<std::string> line) {
  std::vector<char*> words;
  for (std::string& word : line) {
    words.push_back(word.data());
  }
  words.push_back(nullptr);
  // Ranks of this host have mpirun's environment, whatever is passed on by name.
  for (const char* name : own_place) {
    ::unsetenv(name);
  }
  ::execvp(words.front(), words.data());
  const int error = errno;
  need(error != ENOENT, "mpirun is not installed: apt-get install openmpi-bin");
  throw Error(ErrorCode::unavailable, text("cannot run mpirun: ", std::strerror(error)));
}

Action prepare_launch(CLI::App& app) {
  struct Options {
    LaunchRequest request;
    bool dry_run = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("--hosts", options->request.hosts, "Hosts and how many ranks each takes: a:8,b:8");
  app.add_option(
         "-n,--ranks", options->request.ranks,
         "How many ranks; otherwise one for each slot of the hosts, or core of this machine")
      ->check(WholeNumber(1));
  app.add_option("--custom-mpi-options", options->request.custom_options,
                 "For mpirun, after our own and instead of those of ours that they repeat");
  app.add_flag("--dry-run", options->dry_run, "Print the line instead of running it");
  app.add_option("COMMAND", options->request.command, "After --: what every rank runs");
  return [options] {
    LaunchRequest& request = options->request;
    if (!request.command.empty() && request.hosts.empty()) {
      find_ourselves(request.command.front());
    }
    request.variables = variables_to_pass(!request.hosts.empty());
    request.interface = Config::from_environment().interface;
    request.as_root = ::geteuid() == 0;
    request.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const std::vector<std::string> line = mpirun_line(request);
    if (!options->dry_run) {
      become(line);
    }
    fmt::print("{}\n", shell_line(line));
    return 0;
  };
}

}  // namespace

extern const Command launch_command;
const Command launch_command = {
    "launch",
    "Run a command as ranks, here or on several hosts",
    R"(Builds an mpirun command and becomes it. Without --hosts the ranks run on this machine. Every SPRAT_*
variable that is set here is set for every rank; on other hosts PATH and LD_LIBRARY_PATH are, too.
Custom options are given to mpirun as they are, after ours; where both say the same thing
(-x NAME, -mca KEY, --host ...) only the custom one is given.

Examples:
  sprat launch -n 4 -- sprat bench all_reduce
  sprat launch --hosts a:8,b:8 -- sprat train examples/gpt-jargon.json
  sprat launch --hosts a:8,b:8 --custom-mpi-options "-verbose -x NCCL_DEBUG=VERSION" -- ./train
  sprat launch --hosts a:8,b:8 --dry-run -- ./train      prints the line
Under Slurm, srun --mpi=pmix launches the ranks itself.
)",
    prepare_launch,
};

}  // namespace sprat::cli
