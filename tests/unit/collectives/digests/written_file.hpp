// A file of digests as a rank writes it, made by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/digests/chunks.hpp"
#include "collectives/digests/comparison.hpp"
#include "collectives/digests/digest_file.hpp"

namespace sprat::collectives::digests {

/// What a rank wrote. Calls are of communicator 0, "world", unless they say otherwise.
class WrittenFile {
 public:
  WrittenFile(int rank, int size, bool inputs = false)
      : rank_(rank),
        inputs_(inputs),
        bytes_(encode(About{.rank = rank,
                            .size = size,
                            .started_unix_ns = 1'000'000,
                            .inputs = inputs,
                            .job = "sprat-1-2",
                            .host = "here"})) {
    std::vector<std::int32_t> all;
    for (int other = 0; other < size; ++other) {
      all.push_back(other);
    }
    group("world", all);
  }

  void group(const std::string& name, const std::vector<std::int32_t>& world_ranks) {
    Group group{.index = groups_++, .step = step, .made_ns = now, .name = name};
    group.world_ranks = world_ranks;
    for (std::size_t i = 0; i < world_ranks.size(); ++i) {
      group.rank = world_ranks[i] == rank_ ? static_cast<std::int32_t>(i) : group.rank;
    }
    add(encode(group));
  }

  /// An all_reduce of as many f32 as fill the chunks of the digests.
  void all_reduce(const std::vector<std::uint64_t>& result,
                  const std::vector<std::uint64_t>& input = {}) {
    collective(Collective::all_reduce, result, input);
  }
  void collective(Collective what, const std::vector<std::uint64_t>& result,
                  const std::vector<std::uint64_t>& input = {}) {
    const std::uint64_t count = result.size() * chunk_bytes / sizeof(float);
    Call call = next();
    call.number = call.sequence = collectives_++;
    call.input_count = inputs_ ? count : 0;
    call.result_count = count;
    call.signature = {.count = count, .collective = what};
    call.input_kept = inputs_ ? 1 : 0;
    call.result_kept = 1;
    std::vector<std::uint64_t> digests = input;
    digests.insert(digests.end(), result.begin(), result.end());
    write(call, digests);
  }
  void message(CallKind kind, int peer, std::uint64_t number, std::uint64_t digest) {
    Call call = next();
    call.kind = kind;
    call.number = call.sequence = number;
    call.partner = peer;
    call.tag = 7;
    (kind == CallKind::send ? call.input_count : call.result_count) = 100;
    (kind == CallKind::send ? call.input_kept : call.result_kept) = 1;
    write(call, {digest});
  }
  void gap(std::uint64_t calls) {
    add(encode_gap(calls));
    collectives_ += calls;
  }
  void end(bool failed = false) { add(encode_end(failed)); }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  /// Valid as long as this is not changed.
  const DigestFile* parsed() {
    file_ = std::make_unique<DigestFile>(parse("file", bytes_));
    return file_.get();
  }

  std::int64_t step = -1;
  std::int64_t now = 0;  ///< Of the next record; each takes one.

 private:
  Call next() {
    Call call;
    call.order = calls_++;
    call.step = step;
    call.ended_ns = ++now;
    return call;
  }
  void write(const Call& call, const std::vector<std::uint64_t>& digests) {
    const CallRecord record = record_of(call, digests);
    const auto head = std::as_bytes(std::span(&record, 1));
    const auto rest = std::as_bytes(std::span(digests));
    bytes_.insert(bytes_.end(), head.begin(), head.end());
    bytes_.insert(bytes_.end(), rest.begin(), rest.end());
  }
  void add(const std::vector<std::byte>& record) {
    bytes_.insert(bytes_.end(), record.begin(), record.end());
  }

  int rank_;
  bool inputs_;
  std::vector<std::byte> bytes_;
  std::uint32_t groups_ = 0;
  std::uint64_t collectives_ = 0, calls_ = 0;
  std::unique_ptr<DigestFile> file_;
};

}  // namespace sprat::collectives::digests
