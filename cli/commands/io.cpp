// `sprat io`: what datasets hold, and how fast they are read. The table of its commands.
#include <CLI/CLI.hpp>
#include <array>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/io/bench.hpp"
#include "cli/io/cache.hpp"
#include "cli/io/convert.hpp"
#include "cli/io/diagnose.hpp"
#include "cli/io/io_command.hpp"
#include "cli/io/layout.hpp"
#include "cli/plan/storage.hpp"

namespace sprat::cli {

extern const IoCommand io_index_command;

namespace {

constexpr IoCommand io_diagnose_command = {
    "diagnose", "Say what limited a run, from what its loaders reported",
    R"(REPORT is a file of lines that a loader's report() gave, one file a rank. When what limited each rank, what would
lift it, and the rules of SageMaker Debugger over the whole run.

Examples:
  sprat io diagnose report.0.jsonl report.1.jsonl
  sprat io diagnose report.*.jsonl --json
)",
    prepare_io_diagnose};
constexpr IoCommand io_layout_command = {
    "layout", "Show on which storage targets files lie, on Lustre",
    R"(Which targets hold a file's stripes, and whether its data are there or in S3 alone.

Examples:
  sprat io layout /fsx/train/*.tar
  sprat io layout /fsx/train/a.bin --json
)",
    prepare_io_layout};

constexpr IoCommand io_cache_command = {"cache", io_cache_summary, io_cache_lesson,
                                        prepare_io_cache};
constexpr IoCommand io_bench_command = {"bench", io_bench_summary, io_bench_lesson,
                                        prepare_io_bench};
constexpr IoCommand io_convert_command = {"convert", io_convert_summary, io_convert_lesson,
                                          prepare_io_convert};
// What runs need is asked of `sprat plan`; whoever looks for files looks here.
constexpr IoCommand io_plan_command = {"plan", "The same as sprat plan storage",
                                       "`sprat help plan` has examples.\n", prepare_plan_storage};

constexpr std::array io_commands = {&io_index_command, &io_diagnose_command, &io_layout_command,
                                    &io_cache_command, &io_bench_command,    &io_convert_command,
                                    &io_plan_command};

Action prepare_io(CLI::App& app) {
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Action>> entries;
  for (const IoCommand* command : io_commands) {
    CLI::App* const sub = app.add_subcommand(command->name, command->summary);
    sub->footer(command->lesson);
    entries.emplace_back(sub, command->prepare(*sub));
  }
  return [entries] {
    for (const auto& [sub, action] : entries) {
      if (sub->parsed()) {
        return action();
      }
    }
    return 2;
  };
}

}  // namespace

extern const Command io_command;
const Command io_command = {
    "io",
    "Index datasets, show where files lie and how fast they are read, say what limited a run",
    R"(A dataset is files of one format: text, tokens, tar, TFRecord and others. Its index says where each record
lies, so that any can be read alone, in any order.

Examples:
  sprat io index train/                     what is in these files, and where?
  sprat io index 'train/*.tar' --check      is it still as it was indexed?
  sprat io layout /fsx/train/*.tar          on which storage targets are they?
  sprat io bench 'train/*.tar' --batch 256  how fast are they read here, and what limits?
  sprat io convert train/ --to train-mds    rows of Parquet as records that can be read alone
  sprat io diagnose report.*.jsonl          what limited a run?
  sprat io plan --dataset 100GB --epoch 30s --hosts 4     which file system feeds it? As sprat plan storage.
`sprat io index --help` and so on say more.
)",
    prepare_io,
};

}  // namespace sprat::cli
