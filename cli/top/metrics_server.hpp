// Gives metrics to whoever asks by HTTP.
#pragma once

#include <functional>
#include <list>
#include <string>

#include "cli/top/http.hpp"

namespace sprat::cli {

/// One thread. Connections are few and short; what comes slowly, or never, is closed.
class MetricsServer {
 public:
  /// Throws Error{unavailable} if nobody can listen there.
  explicit MetricsServer(const ListenAddress& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// "http://127.0.0.1:9400/metrics", with the port that was got if 0 was asked for.
  std::string url() const;
  /// For ever.
  [[noreturn]] void serve(const std::function<std::string()>& metrics);

 private:
  struct Scraper;
  void accept_one();
  bool move(Scraper& one, const std::function<std::string()>& metrics);

  int listener_ = -1;
  std::list<Scraper> scrapers_;
};

}  // namespace sprat::cli
