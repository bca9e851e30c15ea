// What programs see of batches and records.
#include "io/loader/batch.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

DataField seen(const io::Field& field) {
  return {.name = field.name, .type = field.type, .shape = field.shape, .bytes = field.bytes};
}

const io::LoadedSample& sample_at(const DataBatch::Impl& batch, std::size_t sample) {
  require(sample < batch.samples.size(), "sample ", sample, " of a batch that has ",
          batch.samples.size());
  return batch.samples[sample];
}

}  // namespace

std::uint64_t DataBatch::index() const noexcept { return impl_->index; }
std::uint64_t DataBatch::first() const noexcept { return impl_->first; }
std::size_t DataBatch::size() const noexcept { return impl_->samples.size(); }
std::uint64_t DataBatch::epoch(std::size_t sample) const { return sample_at(*impl_, sample).epoch; }
std::size_t DataBatch::source(std::size_t sample) const { return sample_at(*impl_, sample).source; }
std::uint64_t DataBatch::record(std::size_t sample) const {
  return sample_at(*impl_, sample).record;
}

std::size_t DataBatch::fields(std::size_t sample) const {
  const io::LoadedSample& own = sample_at(*impl_, sample);
  // A row is seen as one field, without a Field for each of thousands of samples.
  return own.fields.empty() && impl_->rows != nullptr ? 1 : own.fields.size();
}

DataField DataBatch::field(std::size_t sample, std::size_t index) const {
  require(index < fields(sample), "field ", index, " of a sample that has ", fields(sample));
  const io::LoadedSample& own = impl_->samples[sample];
  if (!own.fields.empty()) {
    return seen(own.fields[index]);
  }
  return {.name = "tokens",
          .type = impl_->element_type,
          .shape = impl_->row_shape,
          .bytes = impl_->row(sample)};
}

std::span<const std::byte> DataBatch::elements() const noexcept {
  return impl_->rows == nullptr ? std::span<const std::byte>() : *impl_->rows;
}

std::string_view DataBatch::element_type() const noexcept { return impl_->element_type; }

std::span<const std::uint32_t> DataBatch::lengths(std::size_t sample) const {
  return sample_at(*impl_, sample).lengths;
}

std::size_t DecodedRecord::fields() const noexcept { return impl_->fields.size(); }
std::uint64_t DecodedRecord::sample() const noexcept { return impl_->sample; }

DataField DecodedRecord::field(std::size_t index) const {
  require(index < fields(), "field ", index, " of a record that has ", fields());
  return seen(impl_->fields[index]);
}

std::optional<DataField> DecodedRecord::find(std::string_view name) const {
  const auto found = std::ranges::find(impl_->fields, name, &io::Field::name);
  return found == impl_->fields.end() ? std::nullopt : std::optional(seen(*found));
}

void DecodedRecord::set(std::string_view name, std::string_view type,
                        std::vector<std::uint64_t> shape, std::vector<std::byte> bytes) {
  auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  io::Field field{.name = std::string(name),
                  .type = std::string(type),
                  .shape = std::move(shape),
                  .bytes = *kept,
                  .owner = kept};
  const auto found = std::ranges::find(impl_->fields, name, &io::Field::name);
  if (found == impl_->fields.end()) {
    impl_->fields.push_back(std::move(field));
  } else {
    *found = std::move(field);
  }
}

void DecodedRecord::remove(std::string_view name) {
  std::erase_if(impl_->fields, [&](const io::Field& field) { return field.name == name; });
}

}  // namespace sprat
