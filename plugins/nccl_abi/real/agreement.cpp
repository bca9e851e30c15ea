// What all ranks offer, made one. Pure: every rank comes to the same answer.
#include "plugins/nccl_abi/real/agreement.hpp"

#include <algorithm>
#include <cstddef>

#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl::real {
namespace {

struct Word {
  std::string_view text;
  std::uint32_t kinds;
};
/// A send that one library has and a receive that the other one has would never meet, so they go
/// over together.
constexpr std::array words = {Word{"all_reduce", Kinds::bit(Kind::all_reduce)},
                              Word{"broadcast", Kinds::bit(Kind::broadcast)},
                              Word{"reduce", Kinds::bit(Kind::reduce)},
                              Word{"all_gather", Kinds::bit(Kind::all_gather)},
                              Word{"reduce_scatter", Kinds::bit(Kind::reduce_scatter)},
                              Word{"all_to_all", Kinds::bit(Kind::all_to_all)},
                              Word{"gather", Kinds::bit(Kind::gather)},
                              Word{"scatter", Kinds::bit(Kind::scatter)},
                              Word{"send_recv", Kinds::bit(Kind::send) | Kinds::bit(Kind::recv)}};

Kinds all_kinds() {
  Kinds all;
  for (const Word& word : words) {
    all.bits |= word.kinds;
  }
  return all;
}

std::uint32_t kinds_of(std::string_view word) {
  std::string known;
  for (const Word& one : words) {
    if (one.text == word) {
      return one.kinds;
    }
    known.append(" ").append(one.text);
  }
  refuse(ncclInvalidArgument, "SPRAT_NCCL_HAND_OVER has \"" + std::string(word) +
                                  "\"; it is all, none, or a comma list of:" + known);
}

std::string rank(std::size_t at) { return "rank " + std::to_string(at); }

/// What all must have alike; empty where they have. Nobody looks for a library that is to do
/// nothing.
std::string difference(std::span<const Offer> offers) {
  const Offer& first = offers.front();
  if (std::ranges::all_of(offers, [](const Offer& one) { return one.kinds == 0; })) {
    return "SPRAT_NCCL_HAND_OVER is none";
  }
  for (std::size_t at = 0; at < offers.size(); ++at) {
    const Offer& one = offers[at];
    if (one.kinds != first.kinds || one.between_hosts != first.between_hosts) {
      return "SPRAT_NCCL_HAND_OVER is not the same on " + rank(at) + " as on rank 0";
    }
    if (one.device.front() == '\0') {
      return rank(at) + " has no CUDA device";
    }
    if (one.version == 0) {
      return rank(at) + " has no library of NCCL's own that it can use";
    }
    if (one.version != first.version) {
      return "rank 0 has NCCL " + version_text(first.version) + " and " + rank(at) + " has " +
             version_text(one.version);
    }
  }
  return {};
}

/// NCCL refuses two ranks on one device.
std::string doubled_device(std::span<const Offer> offers) {
  for (std::size_t at = 1; at < offers.size(); ++at) {
    for (std::size_t before = 0; before < at; ++before) {
      if (offers[at].host == offers[before].host && offers[at].device == offers[before].device) {
        return "ranks " + std::to_string(before) + " and " + std::to_string(at) +
               " are on one device, " + offers[at].device.data();
      }
    }
  }
  return {};
}

std::string second_host(std::span<const Offer> offers) {
  for (std::size_t at = 1; at < offers.size(); ++at) {
    if (offers[at].host != offers.front().host) {
      return rank(at) +
             " is on another host than rank 0, and SPRAT_NCCL_HAND_OVER does not say "
             "which operations go over between hosts";
    }
  }
  return {};
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Wish read_wish(std::string_view text) {
  if (text.empty()) {
    return {.kinds = all_kinds(), .between_hosts = false};
  }
  if (text == "none") {
    return {};
  }
  Wish wish{.kinds = {}, .between_hosts = true};
  if (text == "all") {
    wish.kinds = all_kinds();
    return wish;
  }
  while (!text.empty()) {
    const std::size_t end = text.find(',');
    wish.kinds.bits |= kinds_of(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return wish;
}

Agreement agree(std::span<const Offer> offers) {
  bool named = false;
  for (const Offer& one : offers) {
    named = named || one.named != 0;
  }
  if (!named) {
    return {};
  }
  std::string why_not = difference(offers);
  if (!why_not.empty()) {
    return {.kinds = {}, .why_not = why_not};
  }
  const Offer& first = offers.front();
  why_not = doubled_device(offers);
  if (why_not.empty() && first.between_hosts == 0) {
    why_not = second_host(offers);
  }
  return why_not.empty() ? Agreement{.kinds = {first.kinds}, .why_not = {}}
                         : Agreement{.kinds = {}, .why_not = why_not};
}

}  // namespace sprat::nccl::real
