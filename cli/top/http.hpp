// As much of HTTP as a scrape of metrics takes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sprat::cli {

/// More than that is no request of a scraper's.
constexpr std::size_t most_request_bytes = 8192;

/// What a request that has come so far gets. Nothing: more of it must come first.
enum class HttpVerdict {
  metrics = 200,
  malformed = 400,
  not_found = 404,
  not_allowed = 405,
  too_large = 431
};
std::optional<HttpVerdict> judge_request(std::string_view so_far);
/// The whole answer, after which the connection is closed. `metrics` is for that verdict alone.
std::string http_answer(HttpVerdict verdict, std::string_view metrics);

/// Where to listen.
struct ListenAddress {
  std::string host, port;
};
/// "HOST:PORT", "[::1]:PORT", or "PORT" for this host alone. Throws UsageError.
ListenAddress parse_listen_address(std::string_view text);

}  // namespace sprat::cli
