#include "checkpoint/convert.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "checkpoint/folder.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/headers.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

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
  for (const std::string& name : entries_of(contents.folder)) {
    const fs::path path = fs::path(contents.folder) / name;
    if (path.extension() == ".safetensors" &&
        std::ranges::find(contents.files, name, &StoredFile::name) == contents.files.end()) {
      complaints.push_back(path.string() + " is not of this checkpoint");
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

void convert(const std::string& from, const std::string& to, CheckpointForm form) {
  Opened opened = open_any(from);
  const Contents contents = opened.manifest.contents;
  const CheckpointFormat& format = format_of(form);
  const CopyPlan plan = plan_copies(contents, form_of(contents), form);
  check_head(contents, plan);
  format.write(std::move(opened.manifest), plan, to);
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
