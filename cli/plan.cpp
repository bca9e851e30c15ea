// `sprat plan`: what a training run needs, before anything is ordered.
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/plan/storage.hpp"

namespace sprat::cli {
namespace {

Action prepare_plan(CLI::App& app) {
  app.require_subcommand(1);  // a group: what else runs need has its place here
  CLI::App* storage = app.add_subcommand("storage", "Which file system feeds the training");
  const Action plan_storage = prepare_plan_storage(*storage);
  return [storage, plan_storage] { return storage->parsed() ? plan_storage() : 2; };
}

}  // namespace

extern const Command plan_command;
const Command plan_command = {
    "plan",
    "What a training run needs of storage",
    R"(sprat plan storage: the rate that files must come at so that computing never waits, in the first epoch and in
later ones, and which file systems give it. Rates are MB/s of 1e6 bytes; the table is Amazon FSx for Lustre's, as its
user guide has it, and nothing is asked of AWS. Caches of clients and the memory of the file servers are told apart:
the first cost no network, the second only disks.

Examples:
  sprat plan storage --dataset 100GB --epoch 30s --hosts 4
  sprat plan storage --dataset 100GB --epoch 30s --hosts 4 --fsx SCRATCH_2:200:12000
  sprat plan storage --dataset 100GB --epoch 30s --hosts 4 --cache 28GB       28 GB of page cache on each host
  sprat plan storage --dataset 150GB --epoch 5min --files 1281167 --json      one file an image
)",
    prepare_plan,
};

}  // namespace sprat::cli
