// How this process was launched, read from what launchers leave in the environment.
#include <charconv>
#include <optional>
#include <string_view>

#include "comm/base/check.hpp"
#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {
namespace {

using Variables = std::function<const char*(const char*)>;

/// Under torchrun, MASTER_PORT may belong to its agent, and ports after it to other jobs. So rank 0
/// takes the first free one of these, and the others look at all of them.
constexpr int torchrun_ports = 16;

std::string text_of(const Variables& environment, const char* variable) {
  const char* value = environment(variable);
  return value == nullptr ? "" : value;
}

std::optional<int> number_of(const Variables& environment, const char* variable, int least) {
  const std::string value = text_of(environment, variable);
  if (value.empty()) {
    return std::nullopt;
  }
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  require(error == std::errc{} && end == value.data() + value.size() && number >= least, variable,
          " is \"", value, "\"; it must be a number, ", least, " or more");
  return number;
}

std::optional<Launch> by_ourselves(const Config& config) {
  if (config.rank == -1 && config.size == -1) {
    return std::nullopt;
  }
  require(config.rank >= 0 && config.size >= 0, "SPRAT_RANK is ", config.rank, ", SPRAT_SIZE is ",
          config.size, "; set both, or neither and let the launcher say");
  require(config.rank < config.size, "SPRAT_RANK is ", config.rank, ", SPRAT_SIZE is ", config.size,
          "; the rank must be below the size");
  require(config.size == 1 || !config.rendezvous.empty(), "SPRAT_RANK is ", config.rank,
          " and SPRAT_SIZE is ", config.size,
          "; set SPRAT_RENDEZVOUS too, as in tcp://host-of-rank-0:29500");
  return Launch{.by = "SPRAT_*", .rank = config.rank, .size = config.size};
}

std::optional<Launch> by_pmix(const Variables& environment) {
  const auto rank = number_of(environment, "PMIX_RANK", 0);
  const std::string job = text_of(environment, "PMIX_NAMESPACE");
  if (!rank || job.empty()) {
    return std::nullopt;
  }
  Launch launch{.by = "PMIx", .rank = *rank, .rendezvous = "pmix://" + job, .job = job};
  // Open MPI says the size in its own variable. Other launchers do not, and PMIx itself is asked
  // later.
  launch.size = number_of(environment, "OMPI_COMM_WORLD_SIZE", 1).value_or(-1);
  require(launch.size < 0 || launch.rank < launch.size, "PMIX_RANK is ", launch.rank,
          ", OMPI_COMM_WORLD_SIZE is ", launch.size, "; the rank must be below the size");
  return launch;
}

std::optional<Launch> by_torchrun(const Variables& environment) {
  const auto rank = number_of(environment, "RANK", 0);
  const auto size = number_of(environment, "WORLD_SIZE", 1);
  if (!rank || !size) {
    return std::nullopt;
  }
  require(*rank < *size, "RANK is ", *rank, ", WORLD_SIZE is ", *size,
          "; the rank must be below the size");
  Launch launch{.by = "torchrun", .rank = *rank, .size = *size};
  const std::string host = text_of(environment, "MASTER_ADDR");
  const auto port = number_of(environment, "MASTER_PORT", 1);
  if (host.empty() || !port) {
    return launch;
  }
  launch.job = text_of(environment, "TORCHELASTIC_RUN_ID");
  // The variable TORCHELASTIC_RUN_ID shows that an agent runs, which listens on MASTER_PORT itself.
  const int agent = launch.job.empty() ? 0 : 1;
  launch.ports = torchrun_ports - agent;
  const bool bare_ipv6 = host.find(':') != host.npos && !host.starts_with('[');
  launch.rendezvous = bare_ipv6 ? text("tcp://[", host, "]:", *port + agent)
                                : text("tcp://", host, ":", *port + agent);
  return launch;
}

/// srun without a PMIx server tells its tasks nothing that Sprat reads. Each would become a job of
/// one rank, and all would do the same work beside each other.
void refuse_srun_without_pmix(const Variables& environment) {
  const auto tasks = number_of(environment, "SLURM_STEP_NUM_TASKS", 1);
  const auto task = number_of(environment, "SLURM_PROCID", 0);
  require(!tasks || !task || *tasks == 1, "srun started this process as task ", task.value_or(0),
          " of ", tasks.value_or(0),
          " and tells Sprat nothing; launch with srun --mpi=pmix, or set SPRAT_RANK=0 SPRAT_SIZE=1 "
          "if every "
          "task is a job of its own");
}

}  // namespace

Launch detect_launch(const Config& config, const Variables& environment) {
  std::optional<Launch> launch = by_ourselves(config);
  if (!launch) {
    launch = by_pmix(environment);
  }
  if (!launch) {
    launch = by_torchrun(environment);
  }
  if (!launch) {
    refuse_srun_without_pmix(environment);
    launch = Launch{.by = "alone"};
  }
  if (!config.rendezvous.empty()) {
    require(launch->by != "alone", "SPRAT_RENDEZVOUS is \"", config.rendezvous,
            "\", but no launcher says this process's rank; set SPRAT_RANK and SPRAT_SIZE");
    require(launch->size > 0, "SPRAT_RENDEZVOUS is \"", config.rendezvous,
            "\", but the launcher's environment does not say how many ranks there are; set "
            "SPRAT_RANK and SPRAT_SIZE, or leave the rendezvous to PMIx");
    // An address that the user gives is meant exactly: one port, and no job of the launcher's.
    launch->rendezvous = config.rendezvous;
    launch->ports = 1;
    launch->job.clear();
  }
  if (launch->size == 1) {
    launch->rendezvous.clear();
  }
  require(launch->size == 1 || !launch->rendezvous.empty(), "RANK is ", launch->rank,
          " and WORLD_SIZE is ", launch->size,
          "; set MASTER_ADDR and MASTER_PORT too, or SPRAT_RENDEZVOUS");
  return *launch;
}

}  // namespace sprat::comm
