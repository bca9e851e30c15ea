// Models and partition files: each is refused with an Error, or is cut and comes back.
#include <string>
#include <string_view>
#include <vector>

#include "mp/partition/method.hpp"
#include "mp/partition/partition_file.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

void cut_and_read_back(std::string_view text) {
  const mp::PlannedModel model = mp::parse_model("model.json", text);
  const auto pieces = mp::pieces_of(model);
  // Larger ones only take longer.
  if (pieces.size() > 100) {
    return;
  }
  mp::MethodRequest request;
  request.partitions = 2;
  const std::vector<int> partition_of = mp::usual_method(model).cut(model, request);
  expect(partition_of.size() == pieces.size(), "each piece has a place");
  const mp::PartitionFile file =
      mp::parse_partition_file("p.json", mp::write_partition_file(pieces, partition_of, 2));
  expect(mp::partition_from("p.json", file, pieces, 2) == partition_of, "a partition comes back");
}

}  // namespace

bool run_partition(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  bool understood = false;
  try {
    cut_and_read_back(text);
    understood = true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
  }
  try {
    mp::parse_partition_file("p.json", text);
    understood = true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
  }
  return understood;
}

}  // namespace sprat::fuzz
