// A checkpoint of the parameters alone, in one file with a manifest.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/folder.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "comm/base/check.hpp"
#include "io/durable.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

void write_checkpoint(Manifest manifest, const CopyPlan& plan, const std::string& path) {
  const std::string to = folder_name(path);
  require(!fs::exists(to), to, " is already there; convert into a new folder");
  check_place(to);
  const Contents from = std::exchange(manifest.contents, {});
  const std::vector<io::SafeTensor> tensors = described(plan);
  nlohmann::json offsets = nlohmann::json::object();
  for (const io::SafeTensor& tensor : tensors) {
    offsets[tensor.name] = {{"saved_offsets", std::vector<int>(tensor.shape.size(), 0)}};
  }
  const std::string header = io::write_safetensors_header(
      tensors, {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", offsets.dump()}});
  for (const io::SafeTensor& tensor : tensors) {
    StoredTensor stored{.name = tensor.name, .dtype = "F32", .shape = {}, .boxes = {}};
    stored.shape.assign(tensor.shape.begin(), tensor.shape.end());
    stored.boxes = {
        {.file = 0, .begin = header.size() + tensor.begin, .box = whole_box(stored.shape)}};
    manifest.contents.tensors.push_back(std::move(stored));
  }
  const std::string name = "shard-00001-model-00001-of-00001.safetensors";
  const std::string temporary = unfinished_name(to);
  io::make_folder(temporary, {});
  try {
    manifest.contents.files = {
        {.name = name, .record = write_tensors(temporary + "/" + name, header, from, plan)}};
    io::write_file(temporary + "/" + manifest_name, write_manifest(manifest), {});
    io::sync_folder(temporary, {});
    io::rename_over(temporary, to, {});
    io::sync_folder(parent_of(to), {});
  } catch (...) {
    io::remove_all(temporary, {});
    throw;
  }
}

}  // namespace

extern const CheckpointFormat sprat_format;
const CheckpointFormat sprat_format = {
    .name = "sprat",
    .about = "a checkpoint of the parameters alone, in a new folder, to start training from",
    .write = write_checkpoint};

}  // namespace sprat::fsdp
