// Keys of tokens, and which configurations may encrypt.
#include "comm/encryption/job_key.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

using ::testing::HasSubstr;

std::string hexadecimal(const TlsKey& key) {
  std::string text;
  for (const std::byte byte : key) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[std::to_integer<std::size_t>(byte >> 4)];
    text += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

// RFC 5869, A.1 and A.3: the first 32 bytes.
TEST(JobKey, is_derived_as_the_standard_says) {
  const std::string secret(22, '\x0b');
  std::string salt, label;
  for (int byte = 0; byte <= 0x0c; ++byte) {
    salt += static_cast<char>(byte);
  }
  for (int byte = 0xf0; byte <= 0xf9; ++byte) {
    label += static_cast<char>(byte);
  }
  EXPECT_EQ(hexadecimal(derive_key(secret, salt, label)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
  EXPECT_EQ(hexadecimal(derive_key(secret, "", "")),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST(JobKey, is_another_for_each_token_and_use) {
  const TlsKey control = job_key("a token of one job", KeyUse::control);
  EXPECT_EQ(control, job_key("a token of one job", KeyUse::control));
  EXPECT_NE(control, job_key("a token of one job", KeyUse::data));
  EXPECT_NE(control, job_key("a token of a second", KeyUse::control));
}

TEST(JobKey, is_wanted_where_the_configuration_allows_it) {
  struct Case {
    bool encrypt;
    const char* token;
    const char* provider;
    const char* refusal;  ///< Part of it; null: it is allowed.
  };
  const Case cases[] = {
      {false, "", "tcp", nullptr},
      {true, "0123456789abcdef", "", nullptr},
      {true, "0123456789abcdef", "sockets", nullptr},
      {true, "", "", "there is no SPRAT_TOKEN"},
      {true, "0123456789abcde", "", "SPRAT_TOKEN has 15 characters"},
      {true, "0123456789abcdef", "tcp", "SPRAT_PROVIDER is \"tcp\", which is libfabric's"},
      {true, "0123456789abcdef", "efa", "SPRAT_PROVIDER is \"efa\", which is libfabric's"},
  };
  for (const Case& one : cases) {
    Config config;
    config.encrypt = one.encrypt;
    config.token = one.token;
    config.provider = one.provider;
    try {
      EXPECT_EQ(encryption_of(config) == Encryption::on, one.encrypt);
      EXPECT_EQ(one.refusal, nullptr) << one.token << " " << one.provider;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      ASSERT_NE(one.refusal, nullptr) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(one.refusal));
      EXPECT_EQ(std::string(error.what()).find("0123456789"), std::string::npos) << "the token";
    }
  }
}

}  // namespace
}  // namespace sprat::comm
