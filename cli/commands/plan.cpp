// `sprat plan`: what a training run needs, before anything is ordered.
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/plan/storage.hpp"
#include "cli/plan/training.hpp"

namespace sprat::cli {
namespace {

Action prepare_plan(CLI::App& app) {
  const Action plan_training = prepare_plan_training(app);
  CLI::App* storage = app.add_subcommand("storage", "Which file system feeds the training");
  const Action plan_storage = prepare_plan_storage(*storage);
  return [storage, plan_storage, plan_training] {
    return storage->parsed() ? plan_storage() : plan_training();
  };
}

}  // namespace

extern const Command plan_command;
const Command plan_command = {
    "plan",
    "Which degrees, how much memory, how fast; what it needs of storage",
    R"(sprat plan: how to spread a model over machines, before any of them is ordered. It tries every
arrangement that the rules allow: tensor (T), pipeline (P), shard (S) and context (C) degrees, R
replicas, rows of the table of strategies, recomputation, offload, micro-batches. Memory and time
come from the planners and simulators of a run itself; the table says what was assumed.

Degrees are told in the order in which SMP's documents advise them. Of plans that take as long the one
with less technique is told first, then what is next best and every other within 5 %.

A model is a config.json of Hugging Face's (GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3, Mixtral;
others by these keys, which the table says), a configuration of sprat train, numbers (layers, width,
heads, vocabulary, inner, kv_heads, head_width, positions, gated, tied, experts, experts_used), or one
of gpt-10b gpt-30b gpt-60b gpt-175b llama2-7b llama2-70b. A machine is one of p3dn p4d p4de p5 p5e
p5en p6-b200 g5 trn1 trn1n c5n, with or without its size, or an hwloc file that ends in .xml; then
changes as in sprat simulate: p4d,rails=2.

--calibration takes what was measured on your machines, a JSON object a line: rows of
`sprat bench --json`, and {"gemm_flops": 1.5e14, "memory_GBps": 600, "host_link_GBps": 12,
"memory_GiB": 37, "loader_MBps": 3000, "layer_overhead_us": 20}.

Exit code 1: nothing fits, and the table says what holds least; 2: what was asked makes no sense.

Examples:
  sprat plan --model gpt-30b --machine p4d.24xlarge --hosts 16 --batch-tokens 4M --sequence 2048
  sprat plan --model config.json --machine p5.48xlarge --hosts 8 --svg memory.svg --smp smp.json
  sprat plan --model layers=24,width=2048,heads=16,vocabulary=50257 --hosts 2 --json train.json
  sprat plan --model gpt-60b --hosts 32 --tensor 8 --pipeline 2      what these degrees would give

sprat plan storage: the rate that files must come at so that computing never waits, in the first epoch and in
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
