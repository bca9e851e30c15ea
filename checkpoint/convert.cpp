#include "checkpoint/convert.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "checkpoint/folder.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "comm/base/check.hpp"
#include "io/durable.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t piece_elements = std::uint64_t{1} << 20;

std::vector<std::int64_t> shape_of(const CopiedTensor& copy) {
  std::vector<std::int64_t> shape = copy.from->shape;
  if (copy.transposed) {
    std::swap(shape[0], shape[1]);
  }
  return shape;
}

/// Calls `visit` with the values of a tensor, piece by piece.
template <class Visit>
void each_piece(TensorReader& reader, const StoredTensor& tensor, Visit visit) {
  std::vector<float> piece;
  for (std::uint64_t first = 0; first < tensor.elements(); first += piece.size()) {
    piece.resize(std::min(piece_elements, tensor.elements() - first));
    reader.read(tensor, first, piece);
    visit(std::span<const float>(piece));
  }
}

/// One whole matrix is in memory at a time.
void write_transposed(TensorReader& reader, const StoredTensor& tensor, io::DurableFile& file) {
  const std::uint64_t rows = tensor.rows(), columns = tensor.row_elements();
  std::vector<float> values(tensor.elements()), column(rows);
  reader.read(tensor, 0, values);
  for (std::uint64_t at = 0; at < columns; ++at) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      column[row] = values[row * columns + at];
    }
    file.write(std::as_bytes(std::span(column)));
  }
}

io::FileRecord write_tensors(const std::string& path, const std::string& header,
                             const Contents& contents, const CopyPlan& plan) {
  TensorReader reader(contents);
  io::DurableFile file(path, {});
  file.write(std::as_bytes(std::span(header)));
  for (const CopiedTensor& copy : plan.tensors) {
    if (copy.transposed) {
      write_transposed(reader, *copy.from, file);
    } else {
      each_piece(reader, *copy.from,
                 [&](std::span<const float> piece) { file.write(std::as_bytes(piece)); });
    }
  }
  return file.finish();
}

/// A head of its own would be lost.
void check_head(const Contents& contents, const CopyPlan& plan) {
  if (plan.head == nullptr) {
    return;
  }
  bool equal = plan.head->shape == plan.embedding->shape;
  TensorReader reader(contents), other(contents);
  std::vector<float> beside;
  std::uint64_t first = 0;
  each_piece(reader, *plan.head, [&](std::span<const float> piece) {
    if (equal) {
      beside.resize(piece.size());
      other.read(*plan.embedding, first, beside);
      equal = std::memcmp(beside.data(), piece.data(), piece.size_bytes()) == 0;
      first += piece.size();
    }
  });
  require(equal, "\"", plan.head->name, "\" is not \"", plan.embedding->name,
          "\", and a head of its own has no place here");
}

std::string parent_of(const std::string& path) { return fs::absolute(path).parent_path(); }

void convert_to_file(const Contents& contents, const CopyPlan& plan, const std::string& to) {
  const bool into_folder = to.ends_with('/') || fs::is_directory(to);
  const std::string path = into_folder ? folder_name(to) + "/model.safetensors" : to;
  check_place(path);
  require(!fs::exists(fs::symlink_status(path)), path,
          " is already there; give another name, or remove it first");
  if (into_folder) {
    make_durable_folder(to, {});
  }
  const std::string temporary = unfinished_name(path);
  const std::string header = io::write_safetensors_header(described(plan), {{"format", "pt"}});
  try {
    write_tensors(temporary, header, contents, plan);
    io::rename_over(temporary, path, {});
    io::sync_folder(parent_of(path), {});
  } catch (...) {
    io::remove_all(temporary, {});
    throw;
  }
}

