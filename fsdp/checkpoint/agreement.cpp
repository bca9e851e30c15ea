#include "fsdp/checkpoint/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// An Error as bytes: its code, then its message.
std::vector<std::uint8_t> packed(const std::optional<Error>& error) {
  std::vector<std::uint8_t> bytes;
  if (error) {
    const std::string message = error->what();
    bytes.push_back(static_cast<std::uint8_t>(error->code()));
    bytes.insert(bytes.end(), message.begin(), message.end());
  }
  return bytes;
}

std::string ranks_text(const std::vector<std::size_t>& ranks, int size) {
  if (ranks.size() == 1) {
    return text("rank ", ranks[0], ": ");
  }
  if (ranks.size() == static_cast<std::size_t>(size)) {
    return "";
  }
  return text("rank ", ranks[0], " and ", ranks.size() - 1, " more: ");
}

}  // namespace

void agree(Communicator& world, const std::optional<Error>& mine) {
  std::vector<std::uint8_t> bytes = packed(mine);
  const std::uint64_t length = bytes.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(world.size()));
  world
      .all_gather(elements(std::span(&length, 1)), elements(lengths),
                  {.timeout = {}, .blocking = true})
      .wait();
  std::vector<std::size_t> failed;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    if (lengths[rank] > 0) {
      failed.push_back(rank);
    }
  }
  if (failed.empty()) {
    return;
  }
  const int first = static_cast<int>(failed[0]);
  bytes.resize(lengths[failed[0]]);
  world.broadcast(elements(bytes), first).wait();
  const bool alone = world.size() == 1;
  throw Error(
      static_cast<ErrorCode>(bytes[0]),
      (alone ? "" : ranks_text(failed, world.size())) + std::string(bytes.begin() + 1, bytes.end()),
      first);
}

std::optional<Error> outcome_of(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, error.what());
  }
}

}  // namespace sprat::fsdp
