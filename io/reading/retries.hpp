// What is done when a read fails: by its errno, how often, how long, and what people are told in
// the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/reading/request.hpp"

namespace sprat::io {

/// Since some beginning, the same one for all calls: the clock is the caller's.
using Moment = std::chrono::nanoseconds;

enum class Remedy : std::uint8_t {
  again,    ///< At once: nothing is wrong.
  reopen,   ///< The file is opened anew, after a while.
  give_up,  ///< It would fail again.
};

struct ErrorRule {
  int error = 0;
  Remedy remedy = Remedy::give_up;
  /// The storage target is at fault, or its server: others that it has would fail, too.
  bool blames_target = false;
  std::string_view advice;  ///< Behind the system's words, in messages.
};

std::span<const ErrorRule> error_rules();
/// That of the table, or giving up.
const ErrorRule& rule_of(int error);

/// How long is waited before try number `attempt` (from 1): 0.1 s, a quarter as long again each
/// time, up to 10 s; times 0.5 to 1 by `key`, so that hosts that failed together do not come back
/// together. An outage is noticed to be over within a quarter of what it lasted, about.
Moment back_off(std::uint64_t key, std::uint32_t attempt);

/// How long reads of a file system are tried again, by the kind that a probe names: servers are
/// replaced within minutes, disks of this host are not.
Moment retry_time(std::string_view file_system);

/// A read that was given up.
struct ReadFailure {
  Request request;
  std::uint64_t offset = 0;    ///< In the file, of the first byte that did not come.
  int error = 0;               ///< errno's; 0: the file ended there.
  std::uint32_t attempts = 0;  ///< That failed.
  Moment lasted{};             ///< From the first of them to the last.
};
/// Names file, offset, bytes, target, the system's reason, tries and a remedy.
std::string describe(const ReadFailure& failure, std::string_view path);

/// A read that has not come back. Nobody can take it back from the kernel; people can be told.
struct HungRead {
  Request request;
  Moment lasts{};
};
/// Names file, offset, bytes, target, and how long.
std::string describe(const HungRead& hung, std::string_view path);

}  // namespace sprat::io
