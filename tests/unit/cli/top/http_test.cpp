// Requests as scrapers, strangers and noise make them.
#include "cli/top/http.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct RequestCase {
  std::string request;
  std::optional<HttpVerdict> verdict;
};

TEST(TopRequests, are_answered_if_they_are_for_metrics) {
  for (const RequestCase& one : std::vector<RequestCase>{
           {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", HttpVerdict::metrics},
           {"GET /metrics HTTP/1.0\r\n\r\n", HttpVerdict::metrics},
           {"GET /metrics?x=1 HTTP/1.1\r\n\r\n", HttpVerdict::metrics},
           {"GET / HTTP/1.1\r\n\r\n", HttpVerdict::not_found},
           {"GET /metrics/../etc HTTP/1.1\r\n\r\n", HttpVerdict::not_found},
           {"POST /metrics HTTP/1.1\r\n\r\n", HttpVerdict::not_allowed},
           {"GET /metrics HTTP/2\r\n\r\n", HttpVerdict::malformed},
           {"GET /metrics\r\n\r\n", HttpVerdict::malformed},
           {"GET  /metrics HTTP/1.1\r\n\r\n", HttpVerdict::malformed},
           {"get /metrics HTTP/1.1\r\n\r\n", HttpVerdict::malformed},
           {"GET http://a/metrics HTTP/1.1\r\n\r\n", HttpVerdict::malformed},
           {"\r\n\r\n", HttpVerdict::malformed},
           {std::string("\0\0\0\0\r\n\r\n", 8), HttpVerdict::malformed},
           {"\x16\x03\x01\r\n\r\n", HttpVerdict::malformed},
           {"", std::nullopt},
           {"GET /metrics HTTP/1.1\r\nHost: a\r\n", std::nullopt},
           {std::string(most_request_bytes - 1, 'a'), std::nullopt},
           {std::string(most_request_bytes, 'a'), HttpVerdict::too_large},
       }) {
    EXPECT_EQ(judge_request(one.request), one.verdict) << one.request.substr(0, 60);
  }
}

// Whatever comes ends in a verdict before it takes more memory than a request may.
TEST(TopRequests, of_noise_end) {
  std::mt19937_64 random(1);
  const std::string good = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  int metrics = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string request = good;
    for (std::uint64_t changes = random() % 4; changes > 0; --changes) {
      request[random() % request.size()] = static_cast<char>(random());
    }
    request.resize(request.size() - random() % 3);
    metrics += judge_request(request) == HttpVerdict::metrics ? 1 : 0;
    request.resize(most_request_bytes, static_cast<char>(random()));
    EXPECT_TRUE(judge_request(request).has_value());
  }
  EXPECT_GT(metrics, 1000);
}

TEST(TopRequests, get_answers_that_close_the_connection) {
  EXPECT_EQ(http_answer(HttpVerdict::metrics, "a 1\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 4\r\nConnection: close\r\n\r\na 1\n");
  const std::string refused = http_answer(HttpVerdict::not_allowed, "secret");
  EXPECT_THAT(refused, HasSubstr("405 Method Not Allowed\r\n"));
  EXPECT_THAT(refused, HasSubstr("Allow: GET\r\n"));
  EXPECT_THAT(refused, Not(HasSubstr("secret")));
}

TEST(ListenAddresses, are_of_this_host_alone_unless_one_is_named) {
  struct AddressCase {
    const char* text;
    const char* host;
    const char* port;
  };
  for (const AddressCase& one : std::vector<AddressCase>{{"9400", "127.0.0.1", "9400"},
                                                         {"0.0.0.0:0", "0.0.0.0", "0"},
                                                         {"[::1]:65535", "::1", "65535"},
                                                         {"host7:80", "host7", "80"}}) {
    const ListenAddress address = parse_listen_address(one.text);
    EXPECT_EQ(address.host, one.host) << one.text;
    EXPECT_EQ(address.port, one.port) << one.text;
  }
  for (const char* bad : {"", ":", ":80", "a:", "a:b", "65536", "123456", "host7", "-1"}) {
    EXPECT_THROW(parse_listen_address(bad), UsageError) << bad;
  }
}

}  // namespace
}  // namespace sprat::cli
