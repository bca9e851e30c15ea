// Calls as PyTorch's profiler, Kineto and the execution trace see them: record_param_comms.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/torch/native/work.hpp"

namespace sprat::pytorch {

/// Where a call is made, as long as it lasts.
struct ProfiledGroup {
  const std::string &name, &description;
  int rank, size;
  const std::vector<std::uint64_t>& ranks;  ///< Of the job, in the group's order.
};

/// Told to whoever profiles, while it lives: of a call that waits the whole of it, of others how
/// long it took to start. Costs a look at a thread's list where nobody does.
class ProfiledCall final {
 public:
  /// `sequence` is the operation's number in its group.
  ProfiledCall(const Operation& operation, const ProfiledGroup& group, std::uint64_t sequence);

 private:
  void tell(at::StepCallbacks callbacks, const Operation& operation, const ProfiledGroup& group,
            std::uint64_t sequence);

  // In this order: the record, which ends first, looks at the others.
  std::vector<c10::IValue> values_;
  std::optional<c10::DebugInfoGuard> information_;
  std::optional<at::RecordFunction> record_;
};

}  // namespace sprat::pytorch
