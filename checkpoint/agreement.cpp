#include "checkpoint/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/communicator_impl.hpp"
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

/// Before a message of the job's rank `first`, one of `failed` among `all`.
std::string ranks_text(int first, std::size_t failed, std::size_t all) {
  if (failed == all) {
    return "";
  }
  return failed == 1 ? text("rank ", first, ": ")
                     : text("rank ", first, " and ", failed - 1, " more: ");
}

}  // namespace

void agree(Communicator& world, const std::optional<Error>& mine) {
  std::vector<std::uint8_t> bytes = packed(mine);
  const std::uint64_t length = bytes.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(world.size()));
  world
      .all_gather(elements(std::span(&length, 1)), elements(lengths),
                  {.timeout = {}, .blocking = true, .digested = false})
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
  const int named = rank_in_job(world, first);
  throw Error(static_cast<ErrorCode>(bytes[0]),
              ranks_text(named, failed.size(), lengths.size()) +
                  std::string(bytes.begin() + 1, bytes.end()),
              named);
}

std::string text_of(Communicator& world, const std::string& text, int root) {
  std::uint64_t length = text.size();
  world.broadcast(elements(std::span(&length, 1)), root).wait();
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  bytes.resize(length);
  world.broadcast(elements(bytes), root).wait();
  return {bytes.begin(), bytes.end()};
}

int rank_in_job(Communicator& world, int rank) { return world.impl().messages.world_rank(rank); }

std::optional<Error> outcome_of(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::unavailable, "out of memory");
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, error.what());
  }
}

}  // namespace sprat::fsdp
