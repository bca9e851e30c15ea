#include "checkpoint/exporter.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "checkpoint/plan/save_plan.hpp"
#include "checkpoint/rows.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "comm/base/check.hpp"
#include "io/durable.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

ModelState parameters_of(const ModelState& held) {
  ModelState parameters{.states = {held.states.at(0)}, .units = held.units};
  for (StoredUnit& unit : parameters.units) {
    unit.values.resize(1);
  }
  return parameters;
}

/// Where a tensor goes in the file.
struct FilePlace {
  std::uint64_t begin = 0;
  bool transposed = false;
};

/// The file's header, its whole length, and the places by our names.
struct FilePlan {
  std::string header;
  std::uint64_t bytes = 0;
  std::map<std::string, FilePlace> places;
};

FilePlan plan_file(const std::vector<SavedFile>& files, CheckpointForm form) {
  const Contents contents = contents_of(files);
  const CopyPlan copies = plan_copies(contents, CheckpointForm::sprat, form);
  const std::vector<io::SafeTensor> tensors = described(copies);
  FilePlan plan{.header = io::write_safetensors_header(tensors, {{"format", "pt"}}),
                .bytes = 0,
                .places = {}};
  plan.bytes = plan.header.size() + (tensors.empty() ? 0 : tensors.back().end);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const CopiedTensor& copy = copies.tensors[index];
    plan.places[copy.from->name] = {.begin = plan.header.size() + tensors[index].begin,
                                    .transposed = copy.transposed};
  }
  return plan;
}

/// The views of one box, which follow each other.
using Views = std::span<const std::span<const float>>;

/// Each run of the box to its place in the whole tensor.
void write_box(io::PlacedFile& file, const SavedBox& box, Views views, const FilePlace& place) {
  std::size_t view = 0, taken = 0;
  for_each_run(whole_box(box.shape), box.box, [&](BoxRun run) {
    std::uint64_t at = place.begin + static_cast<std::uint64_t>(run.offset) * sizeof(float);
    auto left = static_cast<std::size_t>(run.count);
    while (left > 0) {
      const auto values = views[view].subspan(taken, std::min(left, views[view].size() - taken));
      file.write(at, std::as_bytes(values));
      at += values.size_bytes();
      left -= values.size();
      taken += values.size();
      if (taken == views[view].size()) {
        ++view;
        taken = 0;
      }
    }
  });
}

/// Of a matrix whose rows become columns: of each row of the file a run.
void write_turned(io::PlacedFile& file, const SavedBox& box, Views views, const FilePlace& place) {
  const auto rows = static_cast<std::uint64_t>(box.box.extent[0]);
  const auto columns = static_cast<std::uint64_t>(box.box.extent[1]);
  const auto file_columns = static_cast<std::uint64_t>(box.shape[0]);
  std::vector<float> values, run(rows);
  for (const auto& view : views) {
    values.insert(values.end(), view.begin(), view.end());
  }
  for (std::uint64_t column = 0; column < columns; ++column) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      run[row] = values[row * columns + column];
    }
    const std::uint64_t file_row = static_cast<std::uint64_t>(box.box.offset[1]) + column;
    const std::uint64_t at =
        file_row * file_columns + static_cast<std::uint64_t>(box.box.offset[0]);
    file.write(place.begin + at * sizeof(float), std::as_bytes(std::span(run)));
  }
}

void write_own(io::PlacedFile& out, int rank, const std::vector<SavedFile>& files,
               const GatheredRows& rows, const FilePlan& plan) {
  std::size_t own = 0;
  for (const SavedFile& file : files) {
    if (file.writer != rank) {
      continue;
    }
    const Views views = rows.files[own++];
    std::size_t next = 0;
    for (const SavedBox& box : file.boxes) {
      const FilePlace& place = plan.places.at(box.name);
      const Views of_box = views.subspan(next, box.ranges.size());
      next += box.ranges.size();
      (place.transposed ? write_turned : write_box)(out, box, of_box, place);
    }
  }
}

std::optional<Error> on_first(Communicator& world, const std::function<void()>& body) {
  return world.rank() == 0 ? outcome_of(body) : std::nullopt;
}

}  // namespace

void export_parameters(Communicator& world, const ModelState& held, const ExportTarget& target) {
  const ModelState parameters = parameters_of(held);
  const std::vector<SavedFile> files = plan_save(parameters);
  const FilePlan plan = plan_file(files, target.form);
  const GatheredRows rows = gather_rows(world, parameters, files);
  agree(world, on_first(world, [&] { check_place(target.path); }));
  const std::string temporary = text_of(world, unfinished_name(target.path), 0);
  try {
    // Hosts write bytes that share pages. NFS sends a page beyond the end of a file with zeros for
    // what others have written of it, so the file has its whole length before anybody else opens
    // it.
    agree(world, on_first(world, [&] {
            io::write_file(temporary, plan.header, target.hook);
            io::set_length(temporary, plan.bytes, target.hook);
          }));
    agree(world, outcome_of([&] {
            io::PlacedFile out(temporary, target.hook);
            write_own(out, world.rank(), files, rows, plan);
            out.finish();
          }));
    agree(world, on_first(world, [&] {
            io::rename_over(temporary, target.path, target.hook);
            io::sync_folder(std::filesystem::absolute(target.path).parent_path(), target.hook);
          }));
  } catch (...) {
    if (world.rank() == 0) {
      io::remove_all(temporary, target.hook);
    }
    throw;
  }
}

}  // namespace sprat::fsdp
