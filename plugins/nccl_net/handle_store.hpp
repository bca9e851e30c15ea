// Brings the first word of a job from its rank 0 to the others, over connections that the handles
// of NCCL's listen() tell of.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/invitation.hpp"
#include "comm/endpoint/listener.hpp"
#include "sprat/store.hpp"

namespace sprat::nccl_net {

/// For one job, which joins by it once: rank 0 sets a key, each other rank gets it.
class HandleStore final : public Store {
 public:
  /// Rank 0 has `listener`; the others have its invitation. `others`: how many those are.
  HandleStore(comm::endpoint::Listener& listener, int others, std::chrono::milliseconds patience)
      : listener_(&listener), others_(others), patience_(patience) {}
  HandleStore(const comm::endpoint::Device& device, const comm::endpoint::Invitation& invitation)
      : device_(device), invitation_(invitation) {}

  std::string name() const override { return "the handles of NCCL's ranks"; }
  /// Blocks until all others have it. Throws Error{timeout}.
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds patience) override;
  void remove(const std::string&) override {}

 private:
  comm::endpoint::Listener* listener_ = nullptr;
  int others_ = 0;
  std::chrono::milliseconds patience_{0};
  comm::endpoint::Device device_;
  std::optional<comm::endpoint::Invitation> invitation_;
  std::optional<std::string> value_;  ///< That has been got.
};

}  // namespace sprat::nccl_net
