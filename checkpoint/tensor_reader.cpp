#include "checkpoint/tensor_reader.hpp"

#include <algorithm>
#include <filesystem>

#include "checkpoint/folder.hpp"
#include "comm/base/check.hpp"
#include "sprat/buffer.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> safetensors_in(const std::string& path) {
  if (fs::is_regular_file(path)) {
    return {path};
  }
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".safetensors") {
      paths.push_back(at->path());
    }
  }
  // Folders list their files in any order; the contents, and errors, are to be the same everywhere.
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

Opened open_any(const std::string& path) {
  // Files beside a manifest are never read as bare ones: their checksums would go unused.
  if (fs::exists(fs::path(path) / manifest_name) || latest_in(path)) {
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
  const std::uint64_t row = tensor.row_elements();
  const std::uint64_t width = narrow ? sizeof(std::uint16_t) : sizeof(float);
  for (const RowBox& box : tensor.boxes) {
    const std::uint64_t box_begin = box.first_row * row, box_end = box_begin + box.rows * row;
    const std::uint64_t begin = std::max(first, box_begin);
    const std::uint64_t end = std::min<std::uint64_t>(first + into.size(), box_end);
    if (begin < end) {
      read_box(tensor, box.file, box.begin + (begin - box_begin) * width,
               into.subspan(begin - first, end - begin));
    }
  }
}

void TensorReader::read_box(const StoredTensor& tensor, std::size_t file, std::uint64_t begin,
                            std::span<float> into) {
  // Boxes come in the order of rows, and neighbours mostly lie in one file: it stays open until
  // another is needed.
  if (!file_ || open_ != file) {
    const StoredFile& stored = contents_.files[file];
    file_.emplace((fs::path(contents_.folder) / stored.name).string(), stored.record);
    open_ = file;
  }
  if (tensor.dtype == "F32") {
    file_->read(begin, std::as_writable_bytes(into));
    return;
  }
  narrow_.resize(into.size());
  file_->read(begin, std::as_writable_bytes(std::span(narrow_)));
  std::ranges::transform(narrow_, into.begin(), [&](std::uint16_t bits) {
    return tensor.dtype == "F16" ? to_float(float16{bits}) : to_float(bfloat16{bits});
  });
}

}  // namespace sprat::fsdp
