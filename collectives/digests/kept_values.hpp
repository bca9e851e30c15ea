// Values of one call that somebody wants to see: which call that is, and the files that hold them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/digests/digest_file.hpp"
#include "sprat/buffer.hpp"

namespace sprat::collectives::digests {

/// What SPRAT_DIGESTS_KEEP names: "world 412", "world recv 3 from 1 tag 7", "world send 3 to 1 tag
/// 7". Communicators are told by name; several of one name are all meant.
struct KeptCall {
  std::string communicator;
  CallKind kind = CallKind::collective;
  std::uint64_t number = 0;
  std::int32_t partner = 0, tag = 0;  ///< Of messages.
  bool operator==(const KeptCall&) const = default;
  bool names(const Call& call) const;
};
/// Throws Error{invalid_argument}.
KeptCall kept_call(std::string_view text);
std::string to_text(const KeptCall& call);

enum class Side { input, result };
/// "input" or "result".
const char* name(Side side) noexcept;

/// Beside the file of digests, of which `log` is the name without its ending.
std::string values_path(const std::string& folder, const std::string& log, const Call& call,
                        Side side);
/// What goes wrong is logged: a job does not end because somebody wanted to look at it.
void keep_values(const std::string& path, ConstElements values) noexcept;

struct Values {
  DType dtype = DType::f32;
  std::span<const std::byte> bytes;  ///< Of the file's; whole elements.
};
/// Nothing if it is no such file, or was cut. Believes no byte.
std::optional<Values> parse_values(std::span<const std::byte> file);

/// "1.5 (0x3fc00000)": element `index`, for people.
std::string element_text(const Values& values, std::size_t index);
/// Elements whose bits differ; the shorter one ends the comparison.
struct ElementDifference {
  std::size_t first = 0;
  std::size_t number = 0;  ///< 0: none.
};
ElementDifference compare(const Values& a, const Values& b);

}  // namespace sprat::collectives::digests
