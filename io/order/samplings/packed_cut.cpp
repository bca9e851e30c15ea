// Documents one after another in an order of the epoch's, cut every `length` elements wherever that
// falls, as Megatron's GPTDataset does; a sample has one element more, the first of the next. The
// elements that an epoch has beyond whole samples are other ones each time.
//
// Samples are then permuted as well, lest long documents fill batches alone; in chunks they are
// not, so that what is read stays near.
//
// Use: pretraining. Cost: O(log documents), of which 16 are asked for their length. A table of
// 0.5 B a document, made once an epoch in one pass over the documents.
#include <algorithm>
#include <array>
#include <numeric>

#include "comm/base/check.hpp"
#include "io/order/documents.hpp"
#include "io/order/order_key.hpp"
#include "io/order/visit_order.hpp"

namespace sprat::io {
namespace {

// Fewer would make the table larger, more the search in it longer.
constexpr std::uint64_t documents_in_group = 16, groups_in_task = 4096;

class PackedCutSampling final : public Sampling {
 public:
  PackedCutSampling(const SamplingInput& input, VisitOptions visits)
      : documents_(input),
        visits_(std::move(visits)),
        run_(input.run),
        length_(input.options.length),
        // The files' order has as many elements as any; it costs no permutation.
        elements_(group_begins([](std::uint64_t index) { return index; }).back()),
        begins_([this](std::uint64_t epoch) {
          return group_begins([&](std::uint64_t index) { return visits_(epoch, index); });
        }) {
    require(elements_ > length_, "documents of ", elements_, " tokens are too short for samples ",
            "of ", length_, ": give more, or a smaller length");
    samples_ = std::make_unique<VisitOrder>(VisitOptions{
        .shuffle = input.options.shuffle == Shuffle::full ? Shuffle::full : Shuffle::none,
        .seed = order_key(input.seed, DrawnFor::samples),
        .count = samples()});
  }

  std::uint64_t samples() const override { return (elements_ - 1) / length_; }

  Sample sample(std::uint64_t epoch, std::uint64_t index, SkippedRecords skipped) const override {
    std::uint64_t at = (*samples_)(epoch, index) * length_;
    const std::uint64_t end = at + length_ + 1;
    const auto begins = begins_.of(epoch);
    const auto behind = std::ranges::upper_bound(*begins, at);
    auto slot = static_cast<std::uint64_t>(behind - begins->begin() - 1) * documents_in_group;
    Sample sample;
    for (std::uint64_t begin = *std::prev(behind); at < end; ++slot) {
      const std::uint64_t document = visits_(epoch, slot);
      const std::uint64_t document_end = begin + documents_.length(document);
      if (at < document_end) {
        const std::uint64_t piece_end = std::min(end, document_end);
        documents_.append({.document = document, .begin = at - begin, .end = piece_end - begin},
                          skipped, sample);
        at = piece_end;
      }
      begin = document_end;
    }
    return sample;
  }

 private:
  /// How many elements stand before each group of documents, in an order, and behind the last.
  template <class Visit>
  std::vector<std::uint64_t> group_begins(const Visit& document_at) const {
    const std::uint64_t documents = documents_.count(),
                        groups = (documents + documents_in_group - 1) / documents_in_group;
    std::vector<std::uint64_t> begins(groups + 1);
    // First each group's own elements, one place further on, in tasks that share nothing.
    run_((groups + groups_in_task - 1) / groups_in_task, [&](std::size_t task) {
      const std::uint64_t end =
          std::min(documents, (task + 1) * groups_in_task * documents_in_group);
      for (std::uint64_t slot = task * groups_in_task * documents_in_group; slot < end; ++slot) {
        begins[slot / documents_in_group + 1] += documents_.length(document_at(slot));
      }
    });
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    return begins;
  }

  Documents documents_;
  VisitOrder visits_;
  RunTasks run_;
  std::uint64_t length_, elements_;
  std::unique_ptr<const VisitOrder> samples_;
  EpochCache<std::vector<std::uint64_t>> begins_;
};

std::unique_ptr<const Sampling> make_packed_cut(SamplingInput input) {
  const SamplingOptions& options = input.options;
  VisitOptions visits{.shuffle = options.shuffle,
                      .seed = input.seed,
                      .count = input.table.records(),
                      .mixed_chunks = options.mixed_chunks};
  if (options.shuffle == Shuffle::chunks && visits.count > 0) {
    visits.chunks =
        options.chunk > 0 ? equal_chunks(visits.count, options.chunk) : file_chunks(input.table);
  }
  return std::make_unique<PackedCutSampling>(input, std::move(visits));
}

constexpr std::array<std::string_view, 6> packed_cut_options = {
    "shuffle", "chunk", "mixed_chunks", "length", "element_bytes", "separator"};

}  // namespace

extern const SamplingKind packed_cut_sampling;
const SamplingKind packed_cut_sampling = {
    .name = "packed_cut",
    .about = "documents one after another, cut into samples of length + 1 tokens",
    .options = packed_cut_options,
    .make = make_packed_cut};

}  // namespace sprat::io