/// A checkpoint of one file.
void convert_to_checkpoint(Manifest manifest, const CopyPlan& plan, const std::string& to) {
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
    stored.boxes = {{.file = 0, .begin = header.size() + tensor.begin, .rows = stored.rows()}};
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

/// What one file of a checkpoint is found as.
std::vector<std::string> verify_file(const Contents& contents, const StoredFile& file) {
  const std::string path = (fs::path(contents.folder) / file.name).string();
  try {
    std::vector<std::string> complaints;
    for (const std::size_t block : io::CheckedFile(path, file.record).damaged_blocks()) {
      complaints.push_back(fmt::format("{} is damaged: block {} (bytes from {} on)", path, block,
                                       std::uint64_t{block} * io::checked_block_bytes));
    }
    return complaints;
  } catch (const Error& error) {
    return {error.what()};
  }
}

/// Whether files say of themselves what the manifest says of them, and no other files lie there,
/// since other readers go by the files alone.
std::vector<std::string> verify_headers(const Contents& contents) {
  std::vector<std::string> complaints, paths;
  for (const auto& entry : fs::directory_iterator(contents.folder)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".safetensors" &&
        std::ranges::find(contents.files, name, &StoredFile::name) == contents.files.end()) {
      complaints.push_back(entry.path().string() + " is not of this checkpoint");
    }
  }
  for (const StoredFile& file : contents.files) {
    paths.push_back((fs::path(contents.folder) / file.name).string());
  }
  if (complaints.empty() && read_safetensors(paths).tensors != contents.tensors) {
    complaints.push_back(contents.folder + ": headers of its files are not as " + manifest_name +
                         " says");
  }
  return complaints;
}

}  // namespace

std::vector<io::SafeTensor> described(const CopyPlan& plan) {
  std::vector<io::SafeTensor> tensors;
  std::uint64_t end = 0;
  for (const CopiedTensor& copy : plan.tensors) {
    const std::vector<std::int64_t> shape = shape_of(copy);
    const std::uint64_t bytes = copy.from->elements() * sizeof(float);
    tensors.push_back({.name = copy.name,
                       .dtype = "F32",
                       .shape = {shape.begin(), shape.end()},
                       .begin = end,
                       .end = end + bytes});
    end += bytes;
  }
  return tensors;
}

void check_place(const std::string& path) {
  const fs::path folder = parent_of(path);
  require(!fs::exists(folder / manifest_name), path, " would lie in the checkpoint ",
          folder.string(), ", which would not be whole any more; choose another place");
  const fs::file_status there = fs::symlink_status(path);
  require(!fs::exists(there) || fs::is_regular_file(there), path,
          " is there and is no file that could be replaced; choose another place");
}

std::string unfinished_name(const std::string& path) {
  std::random_device device;
  return fmt::format("{}.tmp-{:08x}{:08x}", path, device(), device());
}

void convert(const std::string& from, const std::string& to, CheckpointForm form) {
  Opened opened = open_any(from);
  const Contents contents = opened.manifest.contents;
  const ModelLayout layout =
      form == CheckpointForm::hf_gpt2 ? ModelLayout::hf_gpt2 : ModelLayout::sprat;
  const CopyPlan plan = plan_copies(contents, layout_of(contents), layout);
  check_head(contents, plan);
  if (form == CheckpointForm::sprat) {
    convert_to_checkpoint(std::move(opened.manifest), plan, folder_name(to));
  } else {
    convert_to_file(contents, plan, to);
  }
}

std::vector<std::string> verify(const std::string& path) {
  const Opened opened = open_any(path);
  need(opened.checked, path, " has no ", manifest_name, ", and so no checksums to verify");
  const Contents& contents = opened.manifest.contents;
  std::vector<std::string> complaints;
  for (const StoredFile& file : contents.files) {
    const std::vector<std::string> of_file = verify_file(contents, file);
    complaints.insert(complaints.end(), of_file.begin(), of_file.end());
  }
  return complaints.empty() ? verify_headers(contents) : complaints;
}

}  // namespace sprat::fsdp
