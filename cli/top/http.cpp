#include "cli/top/http.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

const char* reason(HttpVerdict verdict) noexcept {
  switch (verdict) {
    case HttpVerdict::metrics:
      return "OK";
    case HttpVerdict::malformed:
      return "Bad Request";
    case HttpVerdict::not_found:
      return "Not Found";
    case HttpVerdict::not_allowed:
      return "Method Not Allowed";
    case HttpVerdict::too_large:
      return "Request Header Fields Too Large";
  }
  return "";
}

bool is_method(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= 'A' && c <= 'Z'; });
}

HttpVerdict judge_line(std::string_view line) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return HttpVerdict::malformed;
  }
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_method(method) || !target.starts_with('/') ||
      target.find(' ') != std::string_view::npos ||
      (version != "HTTP/1.0" && version != "HTTP/1.1")) {
    return HttpVerdict::malformed;
  }
  if (method != "GET") {
    return HttpVerdict::not_allowed;
  }
  target = target.substr(0, target.find('?'));
  return target == "/metrics" ? HttpVerdict::metrics : HttpVerdict::not_found;
}

}  // namespace

std::optional<HttpVerdict> judge_request(std::string_view so_far) {
  const std::size_t line_end = so_far.find("\r\n");
  if (so_far.find("\r\n\r\n") == std::string_view::npos) {
    return so_far.size() < most_request_bytes ? std::nullopt
                                              : std::optional(HttpVerdict::too_large);
  }
  return judge_line(so_far.substr(0, line_end));
}

std::string http_answer(HttpVerdict verdict, std::string_view metrics) {
  const std::string words = fmt::format("{}; there is GET /metrics\n", reason(verdict));
  const bool well = verdict == HttpVerdict::metrics;
  const std::string_view body = well ? metrics : std::string_view(words);
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\n{}Connection: close\r\n\r\n{}",
      static_cast<int>(verdict), reason(verdict), body.size(),
      verdict == HttpVerdict::not_allowed ? "Allow: GET\r\n" : "", body);
}

ListenAddress parse_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  const bool is_port = !port.empty() && port.size() <= 5 &&
                       std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; }) &&
                       std::stoi(std::string(port)) <= 65535;
  if (!is_port || host.empty()) {
    throw UsageError(
        fmt::format("--listen {} is neither PORT nor HOST:PORT, as 9400 or 127.0.0.1:9400", text));
  }
  return {std::string(host), std::string(port)};
}

}  // namespace sprat::cli
