// Tensors in f32, each as it lies in the plan, in files that are there when they are whole.
#include "checkpoint/tensor_writer.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <random>
#include <utility>

#include "checkpoint/folder.hpp"
#include "comm/base/check.hpp"
#include "io/durable.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> shape_of(const CopiedTensor& copy) {
  std::vector<std::int64_t> shape = copy.from->shape;
  if (copy.transposed) {
    std::swap(shape[0], shape[1]);
  }
  return shape;
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

void write_one_file(Manifest from, const CopyPlan& plan, const std::string& to) {
  const bool into_folder = to.ends_with('/') || fs::is_directory(to);
  const std::string path = into_folder ? folder_name(to) + "/model.safetensors" : to;
  check_place(path);
  // Of the link itself: one that leads nowhere is not there for exists(), and would be replaced.
  require(!fs::exists(fs::symlink_status(path)), path,
          " is already there; give another name, or remove it first");
  if (into_folder) {
    make_durable_folder(to, {});
  }
  const std::string temporary = unfinished_name(path);
  const std::string header = io::write_safetensors_header(described(plan), {{"format", "pt"}});
  try {
    write_tensors(temporary, header, from.contents, plan);
    io::rename_over(temporary, path, {});
    io::sync_folder(parent_of(path), {});
  } catch (...) {
    io::remove_all(temporary, {});
    throw;
  }
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
  // Two conversions to one place at the same time must not write into one file.
  std::random_device device;
  return fmt::format("{}.tmp-{:08x}{:08x}", path, device(), device());
}

std::string parent_of(const std::string& path) { return fs::absolute(path).parent_path(); }

}  // namespace sprat::fsdp
