// Which bytes of which request are whose.
//
// Memory is taken by runs of requests that touch in a file, not by request: so a sample that is cut
// into several requests is whole in memory without a copy, which is what large records live on.
// Whole blocks are read past the page cache, and its first and last one may have been asked for
// already by neighbours in the file: a large run has a margin on each side for as much.
#include "io/loader/assembly.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sprat::io {
namespace {

/// Of a run's memory on either side: the largest block of direct reads.
constexpr std::uint64_t margin_bytes = 4096;
/// Runs that have margins: two are less than a hundredth of it.
constexpr std::uint64_t least_with_margins = std::uint64_t{1} << 20;

bool follows(const Request& one, const Request& next) {
  return one.extent.file == next.extent.file &&
         one.extent.offset + one.extent.bytes == next.extent.offset;
}

/// The plan's requests in the order in which they lie in files.
std::vector<const Request*> in_files(const ReadPlan& plan) {
  std::vector<const Request*> requests;
  requests.reserve(plan.requests.size());
  for (const Request& request : plan.requests) {
    requests.push_back(&request);
  }
  std::ranges::sort(requests, {}, [](const Request* one) {
    return std::pair(one->extent.file, one->extent.offset);
  });
  return requests;
}

bool lie_side_by_side(const std::vector<std::span<const std::byte>>& pieces) {
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i - 1].data() + pieces[i - 1].size() != pieces[i].data()) {
      return false;
    }
  }
  return true;
}

/// Of a file's bytes, to where they belong beside others. Bytes that are there already are left
/// alone: a sample that has the same neighbours may be looked at.
void bring(std::span<const std::byte> from, std::byte* to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (to[i] != from[i]) {
      to[i] = from[i];
    }
  }
}

std::size_t total_bytes(const std::vector<std::span<const std::byte>>& pieces) {
  std::size_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces) {
    bytes += piece.size();
  }
  return bytes;
}

}  // namespace

void Assembly::take_memory(const ReadPlan& plan) {
  const std::vector<const Request*> requests = in_files(plan);
  for (std::size_t first = 0; first < requests.size();) {
    std::size_t behind = first + 1;
    std::uint64_t bytes = requests[first]->extent.bytes;
    for (; behind < requests.size() && follows(*requests[behind - 1], *requests[behind]);
         ++behind) {
      bytes += requests[behind]->extent.bytes;
    }
    const std::uint64_t margin = bytes >= least_with_margins ? margin_bytes : 0;
    const PooledMemory memory = pool_->take(margin + bytes + margin);
    std::uint64_t at = margin;
    for (; first < behind; ++first) {
      const std::uint64_t length = requests[first]->extent.bytes;
      held_.emplace(requests[first]->id, HeldRequest{.memory = memory,
                                                     .bytes = memory->subspan(at, length),
                                                     .extent = requests[first]->extent,
                                                     .waiting = {}});
      at += length;
    }
  }
}

bool Assembly::follow_in_file(const SamplePiece& one, const SamplePiece& next) const {
  const Extent &first = held_.at(one.request).extent, &second = held_.at(next.request).extent;
  return first.file == second.file &&
         first.offset + one.from + one.bytes == second.offset + next.from;
}

/// Of the first and the last piece of a sample, if the run beside it has room. Otherwise a large
/// sample would be copied, and a neighbour's memory kept, for the sake of a block. What comes to a
/// margin are the file's bytes next to the run's, whoever wants them.
Assembly::Margin Assembly::margin_of(const SamplePiece& piece,
                                     std::span<const SamplePiece> sample) const {
  const bool is_first = &piece == &sample.front(), is_last = &piece == &sample.back();
  if (is_first == is_last || piece.bytes > margin_bytes) {
    return {};  // the only one, one in the midst, or a long one
  }
  const SamplePiece& beside = is_first ? sample[1] : sample[sample.size() - 2];
  const HeldRequest& held = held_.at(beside.request);
  const std::span<std::byte> memory = *held.memory;
  std::byte* const begin = held.bytes.data() + beside.from;
  std::byte* const end = begin + beside.bytes;
  const bool at_margin = is_first ? begin == memory.data() + margin_bytes
                                  : end + margin_bytes == memory.data() + memory.size();
  // Of two short ones each would be brought beside the other.
  if (memory.size() < least_with_margins + 2 * margin_bytes || !at_margin ||
      (sample.size() == 2 && beside.bytes <= margin_bytes) ||
      !(is_first ? follow_in_file(piece, beside) : follow_in_file(beside, piece))) {
    return {};
  }
  return {.at = is_first ? begin - piece.bytes : end, .memory = held.memory};
}

