// `sprat train CONFIG.json`: trains a GPT over the ranks of the job.
#include "train/train.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.hpp"
#include "cli/job.hpp"

namespace sprat::cli {
namespace {

struct Request {
  train::TrainRequest train;
  int virtual_ranks = 0;
};

Action prepare(CLI::App& app) {
  auto r = std::make_shared<Request>();
  app.add_option("CONFIG", r->train.config, "JSON with the sections model, data, train, parallel")
      ->required();
  app.add_option("--steps", r->train.steps, "Stop after so many; the schedule stays the file's")
      ->check(CLI::PositiveNumber);
  app.add_option("--report", r->train.report, "Write one JSON object a step to this file");
  app.add_option("--virtual-ranks", r->virtual_ranks, "Ranks as threads of this process")
      ->check(CLI::Range(1, 4096));
  return [r] {
    return run_in_job(Config::from_environment(), r->virtual_ranks,
                      [&](Communicator& world) { return train::run(world, r->train); });
  };
}

}  // namespace

extern const Command train_command;
const Command train_command = {
    "train",
    "Train a GPT whose parameters are sharded over the ranks",
    R"(Prints a line a step: loss, tokens per second, communication that compute did not hide, time to go;
at the end the validation loss and a text that the model writes. The losses do not depend on the number
of ranks that share a copy (parallel.hybrid_shard_degree), nor on whether ranks are processes or threads.

Examples:
  mpirun -np 4 sprat train examples/gpt-jargon.json
  mpirun -np 4 sprat train examples/gpt-jargon.json --steps 50 --report steps.jsonl
  sprat train examples/gpt-jargon.json --virtual-ranks 4        without a launcher
)",
    prepare,
};

}  // namespace sprat::cli
