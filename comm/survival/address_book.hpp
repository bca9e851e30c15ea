// Where many ranks listen, in few bytes: each rank keeps it of all others for the whole job, and
// asks it only after a failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/bootstrap/bootstrap_place.hpp"

namespace sprat::comm {

/// A value. What a host is called is kept once, however many ranks are there.
class AddressBook {
 public:
  AddressBook() = default;
  explicit AddressBook(const std::vector<std::vector<SocketAddress>>& by_rank);
  std::vector<SocketAddress> of(int rank) const;
  int size() const { return static_cast<int>(ends_.size()); }

 private:
  struct HostPort {
    std::uint32_t host;  ///< In hosts_.
    std::int32_t port;
  };
  std::vector<std::string> hosts_;
  std::vector<HostPort> entries_;    ///< Of rank 0, of rank 1, and so on.
  std::vector<std::uint32_t> ends_;  ///< By rank: behind its last entry.
};

}  // namespace sprat::comm
