#include "checkpoint/plan/save_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/plan/held_parameters.hpp"
#include "checkpoint/plan/names.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

/// Where a parameter's box lies among the parts of its unit.
struct BoxPlace {
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

BoxPlace place_of(const StoredUnit& unit, std::size_t parameter, const Box& box) {
  BoxPlace place{.offset = unit.layout.items[parameter].offset,
                 .part_elements = unit.layout.padded / static_cast<std::size_t>(unit.parts)};
  for (std::size_t dimension = 0; dimension < box.extent.size(); ++dimension) {
    (dimension == 0 ? place.rows : place.row_elements) *=
        static_cast<std::uint64_t>(box.extent[dimension]);
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

/// What a part's writer stores of a parameter: the rows of its box that begin in the part. Nothing
/// if there are none.
std::optional<SavedBox> box_of(const StoredUnit& unit, std::size_t parameter, int copy, int part) {
  const ParameterSpec& spec = unit.spec->parameters[parameter];
  SavedBox saved{.name = {}, .shape = spec.shape, .box = held_box(spec), .ranges = {}};
  if (element_count(saved.box) == 0) {
    return std::nullopt;
  }
  const BoxPlace place = place_of(unit, parameter, saved.box);
  const auto begin = static_cast<std::uint64_t>(part) * place.part_elements;
  const std::uint64_t first_row = place.row_from(begin);
  const std::uint64_t rows = place.row_from(begin + place.part_elements) - first_row;
  if (rows == 0) {
    return std::nullopt;
  }
  if (!spec.shape.empty()) {
    saved.box.offset[0] += static_cast<std::int64_t>(first_row);
    saved.box.extent[0] = static_cast<std::int64_t>(rows);
  }
  const std::uint64_t first = place.offset + first_row * place.row_elements;
  saved.ranges =
      ranges_of(unit, copy, first, first + rows * place.row_elements, place.part_elements);
  return saved;
}

/// A tensor of no elements is stored too, by part 0 of who has it first: whole, for readers take
/// its shape from what is stored.
std::optional<SavedBox> empty_box_of(const ParameterSpec& spec, bool is_first, int part) {
  if (!is_first || part != 0) {
    return std::nullopt;
  }
  return SavedBox{.name = {}, .shape = spec.shape, .box = whole_box(spec.shape), .ranges = {}};
}

/// What part `part` of unit `u` stores of its parameters, in their order.
struct PartBoxes {
  std::vector<std::size_t> parameters;
  std::vector<SavedBox> boxes;
};

PartBoxes boxes_of(const ModelState& held, const std::map<std::string, HeldParameter>& parameters,
                   std::size_t u, int part) {
  const StoredUnit& unit = held.units[u];
  PartBoxes result;
  for (std::size_t index = 0; index < unit.spec->parameters.size(); ++index) {
    const ParameterSpec& spec = unit.spec->parameters[index];
    if (spec.tied) {
      continue;  // who has the one that it is tied to writes it
    }
    const ParameterPlace here{.unit = u, .index = index};
    auto box = element_count(whole_box(spec.shape)) == 0
                   ? empty_box_of(spec, parameters.at(spec.name).parts.front() == here, part)
                   : box_of(unit, index, unit.disk_copy(u), part);
    if (box) {
      result.parameters.push_back(index);
      result.boxes.push_back(*std::move(box));
    }
  }
  return result;
}

/// Which of a writer's files. One holds one box of a name, so a writer that has several parts of a
/// tensor has as many sets of files.
struct FileKey {
  int writer = 0, set = 0, group = 0;  // of parameters, or of optimizer state

  friend auto operator<=>(const FileKey&, const FileKey&) = default;
};

std::vector<SavedFile> named_files(std::map<FileKey, SavedFile> files, int groups) {
  int sets = 1;
  for (const auto& [key, file] : files) {
    sets = std::max(sets, key.set + 1);
  }
  std::vector<SavedFile> result;
  for (auto& [key, file] : files) {
    file.writer = key.writer;
    file.name = fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", key.writer + 1,
                            key.set * groups + key.group + 1, sets * groups);
    result.push_back(std::move(file));
  }
  return result;
}

}  // namespace

std::vector<SavedFile> plan_save(const ModelState& held) {
  check_names(held);
  std::map<FileKey, SavedFile> files;
  std::map<std::pair<int, std::string>, int> stored_parts;  // by writer and tensor, of cut ones
  const std::map<std::string, HeldParameter> parameters = held_parameters(held);
  for (std::size_t u = 0; u < held.units.size(); ++u) {
    const StoredUnit& unit = held.units[u];
    for (int part = 0; part < unit.parts; ++part) {
      const auto holder = static_cast<std::size_t>(unit.disk_copy(u) * unit.parts + part);
      const int writer = unit.holders[holder];
      const PartBoxes stored = boxes_of(held, parameters, u, part);
      for (std::size_t state = 0; state < held.states.size(); ++state) {
        for (std::size_t at = 0; at < stored.boxes.size(); ++at) {
          SavedBox box = stored.boxes[at];
          const std::string& name = unit.spec->parameters[stored.parameters[at]].name;
          box.name = stored_name(held.states[state], name);
          for (PartRange& range : box.ranges) {
            range.unit = u;
            range.state = state;
          }
          const bool is_cut = parameters.at(name).parts.size() > 1;
          const int set = is_cut ? stored_parts[{writer, box.name}]++ : 0;
          files[{.writer = writer, .set = set, .group = state == 0 ? 0 : 1}].boxes.push_back(
              std::move(box));
        }
      }
    }
  }
  return named_files(std::move(files), held.states.size() > 1 ? 2 : 1);
}

std::vector<SavedFile> part_of(std::vector<SavedFile> plan, int rank) {
  for (SavedFile& file : plan) {
    if (file.writer != rank) {
      std::erase_if(file.boxes, [rank](const SavedBox& box) {
        return std::ranges::find(box.ranges, rank, &PartRange::rank) == box.ranges.end();
      });
    }
  }
  std::erase_if(
      plan, [rank](const SavedFile& file) { return file.writer != rank && file.boxes.empty(); });
  plan.shrink_to_fit();
  return plan;
}

std::string header_of(const SavedFile& file) {
  std::vector<io::SafeTensor> tensors;
  nlohmann::json offsets = nlohmann::json::object();
  std::uint64_t end = 0;
  for (const SavedBox& box : file.boxes) {
    io::SafeTensor tensor{
        .name = box.name, .dtype = "F32", .shape = {}, .begin = end, .end = end + box.bytes()};
    tensor.shape.assign(box.box.extent.begin(), box.box.extent.end());
    end = tensor.end;
    offsets[box.name] = {{"saved_offsets", box.box.offset}};
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
      tensor.boxes.push_back({.file = index, .begin = end, .box = box.box});
      end += box.bytes();
    }
    contents.files.push_back({.name = files[index].name, .record = {.bytes = end, .blocks = {}}});
  }
  for (auto& [name, tensor] : tensors) {
    sort_boxes(tensor);
    contents.tensors.push_back(std::move(tensor));
  }
  return contents;
}

}  // namespace sprat::fsdp
