// Copies, and which of them go past the caches.
#include "collectives/engine/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "collectives/plan/plan.hpp"

namespace sprat::collectives {
namespace {

// Measured on an EPYC with 1 MiB of second-level cache a core and 32 MiB of third-level cache, by
// bench/compare/run against its two limits, plain and past the caches: bytes of the payload of a
// reduction, of input and output together of other collectives.
constexpr std::size_t least_reduced = 4 << 20, least_copied = 16 << 20;
// Roots change, so receivers' buffers have been read by peers: from here on, asking for these lines
// costs more than writing them to memory.
constexpr std::size_t least_broadcast = 32 << 10;

// memcpy() moves long strings by the processor's own instruction for them, which writes past the
// caches some MiB on: 4 MiB staged so for a peer to read took a sixth longer than in pieces.
constexpr std::size_t most_cached = 512 << 10;

#if defined(__SSE2__)
constexpr std::size_t line_bytes = 64;

void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  auto* out = reinterpret_cast<__m128i*>(to);
  const auto* in = reinterpret_cast<const __m128i*>(from);
  for (std::size_t line = 0; line < lines; ++line, in += 4, out += 4) {
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
}
#endif

}  // namespace

[[gnu::hot]] void copy(std::byte* to, const std::byte* from, std::size_t bytes,
                       bool past_cache) noexcept {
#if defined(__SSE2__)
  if (past_cache) {
    const std::size_t beside =
        (line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes;
    const std::size_t before = std::min(bytes, beside);
    const std::size_t lines = (bytes - before) / line_bytes;
    const std::size_t streamed = before + lines * line_bytes;
    std::memcpy(to, from, before);
    std::memcpy(to + streamed, from + streamed, bytes - streamed);
    stream_lines(to + before, from + before, lines);
    return;
  }
#else
  static_cast<void>(past_cache);
#endif
  for (std::size_t done = 0; done < bytes; done += most_cached) {
    std::memcpy(to + done, from + done, std::min(bytes - done, most_cached));
  }
}

[[gnu::hot]] bool goes_past_cache(const Problem& problem, bool oversubscribed) {
  if (problem.collective == Collective::broadcast) {
    // Ranks that share caches fill them together.
    const Grouping& grouping = *problem.grouping;
    const std::size_t ranks = grouping.members(grouping.host_of(problem.rank)).size();
    return oversubscribed ? problem.payload_bytes() * ranks >= least_copied
                          : problem.payload_bytes() >= least_broadcast;
  }
  if (reduces(problem.collective)) {
    return problem.payload_bytes() >= least_reduced;
  }
  const auto bytes = [&](Buffer buffer, DType type) {
    return elements_of(problem, buffer, problem.rank) * size_of(type);
  };
  return bytes(Buffer::input, problem.input) + bytes(Buffer::output, problem.output) >=
         least_copied;
}

bool sends_results(const Problem& problem) {
  return problem.collective == Collective::all_reduce && problem.grouping->hosts() > 1;
}

}  // namespace sprat::collectives
