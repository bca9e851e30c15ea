#include "checkpoint/plan/load_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "checkpoint/plan/reads.hpp"
#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

std::string described(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// The stored tensor of a parameter's state, after checks that it fits.
const StoredTensor& match(const std::string& where, const Contents& contents,
                          const ParameterSpec& parameter, const std::string& state) {
  const std::string name = stored_name(state, parameter.name);
  const StoredTensor* tensor = contents.find(name);
  if (tensor == nullptr && !state.empty() && contents.find(parameter.name) != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                text(where, " has no optimizer state \"", state, "\" of \"", parameter.name,
                     "\"; load its parameters alone, or use the optimizer that it was saved with"));
  }
  require(tensor != nullptr, where, " has no tensor \"", name, "\", which the model has");
  require(tensor->shape == parameter.shape, where, ": tensor \"", name, "\" has the shape ",
          described(tensor->shape), " and in the model ", described(parameter.shape));
  require(tensor->dtype == "F32", where, ": tensor \"", name, "\" is ", tensor->dtype,
          ", not F32; `sprat checkpoint convert` makes it that");
  return *tensor;
}

void refuse_additional(const std::string& where, const Contents& contents,
                       const std::set<std::string>& wanted, LoadWhat what) {
  for (const StoredTensor& tensor : contents.tensors) {
    const bool is_state = tensor.name.starts_with("optimizer.");
    require(
        wanted.contains(tensor.name) || (is_state && what == LoadWhat::parameters), where,
        " has the tensor \"", tensor.name, "\" ", described(tensor.shape),
        ", which the model has not",
        is_state ? "; load its parameters alone, or use the optimizer that it was saved with" : "");
  }
}

/// Where one parameter's state comes from, for the piece of it that lies in a part.
void add_reads(const StoredTensor& tensor, const Box& box, const ShardPiece& piece, PartRead read,
               std::vector<PartRead>& reads) {
  for (const BoxRead& of_box : plan_reads(tensor, box, piece.parameter_offset, piece.count)) {
    const StoredBox& stored = tensor.boxes[of_box.box];
    read.file = stored.file;
    read.begin = stored.begin + of_box.from * sizeof(float);
    read.offset = piece.shard_offset + of_box.to;
    read.count = of_box.count;
    read.times = of_box.times;
    read.bytes_apart = of_box.from_stride * sizeof(float);
    read.elements_apart = of_box.to_stride;
    reads.push_back(read);
  }
}

}  // namespace

std::vector<PartRead> plan_load(const std::string& where, const Contents& contents,
                                const ModelState& held, LoadWhat what) {
  std::vector<PartRead> reads;
  std::set<std::string> wanted;
  const std::size_t states = what == LoadWhat::parameters ? 1 : held.states.size();
  for (std::size_t u = 0; u < held.units.size(); ++u) {
    const StoredUnit& unit = held.units[u];
    const bool reads_it = unit.is_held() && unit.copy == unit.disk_copy(u);  // else another rank
    const ShardLayout mine =
        reads_it ? shard_layout(unit.layout, unit.parts, unit.part) : ShardLayout();
    for (std::size_t state = 0; state < states; ++state) {
      std::vector<const StoredTensor*> tensors;
      for (const ParameterSpec& parameter : unit.spec->parameters) {
        tensors.push_back(&match(where, contents, parameter, held.states[state]));
        wanted.insert(tensors.back()->name);
      }
      for (const ShardPiece& piece : mine.pieces) {
        const auto index = static_cast<std::size_t>(piece.parameter);
        add_reads(*tensors[index], held_box(unit.spec->parameters[index]), piece,
                  {.unit = u, .state = state}, reads);
      }
    }
  }
  refuse_additional(where, contents, wanted, what);
  std::ranges::sort(reads, {},
                    [](const PartRead& read) { return std::tuple(read.file, read.begin); });
  return reads;
}

}  // namespace sprat::fsdp
