// Gives metrics to whoever asks by HTTP.
#pragma once

#include <netdb.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "cli/top/http.hpp"

namespace sprat::cli {

/// One thread. Connections are few and short; what comes slowly, or never, is closed.
class MetricsServer {
 public:
  /// Throws Error{unavailable} if nobody can listen there.
  explicit MetricsServer(const ListenAddress& address);
  /// At the first of what the address was found to be where that is possible. Throws likewise.
  MetricsServer(const addrinfo& candidates, const ListenAddress& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// "http://127.0.0.1:9400/metrics", with the port that was got if 0 was asked for.
  std::string url() const;
  /// For ever.
  [[noreturn]] void serve(const std::function<std::string()>& metrics);

 private:
  using Clock = std::chrono::steady_clock;
  struct Scraper;
  bool accepts(Clock::time_point now) const;
  void accept_one();
  bool move(Scraper& one, const std::function<std::string()>& metrics);

  int listener_ = -1;
  std::list<Scraper> scrapers_;
  std::optional<Clock::time_point> rests_until_;  ///< Descriptors were lacking.
  bool told_of_descriptors_ = false;
};

}  // namespace sprat::cli
