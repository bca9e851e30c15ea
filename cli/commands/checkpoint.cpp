// `sprat checkpoint`: what a checkpoint holds, whether it is whole, and other forms of it.
#include "sprat/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/format.hpp"
#include "cli/command.hpp"
#include "cli/tree.hpp"

namespace sprat::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CheckpointArguments {
  std::string path, to, form = "single", old_form;
  bool as_json = false;
};

bool is_state(const CheckpointTensor& tensor) { return tensor.name.starts_with("optimizer."); }

/// Elements and bytes of parameters, or of optimizer state.
struct Total {
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
};
Total total_of(const CheckpointInfo& info, bool state) {
  Total total;
  for (const CheckpointTensor& tensor : info.tensors) {
    if (is_state(tensor) == state) {
      std::uint64_t elements = 1;
      for (const std::int64_t extent : tensor.shape) {
        elements *= static_cast<std::uint64_t>(extent);
      }
      ++total.tensors;
      total.elements += elements;
      total.bytes += tensor.bytes;
    }
  }
  return total;
}

Json to_json(const CheckpointInfo& info) {
  Json json = {{"path", info.path},         {"checked", info.checked},
               {"step", info.state.step},   {"samples", info.state.samples},
               {"counters", info.counters}, {"notes", info.state.notes},
               {"config", info.config},     {"tensors", Json::object()},
               {"files", Json::array()}};
  for (const CheckpointTensor& tensor : info.tensors) {
    json["tensors"][tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.bytes}};
  }
  for (const CheckpointFile& file : info.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  return json;
}

template <class Map>
void print_map(const char* title, const Map& values) {
  const char* separator = " ";
  for (const auto& [key, value] : values) {
    if (separator[0] == ' ') {
      fmt::print("{:<10}", title);
    }
    fmt::print("{}{} {}", separator, key, value);
    separator = ", ";
  }
  if (!values.empty()) {
    fmt::print("\n");
  }
}

int inspect(const CheckpointArguments& request) {
  const CheckpointInfo info = describe_checkpoint(request.path);
  if (request.as_json) {
    fmt::print("{}\n", to_json(info).dump(2));
    return 0;
  }
  const Total parameters = total_of(info, false), state = total_of(info, true);
  fmt::print("{}\n", info.path);
  if (info.checked) {
    fmt::print("step       {}, after {} samples\n", info.state.step, info.state.samples);
    print_map("config", info.config);
    print_map("counters", info.counters);
    print_map("notes", info.state.notes);
  } else {
    fmt::print("no manifest: tensors alone, without checksums\n");
  }
  fmt::print("parameters {} in {} tensors, {}\noptimizer  {} tensors, {}\nfiles      {}\n\n",
             parameters.elements, parameters.tensors, readable_bytes(parameters.bytes),
             state.tensors, readable_bytes(state.bytes), info.files.size());
  std::size_t width = 6;
  for (const CheckpointTensor& tensor : info.tensors) {
    width = is_state(tensor) ? width : std::max(width, tensor.name.size());
  }
  fmt::print("{:<{}}  {:<5} {:>10}  {}\n", "tensor", width, "dtype", "size", "shape");
  for (const CheckpointTensor& tensor : info.tensors) {
    if (!is_state(tensor)) {
      fmt::print("{:<{}}  {:<5} {:>10}  [{}]\n", tensor.name, width, tensor.dtype,
                 readable_bytes(tensor.bytes), fmt::join(tensor.shape, ", "));
    }
  }
  return 0;
}

int verify(const CheckpointArguments& request) {
  const std::vector<std::string> complaints = verify_checkpoint(request.path);
  for (const std::string& complaint : complaints) {
    fmt::print("{}\n", complaint);
  }
  if (!complaints.empty()) {
    return 1;
  }
  const CheckpointInfo info = describe_checkpoint(request.path);
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : info.files) {
    bytes += file.bytes;
  }
  fmt::print("{} is whole: step {}, {} files, {}\n", info.path, info.state.step, info.files.size(),
             readable_bytes(bytes));
  return 0;
}

