#include "io/order/sample_stream.hpp"

#include <utility>

#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t most_sources = 64;  // their digests are in states of less than 1 KB

std::vector<double> weights_of(const std::vector<StreamSource>& sources) {
  require(!sources.empty() && sources.size() <= most_sources, "a stream has from 1 to ",
          most_sources, " sources, and not ", sources.size());
  std::vector<double> weights;
  for (const StreamSource& source : sources) {
    weights.push_back(source.weight);
  }
  return weights;
}

}  // namespace

SampleStream::SampleStream(StreamOptions options)
    : sources_(std::move(options.sources)),
      seed_(options.seed),
      mixture_(seed_, weights_of(sources_)) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    // Two sources of equal size would else be visited in step with one another.
    const std::uint64_t seed = i == 0 ? seed_ : order_key(seed_ + i * golden_step);
    try {
      samplings_.push_back(make_sampling({.table = *sources_[i].table,
                                          .options = sources_[i].sampling,
                                          .seed = seed,
                                          .run = options.run}));
    } catch (const Error& error) {
      throw Error(error.code(), text("source ", i, ": ", error.what()));
    }
    require(!__builtin_add_overflow(samples_, samplings_.back()->samples(), &samples_),
            "the sources have more than 2^64 samples together");
  }
}

Sample SampleStream::sample(StreamPosition position, const SkipList& skips) const {
  require(position.index < samples_, "sample ", position.index, " is outside an epoch of ",
          samples_);
  require(skips.sources() == sources(), "a skip list of ", skips.sources(), " sources is not that",
          " of ", sources());
  std::uint64_t number = 0;
  require(!__builtin_mul_overflow(position.epoch, samples_, &number) &&
              !__builtin_add_overflow(number, position.index, &number),
          "epoch ", position.epoch, " of ", samples_, " samples is beyond 2^64 samples");
  const SourceDraw draw = mixture_.draw(number);
  const Sampling& sampling = *samplings_[draw.source];
  Sample sample = sampling.sample(draw.index / sampling.samples(), draw.index % sampling.samples(),
                                  skips.of(draw.source));
  sample.source = draw.source;
  return sample;
}

std::string SampleStream::source_text(std::size_t source) const {
  const StreamSource& of = sources_[source];
  return text(options_text(of.sampling), " weight=", of.weight, " records=", of.table->records(),
              fmt::format(" dataset={:016x}", of.table->fingerprint()));
}

}  // namespace sprat::io
