#include "checkpoint/tensor_reader.hpp"

#include <algorithm>
#include <filesystem>

#include "checkpoint/folder.hpp"
#include "checkpoint/headers.hpp"
#include "checkpoint/plan/reads.hpp"
#include "comm/base/check.hpp"
#include "sprat/buffer.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

/// Each keeps a block of 4 MiB in memory.
constexpr std::size_t most_open_files = 8;

std::vector<std::string> safetensors_in(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return {path};
  }
  std::vector<std::string> paths;
  for (const std::string& name : entries_of(path)) {
    const fs::path file = fs::path(path) / name;
    if (file.extension() == ".safetensors") {
      paths.push_back(file);
    }
  }
  // Folders list their files in any order; the contents, and errors, are to be the same everywhere.
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

Opened open_any(const std::string& path) {
  // Files beside a manifest are never read as bare ones: their checksums would go unused.
  std::error_code error;  // of what cannot be looked into; latest_in() names it
  if (fs::exists(fs::path(path) / manifest_name, error) || latest_in(path)) {
    const std::string at = checkpoint_at(path);
    return {.path = at, .manifest = read_manifest(at), .checked = true};
  }
  const std::vector<std::string> paths = safetensors_in(path);
  need(!paths.empty(), "there is no checkpoint and no safetensors file at ", path);
  Opened opened{.path = path, .manifest = {}, .checked = false};
  opened.manifest.contents = read_safetensors(paths);
  return opened;
}

void TensorReader::read(const StoredTensor& tensor, std::uint64_t first, std::span<float> into) {
  const bool narrow = tensor.dtype == "F16" || tensor.dtype == "BF16";
  require(narrow || tensor.dtype == "F32", "tensor \"", tensor.name, "\" is ", tensor.dtype,
          "; only F32, F16 and BF16 can be read");
  const std::uint64_t width = narrow ? sizeof(std::uint16_t) : sizeof(float);
  for (const BoxRead& read : plan_reads(tensor, whole_box(tensor.shape), first, into.size())) {
    const StoredBox& stored = tensor.boxes[read.box];
    for (std::uint64_t time = 0; time < read.times; ++time) {
      read_box(tensor, stored.file, stored.begin + (read.from + time * read.from_stride) * width,
               into.subspan(read.to + time * read.to_stride, read.count));
    }
  }
}

io::CheckedFile& TensorReader::open(std::size_t file) {
  // Where a tensor is cut by columns its boxes are in turns, so that files stay open: each keeps
  // the block that it has checked last.
  auto found = files_.find(file);
  if (found == files_.end()) {
    if (files_.size() == most_open_files) {
      files_.clear();
    }
    const StoredFile& stored = contents_.files[file];
    const std::string path = (fs::path(contents_.folder) / stored.name).string();
    found = files_.try_emplace(file, path, stored.record).first;
  }
  return found->second;
}

void TensorReader::read_box(const StoredTensor& tensor, std::size_t file, std::uint64_t begin,
                            std::span<float> into) {
  if (tensor.dtype == "F32") {
    open(file).read(begin, std::as_writable_bytes(into));
    return;
  }
  narrow_.resize(into.size());
  open(file).read(begin, std::as_writable_bytes(std::span(narrow_)));
  std::ranges::transform(narrow_, into.begin(), [&](std::uint16_t bits) {
    return tensor.dtype == "F16" ? to_float(float16{bits}) : to_float(bfloat16{bits});
  });
}

}  // namespace sprat::fsdp