/// "a, b and c"
std::string listed(const std::vector<std::string>& names) {
  const std::size_t last = names.size() - 1;
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names[last]);
}

int convert(const CheckpointArguments& request) {
  if (!request.old_form.empty()) {
    throw UsageError(fmt::format("--to {0} is said --form {0}", request.old_form));
  }
  std::vector<std::string> names;
  for (const fsdp::CheckpointFormat* format : fsdp::all_checkpoint_formats()) {
    if (request.form == format->name) {  // rows stand in the order of the enumeration
      convert_checkpoint(request.path, request.to, static_cast<CheckpointForm>(names.size()));
      fmt::print("wrote {}\n", request.to);
      return 0;
    }
    names.emplace_back(format->name);
  }
  throw UsageError(fmt::format("no form \"{}\"; there are {}", request.form, listed(names)));
}

std::string forms_help() {
  std::string lines;
  for (const fsdp::CheckpointFormat* format : fsdp::all_checkpoint_formats()) {
    lines += fmt::format("  {:<9} {}\n", format->name, format->about);
  }
  return lines;
}

Action prepare_checkpoint(CLI::App& app) {
  auto request = std::make_shared<CheckpointArguments>();
  app.require_subcommand(1);
  constexpr const char* where = "A checkpoint, a folder of them (the latest), or safetensors";
  CLI::App* inspecting = app.add_subcommand("inspect", "Say what it holds: step, config, tensors");
  inspecting->add_option("PATH", request->path, where)->required();
  inspecting->add_flag("--json", request->as_json, "As JSON, with the tensors of optimizer state");
  CLI::App* verifying =
      app.add_subcommand("verify", "Read every block of every file and hold it to its checksum");
  verifying->add_option("PATH", request->path, "A checkpoint, or a folder of them (the latest)")
      ->required();
  verifying->footer(
      "Exit status 1, and a line for each file and block that is damaged or missing.\n");
  CLI::App* converting = app.add_subcommand("convert", "Write its parameters in another form");
  converting->add_option("FROM", request->path, where)->required();
  converting->add_option("TO", request->to, "A file or folder to write")->required();
  converting->add_option("--form", request->form, "One of those below")->capture_default_str();
  // The old spelling of --form: not listed, and refused with the new one.
  converting->add_option("--to", request->old_form)->group("");
  converting->footer("Forms:\n" + forms_help() +
                     R"(Nothing that is there is replaced, and nothing is written into a checkpoint.
Files of Hugging Face's GPT-2 are known by their names and shapes, and may be f32, f16 or bf16. One tensor is in
memory at a time.
)");
  return [=] {
    if (inspecting->parsed()) {
      return inspect(*request);
    }
    return verifying->parsed() ? verify(*request) : convert(*request);
  };
}

}  // namespace

extern const Command checkpoint_command;
const Command checkpoint_command = {
    "checkpoint",
    "Look into checkpoints, verify them, and convert them",
    R"(A checkpoint is a folder step-N of safetensors files with manifest.json, which holds the checksums of
all of them. Any number of ranks and any strategy load it. It needs no job to look at it:

Examples:
  sprat checkpoint inspect checkpoints                     the latest one: step, config, tensors
  sprat checkpoint verify checkpoints/step-00001000        is every byte as it was written?
  sprat checkpoint convert checkpoints model.safetensors   the parameters, in one file
  sprat checkpoint convert checkpoints gpt2/ --form hf-gpt2  for Hugging Face's GPT2LMHeadModel
  sprat checkpoint convert gpt2/model.safetensors start --form sprat    and the way back
`sprat checkpoint convert --help` says more about forms.
)",
    prepare_checkpoint,
};

}  // namespace sprat::cli
