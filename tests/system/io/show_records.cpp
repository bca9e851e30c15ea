// show_records FORMAT PATH...: the fields of all records, for comparison with other readers: a line
// of JSON a record, [[name, type, shape, bytes as hex], ...].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checked_file.hpp"
#include "io/dataset/dataset.hpp"
#include "io/formats/bytes.hpp"
#include "sprat/error.hpp"

namespace {

using namespace sprat::io;

void show(const DatasetOptions& options) {
  const auto dataset = Dataset::open(options);
  std::vector<std::byte> bytes;
  for (std::uint64_t record = 0; record < dataset->records(); ++record) {
    const Extent extent = dataset->record(record);
    bytes.resize(extent.bytes);
    sprat::io::ReadFile(dataset->files()[extent.file]).read(extent.offset, bytes);
    nlohmann::json line = nlohmann::json::array();
    for (const Field& field : dataset->format().fields(
             dataset->context(extent.file), record - dataset->first_record(extent.file), bytes)) {
      std::string hex;
      for (const std::byte byte : field.bytes) {
        hex += fmt::format("{:02x}", std::to_integer<int>(byte));
      }
      line.push_back({field.name, field.type, field.shape, hex});
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string format = argc > 1 ? argv[1] : "";
    const bool typed = format.starts_with("tokens:");
    DatasetOptions options{.paths = {argv + std::min(argc, 2), argv + argc},
                           .format = typed ? "tokens" : format};
    options.format_options.token_type = typed ? format.substr(7) : "";
    show(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "show_records: {}\n", error.what());
    return 1;
  }
}
