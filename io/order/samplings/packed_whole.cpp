// Documents packed whole into samples of at most `length` elements, so that none is cut but those
// that are longer: they give as many full samples as they hold, and their rest is packed.
//
// Documents are put into blocks in an order of the seed's, and each block is packed once, for all
// epochs: best_fit() says which lengths share a sample. Which of the block's documents of a length
// takes the place is drawn anew each epoch, as is the order of the samples. So every epoch has as
// many samples, and no table belongs to an epoch. Documents of a length that no other one of their
// block has keep their partners, and so do those that all fit into one sample.
//
// In chunks, blocks take documents as they come in chunks, and the samples of a block are read
// together. In order, so are the documents of a block, and samples as they were packed.
//
// Use: fine-tuning, and whatever must see whole documents. Cost: O(log documents); a table of at
// most 16 B a document, and of 8 B for each that is longer than a sample.
#include <algorithm>
#include <array>
#include <numeric>

#include "comm/base/check.hpp"
#include "io/order/best_fit.hpp"
#include "io/order/documents.hpp"
#include "io/order/order_key.hpp"
#include "io/order/visit_order.hpp"
#include "sprat/io.hpp"

namespace sprat::io {
namespace {

// Bounds of what packing a block needs: positions in it have 32 bits, and there is a stack for each
// room that a sample may have left.
constexpr std::uint64_t largest_block = std::uint64_t{1} << 31;
constexpr std::uint64_t longest_packed = std::uint64_t{1} << 24;

/// A document that fills samples alone, before its rest is packed.
struct LongDocument {
  std::uint32_t position = 0;       ///< In its block.
  std::uint32_t samples_until = 0;  ///< Of this one and those before it in the block.
};

struct PackedBlock {
  std::vector<LongDocument> long_documents;
  BinPacking packing;  ///< Of documents, and rests of long ones, by their position in the block.

  std::uint64_t full_samples() const {
    return long_documents.empty() ? 0 : long_documents.back().samples_until;
  }
  std::uint64_t samples() const { return full_samples() + packing.bins(); }
};

class PackedWholeSampling final : public Sampling {
 public:
  PackedWholeSampling(const SamplingInput& input, VisitOptions visits)
      : documents_(input),
        visits_(std::move(visits)),
        shuffle_(input.options.shuffle),
        seed_(input.seed),
        length_(input.options.length),
        block_(input.options.block) {
    require(length_ <= longest_packed, "whole documents are packed into at most ", longest_packed,
            " tokens, and length is ", length_);
    require(block_ > 0 && block_ <= largest_block, "block is ", block_, ": give from 1 to ",
            largest_block, " documents");
    blocks_.resize((documents_.count() + block_ - 1) / block_);
    input.run(blocks_.size(), [&](std::size_t block) { blocks_[block] = packed(block); });
    begins_ = {0};
    for (const PackedBlock& block : blocks_) {
      begins_.push_back(begins_.back() + block.samples());
    }
    require(samples() > 0, "no document of the dataset has a token");
    order_ = std::make_unique<VisitOrder>(VisitOptions{.shuffle = shuffle_,
                                                       .seed = order_key(seed_, DrawnFor::samples),
                                                       .count = samples(),
                                                       .chunks = begins_});
  }

  std::uint64_t samples() const override { return begins_.back(); }

  Sample sample(std::uint64_t epoch, std::uint64_t index, SkippedRecords skipped) const override {
    const std::uint64_t packed = (*order_)(epoch, index);
    const auto behind = std::ranges::upper_bound(begins_, packed);
    const auto block = static_cast<std::uint64_t>(behind - begins_.begin() - 1);
    const std::uint64_t in_block = packed - begins_[block];
    const std::uint64_t full = blocks_[block].full_samples();
    Sample sample;
    if (in_block < full) {
      documents_.append(full_piece(block, in_block), skipped, sample);
      return sample;
    }
    const BinPacking& packing = blocks_[block].packing;
    const std::uint64_t bin = in_block - full;
    for (std::uint32_t at = packing.bin_begins[bin]; at < packing.bin_begins[bin + 1]; ++at) {
      const std::uint32_t item = packing.items[place_in_epoch(epoch, block, packing.slots[at])];
      const std::uint64_t document = document_at(block, item), end = documents_.length(document);
      documents_.append({.document = document, .begin = end - rest_of(end), .end = end}, skipped,
                        sample);
    }
    return sample;
  }

