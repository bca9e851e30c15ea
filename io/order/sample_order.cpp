// Windows of a text in the order in which they are trained on.
#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"
#include "sprat/io.hpp"

namespace sprat {

SampleOrder::SampleOrder(std::uint64_t seed, std::uint64_t tokens, std::uint64_t length)
    : seed_(seed), length_(length) {
  require(length > 0, "a sample needs at least one token");
  require(tokens >= 2 * length, "a text of ", tokens, " tokens is too short for samples of ",
          length, ": give at least ", 2 * length);
  per_epoch_ = tokens / length - 1;  // the shift takes less than one window from the text
}

// Each epoch cuts the text at other places, so that windows are not the same ones again.
std::uint64_t SampleOrder::shift(std::uint64_t epoch) const {
  return io::order_key(io::order_key(seed_ ^ length_) + epoch) % length_;
}

std::uint64_t SampleOrder::begin(std::uint64_t sample) const {
  const std::uint64_t epoch = sample / per_epoch_;
  return shift(epoch) + length_ * Permutation(seed_, epoch, per_epoch_)(sample % per_epoch_);
}

}  // namespace sprat
