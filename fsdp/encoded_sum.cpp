// The two halves of an encoded sum, and the order of replies.
#include "fsdp/encoded_sum.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fsdp/plan/encoded_parts.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

/// This rank's part as each rank has encoded it, in rank order.
std::vector<std::span<const std::byte>> contributions(std::span<const std::byte> received,
                                                      const EncodedParts& parts, int rank) {
  std::vector<std::span<const std::byte>> all;
  for (int from = 0; from < parts.ranks(); ++from) {
    all.push_back(
        received.subspan(static_cast<std::size_t>(from) * parts.bytes(rank), parts.bytes(rank)));
  }
  return all;
}

Elements as_elements(std::span<std::byte> bytes) {
  return {.data = bytes.data(), .count = bytes.size(), .dtype = DType::u8};
}

class EncodedReduceScatter final : public Pending::Operation {
 public:
  EncodedReduceScatter(DType wire, std::span<float> part,
                       std::vector<std::span<const std::byte>> contributions, Pending exchange)
      : wire_(wire),
        part_(part),
        contributions_(std::move(contributions)),
        exchange_(std::move(exchange)) {}

  void wait() override {
    exchange_.wait();
    sum_encoded(wire_, contributions_, part_);
  }
  bool done() const override { return exchange_.done(); }

 private:
  DType wire_;
  std::span<float> part_;
  std::vector<std::span<const std::byte>> contributions_;
  Pending exchange_;
};

}  // namespace

/// Replies are sent in the order of their exchanges, so one may be sent while another is waited
/// for. What goes wrong then is kept for its own wait().
class EncodedAllReduce final : public Pending::Operation {
 public:
  EncodedAllReduce(EncodedSums& sums, std::span<float> values, Residuals residuals,
                   std::span<std::byte> staging, Pending exchange, std::uint64_t& sent)
      : sums_(sums),
        parts_(values.size(), sums.exchanges_.size()),
        values_(values),
        residuals_(residuals),
        staging_(staging),
        exchange_(std::move(exchange)),
        sent_(sent) {
    sums_.unanswered_.push_back(this);
  }

  void wait() override {
    if (!replied_) {
      sums_.reply_through(*this);
    }
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
    reply_.wait();
    decode(sums_.wire_, staging_.first(parts_.bytes()), values_);
  }
  bool done() const override { return replied_ && reply_.done(); }
  bool exchange_done() const { return exchange_.done(); }

  void reply() {
    replied_ = true;
    try {
      exchange_.wait();
      send_sum();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

 private:
  /// The parts that were sent are not needed any more: this rank's sum takes the place of its own
  /// one, and the others' sums come into theirs.
  void send_sum() {
    const int rank = sums_.exchanges_.rank();
    const std::span<float> own = values_.subspan(parts_.offset(rank), parts_.count(rank));
    const auto received = staging_.subspan(parts_.bytes());
    sum_encoded(sums_.wire_, contributions(received, parts_, rank), own);
    const std::span<std::byte> all = staging_.first(parts_.bytes());
    const auto encoded = all.subspan(encoded_bytes(parts_.offset(rank)), parts_.bytes(rank));
    const auto residual =
        residuals_.returned.first(std::min(residuals_.returned.size(), own.size()));
    sums_.encode_all(own, residual, encoded);
    reply_ = sums_.replies_.all_gatherv(as_elements(encoded), as_elements(all), parts_.all_bytes(),
                                        sent_);
  }

  EncodedSums& sums_;
  EncodedParts parts_;
  std::span<float> values_;
  Residuals residuals_;
  std::span<std::byte> staging_;
  Pending exchange_, reply_;
  std::uint64_t& sent_;
  bool replied_ = false;
  std::exception_ptr error_;
};

void EncodedSums::encode_all(std::span<const float> values, std::span<float> residual,
                             std::span<std::byte> to) const {
  if (residual.empty()) {
    return encode(wire_, values, to);
  }
  encode_with_feedback(wire_, values, residual, to);
}

Pending EncodedSums::exchange(std::size_t count, std::span<std::byte> staging,
                              std::uint64_t& sent) {
  const EncodedParts parts(count, exchanges_.size());
  const std::size_t own = parts.bytes(exchanges_.rank());
  const auto received =
      staging.subspan(parts.bytes(), own * static_cast<std::size_t>(parts.ranks()));
  return exchanges_.all_to_allv(
      as_elements(staging.first(parts.bytes())), as_elements(received), parts.all_bytes(),
      std::vector<std::size_t>(static_cast<std::size_t>(parts.ranks()), own), sent);
}

Pending EncodedSums::reduce_scatter(std::span<const float> whole, std::span<float> part,
                                    Residuals residuals, std::span<std::byte> staging,
                                    std::uint64_t& sent) {
  const EncodedParts parts(whole.size(), exchanges_.size());
  encode_all(whole, residuals.sent, staging.first(parts.bytes()));
  return Pending(std::make_unique<EncodedReduceScatter>(
      wire_, part, contributions(staging.subspan(parts.bytes()), parts, exchanges_.rank()),
      exchange(whole.size(), staging, sent)));
}

Pending EncodedSums::all_reduce(std::span<float> values, Residuals residuals,
                                std::span<std::byte> staging, std::uint64_t& sent) {
  encode_all(values, residuals.sent, staging.first(encoded_bytes(values.size())));
  return Pending(std::make_unique<EncodedAllReduce>(*this, values, residuals, staging,
                                                    exchange(values.size(), staging, sent), sent));
}

void EncodedSums::advance() {
  while (!unanswered_.empty() && unanswered_.front()->exchange_done()) {
    reply_through(*unanswered_.front());
  }
}

void EncodedSums::reply_through(const EncodedAllReduce& last) {
  const EncodedAllReduce* replied = nullptr;
  while (replied != &last) {
    EncodedAllReduce* const next = unanswered_.front();
    unanswered_.pop_front();
    next->reply();
    replied = next;
  }
}

}  // namespace sprat::fsdp
