// Which operations NCCL's own library carries out: one answer for all ranks of a communicator.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plugins/nccl_abi/operation.hpp"

namespace sprat::nccl::real {

/// A set of operations.
struct Kinds {
  std::uint32_t bits = 0;

  static constexpr std::uint32_t bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }
  bool has(Kind kind) const { return (bits & bit(kind)) != 0; }
  bool reduce() const {
    return has(Kind::all_reduce) || has(Kind::reduce) || has(Kind::reduce_scatter);
  }
  bool operator==(const Kinds&) const = default;
};

/// What SPRAT_NCCL_HAND_OVER asks for.
struct Wish {
  Kinds kinds;
  bool between_hosts = false;  ///< Also where ranks are on several hosts.
  bool operator==(const Wish&) const = default;
};
/// "all_reduce,all_gather", "all", "none"; empty: all, on one host. Throws ncclInvalidArgument.
Wish read_wish(std::string_view text);

/// 22809 -> "2.28.9".
std::string version_text(int version);

/// What a rank says of itself; its bytes go to the others.
struct Offer {
  std::uint64_t host = 0;
  std::array<char, 16> device{};  ///< Its device's place on the host's bus; empty: it has none.
  std::int32_t version = 0;       ///< Of its library; 0: it has none.
  std::uint32_t kinds = 0;
  std::uint32_t between_hosts = 0;
  std::uint32_t named = 0;  ///< SPRAT_NCCL_LIB is set.
};

/// None: all stays with Sprat, and why; without words where no rank has named a library.
struct Agreement {
  Kinds kinds;
  std::string why_not;
};
Agreement agree(std::span<const Offer> offers);

}  // namespace sprat::nccl::real
