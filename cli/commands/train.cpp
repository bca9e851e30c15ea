// `sprat train CONFIG.json`: trains a GPT over the ranks of the job.
#include "train/train.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.hpp"
#include "cli/job.hpp"
#include "cli/launcher.hpp"
#include "cli/progress/live_line.hpp"
#include "cli/progress/training_line.hpp"
#include "cli/whole_number.hpp"

namespace sprat::cli {
namespace {

struct TrainArguments {
  train::TrainRequest train;
  std::string resume, start, trace;
  int virtual_ranks = 0;
};

Action prepare_train(CLI::App& app) {
  auto r = std::make_shared<TrainArguments>();
  app.add_option("CONFIG", r->train.config,
                 "JSON with the sections model, data, train, parallel, checkpoint")
      ->required();
  app.add_option("--steps", r->train.steps, "Stop after so many; the schedule stays the file's")
      ->check(WholeNumber(1));
  app.add_option("--report", r->train.report, "Write one JSON object a step to this file");
  app.add_flag("--quiet", r->train.quiet, "No lines of how far the run is; warnings stay");
  app.add_option("--trace", r->trace, "Write a timeline of all ranks, which Perfetto opens")
      ->type_name("FILE");
  app.add_option("--virtual-ranks", r->virtual_ranks, "Ranks as threads of this process")
      ->check(CLI::Range(1, 4096));
  auto* resume = app.add_option("--resume", r->resume,
                                "Go on from this checkpoint, or the latest; after CONFIG")
                     ->expected(0, 1)
                     ->type_name("[PATH]");
  auto* start = app.add_option("--start", r->start, "Begin with the parameters of this checkpoint");
  return [r, resume, start] {
    if (resume->count() > 0) {
      r->train.resume = r->resume;
    }
    if (start->count() > 0) {
      r->train.start = r->start;
    }
    train::StopRequest stop;
    const LauncherWatch launcher;
    const train::StopSignals signals(stop, launcher.descriptor());  // before any other thread
    r->train.stop = &stop;
    LiveLine line(!r->train.quiet);
    train::RunView view{
        .show = [&](const train::RunStatus& status) { line.show(training_line(status)); },
        .clear = [&] { line.clear(); },
        .replaces_lines = line.stands_below_output()};
    r->train.view = line.draws() ? &view : nullptr;
    return run_in_job(with_trace(Config::from_environment(), r->trace), r->virtual_ranks,
                      [&](Communicator& world) { return train::run(world, r->train); });
  };
}

}  // namespace

extern const Command train_command;
const Command train_command = {
    "train",
    "Train a GPT whose parameters are sharded over the ranks",
    R"(Prints a line every two seconds: loss, tokens per second, communication that compute did not hide, time
to go; at the end the validation loss and a text that the model writes. On a terminal one line, drawn anew, says
how far the run is and what is under way; a file gets the lines. The losses do not depend on
whether ranks are processes or threads, nor on how many share a copy (parallel.hybrid_shard_degree) where
both numbers are powers of two and there is one micro-step or train.accumulate is "local". With
parallel.gradient_order "tree" they do not depend on how many ranks share the micro-steps either.

A model that is too large for a rank is cut into stages by parallel.pipeline_parallel_degree, the batch into
parallel.microbatches: the losses stay the same to the bit. Before step 1 it prints what a rank holds at most.
  "parallel": {"pipeline_parallel_degree": 2, "microbatches": 8, "activation_checkpointing": "each"}
`sprat pipeline` compares schedules, `sprat partition` cuts; docs/training.md tells all keys.

A layer that is too large is cut among parallel.tensor_parallel_degree ranks, best of one host, with the same losses to the bit
where train.gemm is "reference". "optimize": "memory" deals rows to these ranks too, "speed" sends less.

A sequence that is too long is cut among parallel.context_parallel_degree ranks, which divides parallel.hybrid_shard_degree. Keys and
values go from rank to rank, or with "cp_comm_type": "all_gather" to all at once; losses stay the same except for rounding.

Ranks = T x P x D, and D = S x R; C ranks of S may share sequences. Bytes on a rank and bytes that it sends in a step, of f32 with
AdamW: M parameters on a rank's stages and parts of layers, m micro-batches of n tokens, width w; k is m, or 1 with
train.accumulate "local".
)"
#define SPRAT_DEGREE(letter, key, rule, memory, sent) \
  "  " letter "  " key ": " rule "\n     holds " memory "\n     sends " sent "\n"
#include "train/degrees.def"
    R"(
Tokens are bytes, or those of a tokenizer.json of Hugging Face's, of GPT-2's kind:
  "data": {"files": ["text.txt"], "tokenizer": "tokenizer.json"}

Files of tokens (nanoGPT's, llm.c's, Megatron's) are read while the run trains:
  "data": {"sources": [{"paths": ["train/*.bin"], "token_type": "u16"}], "validation": {"sources": [{"paths": ["val.bin"], ...}]}}
Progress then says how long data was waited for, and above 5 % what limits it.

Ranks compare configuration, text and options first; if they differ, all end and say in what and where.

With checkpoint.folder in the configuration the run is saved every checkpoint.every steps and at its end.
At SIGTERM or Ctrl-C, or when the launcher ends, all ranks finish the step, save and end with status 143; --resume goes on from there
with the same bits, as if nothing had been.

Examples:
  mpirun -np 4 sprat train examples/gpt-jargon.json
  mpirun -np 4 sprat train examples/gpt-jargon.json --steps 50 --report steps.jsonl
  mpirun -np 4 sprat train examples/gpt-jargon.json --steps 20 --trace t.json      then: sprat trace summary t.json
  mpirun -np 4 sprat train saved.json --resume    from the latest in its checkpoint.folder, if any
  mpirun -np 4 sprat train tune.json --start saved/latest       with the parameters of another run
  sprat train examples/gpt-jargon.json --virtual-ranks 4        without a launcher
More ranks than cores need mpirun's --oversubscribe.
)",
    prepare_train,
};

}  // namespace sprat::cli