std::vector<SampleRef> Assembly::expect(const std::shared_ptr<BatchBuild>& build,
                                        const ReadPlan& plan,
                                        std::span<const std::size_t> samples) {
  take_memory(plan);
  build->progress.resize(build->batch->samples.size());
  // Pieces of requests that are whole already are delivered once all are counted: a sample is
  // complete when none is missing, and none would be missing after its first piece.
  std::unordered_map<std::uint64_t, std::vector<Piece>> here;
  for (auto first = plan.pieces.begin(); first != plan.pieces.end();) {
    const auto behind = std::find_if(first, plan.pieces.end(), [&](const SamplePiece& piece) {
      return piece.position != first->position;
    });
    const std::size_t sample = first->position - build->begin;
    SampleProgress& progress = build->progress[sample];
    for (const SamplePiece& planned : std::span(first, behind)) {
      HeldRequest& held = held_.at(planned.request);
      Margin margin = build->copies ? Margin{} : margin_of(planned, std::span(first, behind));
      if (margin.at == nullptr) {
        progress.requests.push_back(planned.request);
      }
      (held.whole ? here[planned.request] : held.waiting)
          .push_back({.build = build,
                      .sample = sample,
                      .number = progress.pieces.size(),
                      .at = planned.at,
                      .from = planned.from,
                      .bytes = planned.bytes,
                      .margin = std::move(margin)});
      ++held.wanted;
      progress.pieces.emplace_back();
      ++progress.missing;
    }
    first = behind;
  }
  std::vector<SampleRef> done;
  for (const std::size_t sample : samples) {
    // A record of no bytes has no pieces: nothing would ever bring it to an end.
    if (build->progress[sample].missing == 0) {
      complete(*build, sample);
      done.push_back({build, sample});
    }
  }
  for (const auto& [request, pieces] : here) {
    const std::vector<SampleRef> more = deliver(request, pieces);
    done.insert(done.end(), more.begin(), more.end());
  }
  return done;
}

std::vector<SampleRef> Assembly::deliver(std::uint64_t request, const std::vector<Piece>& pieces) {
  const HeldRequest& held = held_.at(request);
  std::vector<SampleRef> done;
  std::uint64_t copied = 0;
  for (const Piece& piece : pieces) {
    const std::span<const std::byte> from = held.bytes.subspan(piece.from, piece.bytes);
    DataBatch::Impl& batch = *piece.build->batch;
    SampleProgress& progress = piece.build->progress[piece.sample];
    if (piece.build->copies) {
      const std::span<std::byte> row = batch.row(piece.sample);
      std::memcpy(row.data() + piece.at, from.data(), from.size());
      progress.pieces[piece.number] = row.subspan(piece.at, from.size());
      ++copied;  // nobody looks at the request for this piece any more
    } else if (piece.margin.at != nullptr) {
      bring(from, piece.margin.at);
      progress.pieces[piece.number] = {piece.margin.at, from.size()};
      ++copied;
    } else {
      progress.pieces[piece.number] = from;
      if (batch.memory.empty() || batch.memory.back() != held.memory) {
        batch.memory.push_back(held.memory);
      }
    }
    if (--progress.missing == 0) {
      complete(*piece.build, piece.sample);
      done.push_back({piece.build, piece.sample});
    }
  }
  unwant(request, copied);
  return done;
}

void Assembly::complete(BatchBuild& build, std::size_t sample) {
  const std::vector<std::span<const std::byte>>& pieces = build.progress[sample].pieces;
  std::span<const std::byte>& bytes = build.batch->samples[sample].bytes;
  if (pieces.empty()) {
    bytes = {};
  } else if (lie_side_by_side(pieces)) {
    bytes = {pieces.front().data(), total_bytes(pieces)};
  } else {
    // Of documents that were packed without rows, and of samples that meet an older request.
    const PooledMemory joined = pool_->take(total_bytes(pieces));
    std::byte* to = joined->data();
    for (const std::span<const std::byte> piece : pieces) {
      to = std::ranges::copy(piece, to).out;
    }
    build.batch->memory.push_back(joined);
    bytes = *joined;
  }
}

std::vector<SampleRef> Assembly::arrived(std::uint64_t request) {
  HeldRequest& held = held_.at(request);
  held.whole = true;
  // Taken out first: the request may be gone when deliver() returns.
  return deliver(request, std::exchange(held.waiting, {}));
}

void Assembly::unwant(std::uint64_t request, std::uint64_t pieces) {
  const auto found = held_.find(request);
  found->second.wanted -= pieces;
  if (found->second.wanted == 0) {
    held_.erase(found);
    unwanted_.push_back(request);
  }
}

void Assembly::drop(const SampleRef& sample) {
  if (sample.build->progress.empty()) {
    return;  // it was copied out of the page cache: no request is wanted for it
  }
  SampleProgress& progress = sample.build->progress[sample.sample];
  if (!sample.build->copies) {
    for (const std::uint64_t request : progress.requests) {
      unwant(request, 1);
    }
  }
  progress = {};
}

void Assembly::let_go(const BatchBuild& build) {
  if (build.copies) {
    return;  // its requests were let go of as they came
  }
  for (const SampleProgress& progress : build.progress) {
    for (const std::uint64_t request : progress.requests) {
      unwant(request, 1);
    }
  }
}

std::vector<std::shared_ptr<BatchBuild>> Assembly::builds_of(std::uint64_t request) const {
  std::vector<std::shared_ptr<BatchBuild>> builds;
  for (const Piece& piece : held_.at(request).waiting) {
    if (std::ranges::find(builds, piece.build) == builds.end()) {
      builds.push_back(piece.build);
    }
  }
  return builds;
}

}  // namespace sprat::io
