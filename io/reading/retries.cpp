#include "io/reading/retries.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"

namespace sprat::io {
namespace {

constexpr std::string_view server_advice =
    "look at the storage server that has this target, and at the network to it";

// ESHUTDOWN and ENOTCONN come where a server of Lustre has thrown this client out, which it joins
// again by itself; ESTALE where a file's handle is older than its server.
constexpr std::array all_error_rules = {
    ErrorRule{EINTR, Remedy::again, false, ""},
    ErrorRule{EAGAIN, Remedy::again, false, ""},
    ErrorRule{EIO, Remedy::reopen, true, server_advice},
    ErrorRule{ETIMEDOUT, Remedy::reopen, true, server_advice},
    ErrorRule{ENOTCONN, Remedy::reopen, true, server_advice},
    ErrorRule{ESHUTDOWN, Remedy::reopen, true, server_advice},
    ErrorRule{EREMOTEIO, Remedy::reopen, true, server_advice},
    ErrorRule{ESTALE, Remedy::reopen, false, "is the file being replaced while it is read?"},
    ErrorRule{ENOMEM, Remedy::reopen, false, "the kernel lacks memory: read with a smaller budget"},
    ErrorRule{EMFILE, Remedy::reopen, false, "raise the limit of open files (ulimit -n)"},
    ErrorRule{ENFILE, Remedy::reopen, false, "this host has too many files open"},
    ErrorRule{
        ENODATA, Remedy::give_up, false,
        "its data are neither on storage nor in the archive: restore the file from its origin"},
    ErrorRule{ENOENT, Remedy::give_up, false,
              "the file has gone: put it back, or index the dataset anew"},
    ErrorRule{EACCES, Remedy::give_up, false, "let this user read the file"},
    ErrorRule{EINVAL, Remedy::give_up, false,
              "if files are read directly here, read them through the page cache"},
};
constexpr ErrorRule unknown_rule{0, Remedy::give_up, false, ""};

constexpr Moment least_back_off = std::chrono::milliseconds(100);
constexpr Moment most_back_off = std::chrono::seconds(10);

}  // namespace

std::span<const ErrorRule> error_rules() { return all_error_rules; }

const ErrorRule& rule_of(int error) {
  const auto* found = std::ranges::find(all_error_rules, error, &ErrorRule::error);
  return found == all_error_rules.end() ? unknown_rule : *found;
}

Moment back_off(std::uint64_t key, std::uint32_t attempt) {
  Moment whole = least_back_off;
  for (std::uint32_t before = 1; before < attempt && whole < most_back_off; ++before) {
    whole = std::min(whole * 5 / 4, most_back_off);
  }
  const std::uint64_t random = mix_bits(key + golden_step * attempt);
  return whole / 2 + Moment(static_cast<std::int64_t>(
                         random % static_cast<std::uint64_t>(whole.count() / 2 + 1)));
}

Moment retry_time(std::string_view file_system) {
  struct RetryTime {
    std::string_view kind;
    std::chrono::seconds time;
  };
  // Persistent FSx replaces a server "within minutes"; on scratch what a lost server had is gone
  // and reads fail at once. Of other systems with servers nothing is promised.
  static constexpr std::array rows = {RetryTime{"lustre", std::chrono::seconds(600)},
                                      RetryTime{"fsx-persistent", std::chrono::seconds(600)},
                                      RetryTime{"fsx-scratch", std::chrono::seconds(5)},
                                      RetryTime{"nfs", std::chrono::seconds(600)},
                                      RetryTime{"ext", std::chrono::seconds(2)},
                                      RetryTime{"xfs", std::chrono::seconds(2)},
                                      RetryTime{"btrfs", std::chrono::seconds(2)},
                                      RetryTime{"tmpfs", std::chrono::seconds(2)},
                                      RetryTime{"overlay", std::chrono::seconds(2)}};
  const auto* found = std::ranges::find(rows, file_system, &RetryTime::kind);
  return found == rows.end() ? std::chrono::seconds(60) : found->time;
}

std::string describe(const ReadFailure& failure, std::string_view path) {
  const Request& request = failure.request;
  const std::uint64_t missing = request.extent.offset + request.in_file_bytes - failure.offset;
  const std::string what = text("cannot read ", missing, " bytes at ", failure.offset, " of ", path,
                                " (storage target ", request.target, "): ");
  if (failure.error == 0) {
    return what +
           "the file ends there, but was longer when it was indexed; index it anew, or put "
           "the whole file back";
  }
  const std::string_view advice = rule_of(failure.error).advice;
  const double seconds = std::chrono::duration<double>(failure.lasted).count();
  return text(what, std::strerror(failure.error), " (errno ", failure.error, "), at ",
              failure.attempts, failure.attempts == 1 ? " try" : " tries",
              failure.attempts > 1 ? text(" within ", fmt::format("{:.1f}", seconds), " s") : "",
              advice.empty() ? "" : "; ", advice);
}

std::string describe(const HungRead& hung, std::string_view path) {
  const Extent& extent = hung.request.extent;
  const double seconds = std::chrono::duration<double>(hung.lasts).count();
  return text("a read of ", extent.bytes, " bytes at ", extent.offset, " of ", path,
              " (storage target ", hung.request.target, ") has not returned for ",
              fmt::format("{:.0f}", seconds), " s and cannot be taken back; ", server_advice);
}

}  // namespace sprat::io
