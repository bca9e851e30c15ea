// Ranks agree, rank 0 gets an id of NCCL's, all join by it, and then all have joined, or none.
#include "plugins/nccl_abi/real/joining.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/base/config.hpp"
#include "comm/base/log.hpp"
#include "plugins/nccl_abi/devices.hpp"
#include "plugins/nccl_abi/unique_id.hpp"
#include "sprat/config.hpp"

namespace sprat::nccl::real {
namespace {

/// Once a process: programs make many communicators, all of which come to the same.
void say_once(LogLevel level, const std::string& sentence) {
  static std::mutex& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!sentence.empty() && said.insert(sentence).second) {
    level == LogLevel::warn ? log().warn("{}", sentence) : log().info("{}", sentence);
  }
}

template <class Value>
std::vector<Value> gathered(Communicator& control, const Value& mine) {
  static_assert(std::has_unique_object_representations_v<Value>, "its bytes are all of it");
  std::vector<Value> all(static_cast<std::size_t>(control.size()));
  control
      .all_gather({&mine, sizeof(mine), DType::u8},
                  {all.data(), all.size() * sizeof(mine), DType::u8}, {.digested = false})
      .wait();
  return all;
}

std::string text_of(const char* variable) {
  const char* const text = environment(variable);
  return text == nullptr ? "" : text;
}

/// What this rank has; a library is loaded only where something is to go over to it.
struct Own {
  Offer offer;
  const Library* library = nullptr;
};

Own own_of(int rank, int device, bool has_device) {
  const std::string path = text_of("SPRAT_NCCL_LIB");
  const Wish wish = read_wish(text_of("SPRAT_NCCL_HAND_OVER"));
  Own own;
  own.offer.host = host_number();
  own.offer.kinds = wish.kinds.bits;
  own.offer.between_hosts = wish.between_hosts ? 1 : 0;
  own.offer.named = path.empty() ? 0 : 1;
  if (has_device && !path.empty()) {
    const std::string address = bus_address(device);
    std::memcpy(own.offer.device.data(), address.data(),
                std::min(address.size(), own.offer.device.size() - 1));
  }
  if (has_device && !path.empty() && wish.kinds.bits != 0) {
    const FoundLibrary& found = library_at(path);
    own.library = found.library;
    own.offer.version = found.library == nullptr ? 0 : found.library->version;
    if (found.library == nullptr) {
      say_once(LogLevel::warn,
               "SPRAT_NCCL_LIB on rank " + std::to_string(rank) + ": " + found.missing);
    }
  }
  return own;
}

constexpr std::uint32_t failed_itself = 1, heard_of_it = 2;

/// How far a rank has come, and rank 0's id.
struct Step {
  std::array<char, SPRAT_NCCL_ID_BYTES> id{};
  std::uint32_t failed = 0;
  std::array<char, 252> why{};  ///< Cut where it is longer.
};

void note(Step& step, const std::string& why, std::uint32_t how = failed_itself) {
  step.failed = how;
  std::memcpy(step.why.data(), why.data(), std::min(why.size(), step.why.size() - 1));
}

/// The first that failed, in words; empty: none. One that has only heard of a failure comes last.
std::string failure_among(const std::vector<Step>& steps) {
  for (const std::uint32_t how : {failed_itself, heard_of_it}) {
    for (std::size_t at = 0; at < steps.size(); ++at) {
      if (steps[at].failed == how) {
        return "rank " + std::to_string(at) + ": " + steps[at].why.data();
      }
    }
  }
  return {};
}

std::string stays(const std::string& why) {
  return "nothing is handed over to NCCL's own library: " + why;
}

Step id_of(const Library& library, int rank) {
  Step step;
  ncclUniqueId id{};
  if (rank == 0) {
    const ncclResult_t result = library.GetUniqueId(&id);
    if (result != ncclSuccess) {
      note(step, std::string("ncclGetUniqueId: ") + library.GetErrorString(result));
    }
  }
  std::memcpy(step.id.data(), id.internal, step.id.size());
  return step;
}

}  // namespace

std::unique_ptr<HandOver> join_beside(Communicator& control, Communicator& data, int device,
                                      bool has_device) {
  const int rank = control.rank();
  const auto say = [&](LogLevel level, const std::string& sentence) {
    if (rank == 0) {
      say_once(level, sentence);
    }
  };
  const Own own = own_of(rank, device, has_device);
  const Agreement agreement = agree(gathered(control, own.offer));
  if (agreement.kinds.bits == 0) {
    // Who has asked for nothing need not hear that it is so.
    if (!agreement.why_not.empty()) {
      say(own.offer.kinds == 0 ? LogLevel::info : LogLevel::warn, stays(agreement.why_not));
    }
    return nullptr;
  }
  const std::vector<Step> begun = gathered(control, id_of(*own.library, rank));
  if (const std::string failed = failure_among(begun); !failed.empty()) {
    say(LogLevel::warn, stays(failed));
    return nullptr;
  }
  ncclUniqueId id{};
  std::memcpy(id.internal, begun.front().id.data(), begun.front().id.size());
  // Whoever fails ends it, and nobody waits for that rank any more; not between hosts, where some
  // networks' revokes end the job (Communicator::revoke()).
  Communicator trial = control.duplicate("joining NCCL's own library");
  const bool one_host =
      std::ranges::count(control.hosts(), control.hosts().front()) == std::ssize(control.hosts());
  std::unique_ptr<HandOver> made;
  Step step;
  try {
    made = std::make_unique<HandOver>(*own.library, id,
                                      Place{.rank = rank, .size = control.size(), .device = device},
                                      data, trial, Config::from_environment().join_timeout);
  } catch (const Error& error) {
    note(step, error.what(), trial.failure() ? heard_of_it : failed_itself);
    if (one_host) {
      trial.revoke(error.what());
    }
  }
  if (const std::string failed = failure_among(gathered(control, step)); !failed.empty()) {
    say(LogLevel::warn, stays(failed));
    return nullptr;
  }
  made->open(agreement.kinds);
  say(LogLevel::info, "operations on memory of devices are handed over to NCCL " +
                          version_text(own.library->version) + ", " + text_of("SPRAT_NCCL_LIB"));
  return made;
}

}  // namespace sprat::nccl::real
