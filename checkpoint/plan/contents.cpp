#include "checkpoint/plan/contents.hpp"

#include <algorithm>
#include <optional>

#include "checkpoint/plan/cover.hpp"
#include "comm/base/check.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

/// All numbers come from a file: none is added or multiplied before it is known to be small enough,
/// since what wraps would seem to fit.
void check_shape(const std::string& who, const StoredTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) {
    need(extent >= 0, who, " has an extent of ", extent);
    // Without the zeros, which would hide what the others are.
    need(!__builtin_mul_overflow(elements, std::max<std::int64_t>(extent, 1), &elements), who,
         " has more elements than a file can hold");
  }
}

void check_box(const std::string& who, const StoredTensor& tensor, const Box& box) {
  const std::size_t dimensions = tensor.shape.size();
  need(box.offset.size() == dimensions && box.extent.size() == dimensions, who, " has ", dimensions,
       " dimensions, and a box of ", box.offset.size(), " and ", box.extent.size());
  for (std::size_t d = 0; d < dimensions; ++d) {
    need(box.offset[d] >= 0 && box.extent[d] >= 0 && box.offset[d] <= tensor.shape[d] &&
             box.extent[d] <= tensor.shape[d] - box.offset[d],
         who, " has a box from ", box.offset[d], " on of ", box.extent[d], " along dimension ", d,
         ", of which it has ", tensor.shape[d]);
  }
}

void check_place(const std::string& who, const StoredTensor& tensor, const StoredBox& stored,
                 const std::vector<StoredFile>& files) {
  const auto bits = io::safetensors_bits(tensor.dtype);
  std::uint64_t bits_of_box = 0;
  need(bits &&
           !__builtin_mul_overflow(static_cast<std::uint64_t>(element_count(stored.box)), *bits,
                                   &bits_of_box) &&
           bits_of_box % 8 == 0,
       who, " has a box of no whole bytes of ", tensor.dtype);
  need(stored.file < files.size(), who, " lies in file ", stored.file, " of ", files.size());
  const StoredFile& file = files[stored.file];
  need(stored.begin <= file.record.bytes && bits_of_box / 8 <= file.record.bytes - stored.begin,
       who, " reaches beyond the end of ", file.name);
}

void check_tensor(const std::string& who, const StoredTensor& tensor,
                  const std::vector<StoredFile>& files) {
  check_shape(who, tensor);
  std::vector<Box> boxes;
  for (const StoredBox& stored : tensor.boxes) {
    check_box(who, tensor, stored.box);
    check_place(who, tensor, stored, files);
    boxes.push_back(stored.box);
  }
  need(!boxes.empty(), who, " lies nowhere");
  need(cut_dimensions(tensor.shape, boxes) <= most_cut_dimensions, who, " is cut along more than ",
       most_cut_dimensions, " dimensions");
  if (const auto fault = cover_fault(tensor.shape, boxes)) {
    throw Error(ErrorCode::unavailable,
                text(who, " has its element ", describe_element(fault->element),
                     fault->is_twice ? " twice" : " nowhere"));
  }
}

}  // namespace

bool has_whole_rows(const Box& box, const std::vector<std::int64_t>& shape) {
  for (std::size_t d = 1; d < shape.size(); ++d) {
    if (box.extent[d] != shape[d]) {
      return false;
    }
  }
  return true;
}

std::uint64_t StoredTensor::rows() const {
  return shape.empty() ? 1 : static_cast<std::uint64_t>(shape[0]);
}

std::uint64_t StoredTensor::row_elements() const {
  std::uint64_t elements = 1;
  for (std::size_t dimension = 1; dimension < shape.size(); ++dimension) {
    elements *= static_cast<std::uint64_t>(shape[dimension]);
  }
  return elements;
}

const StoredTensor* Contents::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &StoredTensor::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

void sort_boxes(StoredTensor& tensor) {
  std::ranges::stable_sort(tensor.boxes, {},
                           [](const StoredBox& stored) { return stored.box.offset; });
}

void check_contents(const std::string& where, const Contents& contents) {
  const std::string* before = nullptr;
  for (const StoredTensor& tensor : contents.tensors) {
    need(before == nullptr || *before < tensor.name, where, ": tensor \"", tensor.name,
         "\" is not in the order of names");
    before = &tensor.name;
    check_tensor(where + ": tensor \"" + tensor.name + "\"", tensor, contents.files);
  }
}

std::string stored_name(const std::string& state, const std::string& parameter) {
  return state.empty() ? parameter : "optimizer." + state + "." + parameter;
}

}  // namespace sprat::fsdp
