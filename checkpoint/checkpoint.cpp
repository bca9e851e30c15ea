// The public face of checkpoints: a model's engine on one side, saver and loader on the other.
#include "sprat/checkpoint.hpp"

#include <span>
#include <utility>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/exporter.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/loader.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "checkpoint/whole_model.hpp"
#include "comm/base/check.hpp"
#include "fsdp/engine.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat {
namespace {

/// What people want to know of the run that saved; nothing is read back from it.
std::map<std::string, std::string> config_of(fsdp::Engine& engine, int ranks,
                                             const fsdp::WholeModel& model) {
  const FsdpOptions& options = engine.options();
  const fsdp::Sharding& sharding = engine.sharding();
  std::map<std::string, std::string> config = {
      {"ranks", text(ranks)},
      {"strategy", sharding.strategy->name},
      {"hybrid_shard_degree", text(sharding.shards)},
      {"optimizer", options.optimizer.name},
      {"parameter_dtype", name(options.parameter_dtype)},
      {"gradient_wire", name(options.gradient_wire)},
      {"micro_steps", text(options.micro_steps)},
      {"persistence_threshold", text(options.persistence_threshold)}};
  if (model.stages() > 1) {
    config["pipeline_parallel_degree"] = text(model.stages());
  }
  if (model.tensor_parts() > 1) {
    config["tensor_parallel_degree"] = text(model.tensor_parts());
  }
  return config;
}

TrainingState state_of(const fsdp::Manifest& manifest) {
  return {.step = manifest.step, .samples = manifest.samples, .notes = manifest.notes};
}

/// Of a model that the ranks of its own communicator have whole.
fsdp::WholeModel whole_model(ShardedModel& model) {
  return fsdp::WholeModel(model.engine().held());
}
/// Collective over `world`: of parts that together are the model.
fsdp::WholeModel whole_model(Communicator& world, ShardedModel& part) {
  return {world, part.engine().world(), part.engine().held()};
}

TrainingState load_everything(Communicator& world, fsdp::Engine& engine,
                              const fsdp::WholeModel& model, const std::string& path) {
  const fsdp::Manifest manifest =
      fsdp::load(world, model.state(), path, fsdp::LoadWhat::everything);
  engine.restore(manifest.counters);
  return state_of(manifest);
}

TrainingState load_values(Communicator& world, fsdp::Engine& engine, const fsdp::WholeModel& model,
                          const std::string& path) {
  const fsdp::Manifest manifest =
      fsdp::load(world, model.state(), path, fsdp::LoadWhat::parameters);
  engine.restore(engine.counters());
  return state_of(manifest);
}

void check_single_file(CheckpointForm form) {
  require(form != CheckpointForm::sprat,
          "a model is exported as one file; CheckpointWriter saves "
          "it in the form sprat");
}

}  // namespace

struct CheckpointWriter::Impl {
  fsdp::Engine& engine;
  Communicator& world;
  fsdp::WholeModel model;
  fsdp::Saver saver;

  Impl(fsdp::Engine& of, Communicator& ranks, fsdp::WholeModel whole, CheckpointOptions options)
      : engine(of),
        world(ranks),
        model(std::move(whole)),
        saver(world, model.state(),
              {.folder = std::move(options.folder),
               .keep_last = options.keep_last,
               .asynchronous = options.asynchronous,
               .hook = {}}) {}

  fsdp::Manifest manifest(const TrainingState& state) const {
    return {.step = state.step,
            .samples = state.samples,
            .counters = engine.counters(),
            .notes = state.notes,
            .config = config_of(engine, world.size(), model),
            .contents = {}};
  }
};

CheckpointWriter::CheckpointWriter(ShardedModel& model, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(model.engine(), model.engine().world(), whole_model(model),
                                   std::move(options))) {}
CheckpointWriter::CheckpointWriter(Communicator& world, ShardedModel& part,
                                   CheckpointOptions options)
    : impl_(std::make_unique<Impl>(part.engine(), world, whole_model(world, part),
                                   std::move(options))) {}
CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::prepare() { impl_->saver.prepare(); }

void CheckpointWriter::save(const TrainingState& state) {
  impl_->saver.save(impl_->manifest(state));
}

void CheckpointWriter::save_beside(const TrainingState& state) {
  impl_->saver.save_beside(impl_->manifest(state));
}

void CheckpointWriter::poll() { impl_->saver.poll(); }
void CheckpointWriter::wait() { impl_->saver.wait(); }

std::optional<std::string> latest_checkpoint(const std::string& folder) {
  return fsdp::latest_in(folder);
}

std::optional<std::string> latest_checkpoint(Communicator& world, const std::string& folder) {
  std::string found;  // empty: none
  fsdp::agree(world, fsdp::outcome_of([&] {
                if (world.rank() == 0) {
                  found = fsdp::latest_in(folder).value_or("");
                }
              }));
  found = fsdp::text_of(world, found, 0);
  return found.empty() ? std::nullopt : std::optional(found);
}

TrainingState load_checkpoint(ShardedModel& model, const std::string& path) {
  return load_everything(model.engine().world(), model.engine(), whole_model(model), path);
}
TrainingState load_checkpoint(Communicator& world, ShardedModel& part, const std::string& path) {
  return load_everything(world, part.engine(), whole_model(world, part), path);
}

TrainingState load_parameters(ShardedModel& model, const std::string& path) {
  return load_values(model.engine().world(), model.engine(), whole_model(model), path);
}
TrainingState load_parameters(Communicator& world, ShardedModel& part, const std::string& path) {
  return load_values(world, part.engine(), whole_model(world, part), path);
}

CheckpointInfo describe_checkpoint(const std::string& path) {
  const fsdp::Opened opened = fsdp::open_any(path);
  CheckpointInfo info{.path = opened.path,
                      .checked = opened.checked,
                      .state = state_of(opened.manifest),
                      .counters = opened.manifest.counters,
                      .config = opened.manifest.config,
                      .tensors = {},
                      .files = {}};
  for (const fsdp::StoredTensor& tensor : opened.manifest.contents.tensors) {
    const std::uint64_t bits = *io::safetensors_bits(tensor.dtype);
    info.tensors.push_back({.name = tensor.name,
                            .dtype = tensor.dtype,
                            .shape = tensor.shape,
                            .bytes = tensor.elements() * bits / 8});
  }
  for (const fsdp::StoredFile& file : opened.manifest.contents.files) {
    info.files.push_back({.name = file.name, .bytes = file.record.bytes});
  }
  return info;
}

std::vector<std::string> verify_checkpoint(const std::string& path) { return fsdp::verify(path); }

void convert_checkpoint(const std::string& from, const std::string& to, CheckpointForm form) {
  fsdp::convert(from, to, form);
}

void export_parameters(ShardedModel& model, const std::string& path, CheckpointForm form) {
  check_single_file(form);
  fsdp::export_parameters(model.engine().world(), whole_model(model).state(),
                          {.path = path, .form = form});
}
void export_parameters(Communicator& world, ShardedModel& part, const std::string& path,
                       CheckpointForm form) {
  check_single_file(form);
  fsdp::export_parameters(world, whole_model(world, part).state(), {.path = path, .form = form});
}

}  // namespace sprat
