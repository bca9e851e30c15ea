// States of orders: each is refused with an Error, or stands within its stream and comes back.
#include <memory>
#include <string_view>

#include "io/order/stream_state.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"
#include "tests/unit/io/order/memory_table.hpp"

namespace sprat::fuzz {

/// The input is what read_state() takes.
bool run_stream_state(std::span<const std::byte> input) {
  const auto table =
      std::make_shared<const io::MemoryTable>(io::MemoryTable({{1, 2, 3, 4}, {5, 6}}));
  const io::SampleStream stream(
      {.sources = {{.table = table, .sampling = {}}, {.table = table, .sampling = {}, .weight = 2}},
       .seed = 1});
  try {
    const io::StreamState state = io::read_state(
        stream, std::string_view(reinterpret_cast<const char*>(input.data()), input.size()));
    expect(state.position.index < stream.samples(), "the position is within an epoch");
    expect(state.skips.records() <= 2 * table->records(), "what is skipped is there");
    const std::string json = io::write_state(stream, state);
    expect(json.size() <= io::longest_state, "a state is short");
    expect(io::write_state(stream, io::read_state(stream, json)) == json, "a state comes back");
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
