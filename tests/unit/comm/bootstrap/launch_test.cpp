// Who launched us: what the environment says, and what wins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/coordinator/rendezvous.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

using Variables = std::map<std::string, std::string>;

Launch detect(const Variables& variables, const Config& config = {}) {
  return detect_launch(config, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Config explicit_config(int rank, int size, std::string rendezvous) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.rendezvous = std::move(rendezvous);
  return config;
}

const Variables torch = {{"RANK", "2"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"}};
const Variables mpirun = {{"PMIX_RANK", "3"},
                          {"PMIX_NAMESPACE", "1234"},
                          {"OMPI_COMM_WORLD_SIZE", "8"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}};

const Variables slurm = {
    {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

struct Case {
  const char* name;
  Variables variables;
  Config config;
  Launch launch;
};

const Case cases[] = {
    {"alone", {}, {}, {.by = "alone"}},
    {"by hand, with torchrun's variables",
     torch,
     {},
     {"torchrun", 2, 4, "tcp://10.0.0.1:29500", 16, ""}},
    {"torchrun, whose agent has the port",
     with(torch, {{"TORCHELASTIC_RUN_ID", "job7"}}),
     {},
     {"torchrun", 2, 4, "tcp://10.0.0.1:29501", 15, "job7"}},
    {"an IPv6 address",
     with(torch, {{"MASTER_ADDR", "fd00::1"}}),
     {},
     {"torchrun", 2, 4, "tcp://[fd00::1]:29500", 16, ""}},
    {"torchrun of one rank", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {}, {.by = "torchrun"}},
    {"Open MPI", mpirun, {}, {"PMIx", 3, 8, "pmix://1234", 1, "1234"}},
    {"another PMIx launcher",
     {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "a.b"}},
     {},
     {"PMIx", 3, -1, "pmix://a.b", 1, "a.b"}},
    {"PMIx before torchrun", with(torch, mpirun), {}, {"PMIx", 3, 8, "pmix://1234", 1, "1234"}},
    {"what is said before PMIx",
     mpirun,
     explicit_config(1, 2, "tcp://h:1"),
     {"SPRAT_*", 1, 2, "tcp://h:1", 1, ""}},
    {"only the rendezvous said",
     with(torch, {{"TORCHELASTIC_RUN_ID", "job7"}}),
     explicit_config(-1, -1, "file:///x"),
     {"torchrun", 2, 4, "file:///x", 1, ""}},
    {"srun with PMIx", with(mpirun, slurm), {}, {"PMIx", 3, 8, "pmix://1234", 1, "1234"}},
    {"a job of one rank in each task of srun", slurm, explicit_config(0, 1, ""), {.by = "SPRAT_*"}},
    {"srun of one task", with(slurm, {{"SLURM_STEP_NUM_TASKS", "1"}}), {}, {.by = "alone"}},
    {"a batch script, before any srun",
     {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
     {},
     {.by = "alone"}},
    {"one rank said", {}, explicit_config(0, 1, ""), {.by = "SPRAT_*"}},
    {"half of torchrun's variables, of something else", {{"RANK", "3"}}, {}, {.by = "alone"}},
};

TEST(Launch, is_told_from_the_environment) {
  for (const Case& one : cases) {
    const Launch launch = detect(one.variables, one.config);
    EXPECT_EQ(launch.by, one.launch.by) << one.name;
    EXPECT_EQ(launch.rank, one.launch.rank) << one.name;
    EXPECT_EQ(launch.size, one.launch.size) << one.name;
    EXPECT_EQ(launch.rendezvous, one.launch.rendezvous) << one.name;
    EXPECT_EQ(launch.ports, one.launch.ports) << one.name;
    EXPECT_EQ(launch.job, one.launch.job) << one.name;
  }
}

TEST(Launch, is_refused_where_something_is_missing_or_wrong) {
  const struct {
    Variables variables;
    Config config;
    const char* names;
  } bad[] = {
      {{}, explicit_config(0, -1, "tcp://h:1"), "SPRAT_SIZE"},
      {{}, explicit_config(-1, 2, "tcp://h:1"), "SPRAT_RANK"},
      {{}, explicit_config(-7, -3, ""), "SPRAT_RANK is -7, SPRAT_SIZE is -3"},
      {{}, explicit_config(0, 2, ""), "SPRAT_RENDEZVOUS"},
      {{}, explicit_config(2, 2, "tcp://h:1"), "SPRAT_RANK is 2"},
      {{}, explicit_config(-1, -1, "tcp://h:1"), "SPRAT_RANK"},
      {with(torch, {{"RANK", "x"}}), {}, "RANK is \"x\""},
      {with(torch, {{"RANK", "4"}}), {}, "WORLD_SIZE"},
      {with(torch, {{"WORLD_SIZE", "0"}}), {}, "WORLD_SIZE"},
      {with(torch, {{"MASTER_PORT", "http"}}), {}, "MASTER_PORT"},
      {with(torch, {{"MASTER_ADDR", ""}}), {}, "MASTER_ADDR"},
      {with(mpirun, {{"PMIX_RANK", "-1"}}), {}, "PMIX_RANK"},
      {slurm, {}, "srun --mpi=pmix"},
      {{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "a"}},
       explicit_config(-1, -1, "tcp://h:1"),
       "SPRAT_SIZE"},
  };
  for (const auto& one : bad) {
    try {
      detect(one.variables, one.config);
      ADD_FAILURE() << "taken, though " << one.names;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(one.names));
    }
  }
}

}  // namespace
}  // namespace sprat::comm