 private:
  std::uint64_t document_at(std::uint64_t block, std::uint64_t position) const {
    return visits_(0, block * block_ + position);
  }

  /// Of a document's elements those that are packed with others; 0 if it fills samples alone.
  std::uint64_t rest_of(std::uint64_t elements) const { return elements % length_; }

  PackedBlock packed(std::uint64_t block) const {
    const std::uint64_t documents = std::min(block_, documents_.count() - block * block_);
    PackedBlock made;
    std::vector<std::uint32_t> rests(documents);
    std::uint64_t full = 0;
    for (std::uint64_t position = 0; position < documents; ++position) {
      const std::uint64_t elements = documents_.length(document_at(block, position));
      rests[position] = static_cast<std::uint32_t>(rest_of(elements));
      if (elements >= length_) {
        full += elements / length_;
        require(full <= ~std::uint32_t{0}, "documents of a block fill more than 2^32 samples: give",
                " a smaller block than ", block_);
        made.long_documents.push_back({.position = static_cast<std::uint32_t>(position),
                                       .samples_until = static_cast<std::uint32_t>(full)});
      }
    }
    made.packing = best_fit(rests, static_cast<std::uint32_t>(length_));
    return made;
  }

  DocumentPiece full_piece(std::uint64_t block, std::uint64_t sample) const {
    const auto& documents = blocks_[block].long_documents;
    const auto found =
        std::ranges::upper_bound(documents, sample, {}, &LongDocument::samples_until);
    const std::uint64_t before = found == documents.begin() ? 0 : std::prev(found)->samples_until;
    const std::uint64_t begin = (sample - before) * length_;
    return {
        .document = document_at(block, found->position), .begin = begin, .end = begin + length_};
  }

  /// Which item stands in for that at `place` this epoch: documents of one length change places.
  std::uint64_t place_in_epoch(std::uint64_t epoch, std::uint64_t block,
                               std::uint32_t place) const {
    if (shuffle_ == Shuffle::none) {
      return place;
    }
    const auto& begins = blocks_[block].packing.class_begins;
    const auto end = std::ranges::upper_bound(begins, place);
    const std::uint64_t begin = *std::prev(end);
    const Permutation equals(order_key(seed_, DrawnFor::equal_documents),
                             order_key(order_key(epoch) + block) + begin, *end - begin);
    return begin + equals(place - begin);
  }

  Documents documents_;
  VisitOrder visits_;
  Shuffle shuffle_;
  std::uint64_t seed_, length_, block_;
  std::vector<PackedBlock> blocks_;
  ChunkBegins begins_;  // samples before each block, and all
  std::unique_ptr<const VisitOrder> order_;
};

std::unique_ptr<const Sampling> make_packed_whole(SamplingInput input) {
  const SamplingOptions& options = input.options;
  VisitOptions visits{.shuffle = options.shuffle,
                      .seed = input.seed,
                      .count = input.table.records(),
                      .mixed_chunks = options.mixed_chunks};
  if (options.shuffle == Shuffle::chunks && visits.count > 0) {
    visits.chunks =
        options.chunk > 0 ? equal_chunks(visits.count, options.chunk) : file_chunks(input.table);
  }
  return std::make_unique<PackedWholeSampling>(input, std::move(visits));
}

constexpr std::array<std::string_view, 7> packed_whole_options = {
    "shuffle", "chunk", "mixed_chunks", "length", "element_bytes", "separator", "block"};

}  // namespace

extern const SamplingKind packed_whole_sampling;
const SamplingKind packed_whole_sampling = {
    .name = "packed_whole",
    .about = "whole documents, as many as fit into samples of at most length tokens",
    .options = packed_whole_options,
    .make = make_packed_whole};

}  // namespace sprat::io
