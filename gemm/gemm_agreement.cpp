// One kernel for all ranks: rank 0's.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "comm/base/check.hpp"
#include "gemm/gemm_kind.hpp"
#include "sprat/mp.hpp"

namespace sprat {
namespace {

std::string choose(std::string_view wanted) {
  const mp::GemmKind* kind = mp::gemm_kind_of(wanted);
  if (kind == nullptr) {
    return choose_gemm_backend();
  }
  if (kind->name == wanted) {
    return kind->choose();
  }
  const bool has = std::ranges::count(kind->backends(), wanted) > 0;
  return has ? std::string(wanted) : choose_gemm_backend();
}

}  // namespace

std::shared_ptr<const GemmBackend> agree_on_gemm_backend(Communicator& world,
                                                         std::string_view wanted) {
  std::array<std::uint8_t, 64> name{};  // ends with a zero; all zeros: there is none
  // If rank 0 fails, it still takes part in the broadcast, or the others would wait for it.
  std::optional<Error> error;
  if (world.rank() == 0) {
    try {
      const std::string choice = choose(wanted);
      std::copy_n(choice.begin(), std::min(choice.size(), name.size() - 1), name.begin());
    } catch (const Error& caught) {
      error = caught;
    }
  }
  world.broadcast(elements(name), 0).wait();
  if (error) {
    throw *error;
  }
  need(name[0] != 0, "rank 0 found no kernel for matrix products; its message says why");
  return open_gemm_backend(std::string(name.begin(), std::ranges::find(name, 0)));
}

}  // namespace sprat
