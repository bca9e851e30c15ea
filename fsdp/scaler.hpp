// The loss scale: keeps gradients of narrow floats within their range.
#pragma once

#include <map>
#include <string>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// Megatron's rules (its DynamicGradScaler). Every rank makes the same updates, so all hold the
/// same.
class LossScaler {
 public:
  /// Throws Error{invalid_argument} naming what is out of range.
  explicit LossScaler(const LossScaleOptions& options);

  /// What the loss is multiplied by.
  double scale() const { return scale_; }
  /// Counts a step; `overflow`: its gradients were not finite. At the least scale an overflow
  /// changes nothing any more, which is logged once.
  void update(bool overflow);

  /// For checkpoints: all that the next scales depend on beside the options.
  std::map<std::string, double> counters() const;
  /// Throws Error{invalid_argument} naming what is missing or makes no sense. Only counters of
  /// counters() are read.
  void restore(const std::map<std::string, double>& counters);

 private:
  void back_off();

  LossScaleOptions options_;
  double scale_;
  int good_steps_ = 0;  // since the last overflow or growth
  int left_;            // overflows until it backs off
  bool warned_ = false;
};

}  // namespace sprat::fsdp
