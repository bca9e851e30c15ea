#include "checkpoint/save_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checks/names.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

/// Where a tensor lies among the parts of its unit.
struct TensorPlace {
  std::uint64_t offset = 0, rows = 1, row_elements = 1;  // in the flat buffer
  std::uint64_t part_elements = 1;

  /// The first row that begins at or after an element of the flat buffer.
  std::uint64_t row_from(std::uint64_t element) const {
    if (element <= offset) {
      return 0;
    }
    return std::min(rows, (element - offset + row_elements - 1) / row_elements);
  }
};

TensorPlace place_of(const StoredUnit& unit, std::size_t parameter) {
  TensorPlace place{.offset = unit.layout.items[parameter].offset,
                    .part_elements = unit.layout.padded / static_cast<std::size_t>(unit.parts)};
  const auto& shape = unit.spec->parameters[parameter].shape;
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    (dimension == 0 ? place.rows : place.row_elements) *=
        static_cast<std::uint64_t>(shape[dimension]);
  }
  return place;
}

/// The flat elements [begin, end), cut where parts end.
std::vector<PartRange> ranges_of(const StoredUnit& unit, int copy, std::uint64_t begin,
                                 std::uint64_t end, std::uint64_t part_elements) {
  std::vector<PartRange> ranges;
  while (begin < end) {
    const std::uint64_t part = begin / part_elements;
    const std::uint64_t stop = std::min(end, (part + 1) * part_elements);
    const auto holder = static_cast<std::uint64_t>(copy * unit.parts) + part;
    ranges.push_back({.rank = unit.holders[holder],
                      .offset = begin - part * part_elements,
                      .count = stop - begin});
    begin = stop;
  }
  return ranges;
}

/// The rows of a parameter that begin in a part. Empty tensors belong to part 0.
SavedBox box_of(const StoredUnit& unit, std::size_t parameter, int copy, int part) {
  const TensorPlace place = place_of(unit, parameter);
  const ParameterSpec& spec = unit.spec->parameters[parameter];
  SavedBox box;
  box.shape = spec.shape;
  box.row_elements = place.row_elements;
  if (place.rows * place.row_elements == 0) {
    box.rows = part == 0 ? place.rows : 0;
    return box;
  }
  const auto begin = static_cast<std::uint64_t>(part) * place.part_elements;
  box.first_row = place.row_from(begin);
  box.rows = place.row_from(begin + place.part_elements) - box.first_row;
  const std::uint64_t first = place.offset + box.first_row * place.row_elements;
  box.ranges =
      ranges_of(unit, copy, first, first + box.rows * place.row_elements, place.part_elements);
  return box;
}

bool is_stored(const SavedBox& box, int part) {
  return box.rows > 0 || (part == 0 && !box.shape.empty() && box.shape[0] == 0);
}

}  // namespace

std::vector<SavedFile> plan_save(const ModelState& held) {
  check_names(held);
  const int groups = held.states.size() > 1 ? 2 : 1;  // parameters, optimizer state
  std::map<int, SavedFile> files;                     // by writer * groups + group
  for (std::size_t u = 0; u < held.units.size(); ++u) {
    const StoredUnit& unit = held.units[u];
    const int copy = unit.disk_copy(u);
    for (int part = 0; part < unit.parts; ++part) {
      const int writer = unit.holders[static_cast<std::size_t>(copy * unit.parts + part)];
      for (std::size_t state = 0; state < held.states.size(); ++state) {
        for (std::size_t index = 0; index < unit.spec->parameters.size(); ++index) {
          if (unit.spec->parameters[index].tied) {
            continue;  // who has the one that it is tied to writes it
          }
          SavedBox box = box_of(unit, index, copy, part);
          if (!is_stored(box, part)) {
            continue;
          }
          box.name = stored_name(held.states[state], unit.spec->parameters[index].name);
          for (PartRange& range : box.ranges) {
            range.unit = u;
            range.state = state;
          }
          const int group = state == 0 ? 0 : 1;
          SavedFile& file = files[writer * groups + group];
          file.writer = writer;
          file.name = fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", writer + 1,
                                  group + 1, groups);
          file.boxes.push_back(std::move(box));
        }
      }
    }
  }
  std::vector<SavedFile> result;
  for (auto& [key, file] : files) {
    result.push_back(std::move(file));
  }
  return result;
}

std::string header_of(const SavedFile& file) {
  std::vector<io::SafeTensor> tensors;
  nlohmann::json offsets = nlohmann::json::object();
  std::uint64_t end = 0;
  for (const SavedBox& box : file.boxes) {
    io::SafeTensor tensor{
        .name = box.name, .dtype = "F32", .shape = {}, .begin = end, .end = end + box.bytes()};
    std::vector<std::uint64_t> saved(box.shape.size(), 0);
    for (const std::int64_t extent : box.shape) {
      tensor.shape.push_back(static_cast<std::uint64_t>(extent));
    }
    if (!saved.empty()) {
      tensor.shape[0] = box.rows;
      saved[0] = box.first_row;
    }
    end = tensor.end;
    offsets[box.name] = {{"saved_offsets", saved}};
    tensors.push_back(std::move(tensor));
  }
  return io::write_safetensors_header(
      tensors, {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", offsets.dump()}});
}

Contents contents_of(const std::vector<SavedFile>& files) {
  Contents contents;
  std::map<std::string, StoredTensor> tensors;
  for (std::size_t index = 0; index < files.size(); ++index) {
    std::uint64_t end = header_of(files[index]).size();
    for (const SavedBox& box : files[index].boxes) {
      StoredTensor& tensor = tensors[box.name];
      tensor.name = box.name;
      tensor.shape = box.shape;
      tensor.boxes.push_back(
          {.file = index, .begin = end, .first_row = box.first_row, .rows = box.rows});
      end += box.bytes();
    }
    contents.files.push_back({.name = files[index].name, .record = {.bytes = end, .blocks = {}}});
  }
  for (auto& [name, tensor] : tensors) {
    std::ranges::sort(tensor.boxes, {}, &RowBox::first_row);
    contents.tensors.push_back(std::move(tensor));
  }
  return contents;
}

}  // namespace sprat::fsdp
