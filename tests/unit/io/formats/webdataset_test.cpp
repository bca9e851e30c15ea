// Tars as webdataset reads them: names, kinds of headers, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/io/formats/expecting.hpp"
#include "tests/unit/io/formats/specimens.hpp"

namespace sprat::io {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The key and the fields of each sample, as "key: field field".
std::vector<std::string> samples_of(const std::string& tar) {
  const FileIndex index = indexed("webdataset", {{"a.tar", tar}}, "a.tar");
  std::vector<std::string> samples;
  for (const RecordSpan& span : index.spans) {
    std::string line;
    for (const Field& field : format_named("webdataset").fields("", 0, record_in(tar, span))) {
      line += line.empty() ? std::string(text_in(field.bytes)) + ":" : " " + field.name;
    }
    samples.push_back(line);
  }
  return samples;
}

std::string tar_complaint(const std::string& tar) {
  return complaint("webdataset", {{"a.tar", tar}}, "a.tar");
}

/// A pax header with one record "LENGTH key=value\n".
std::string pax(const std::string& key, const std::string& value, char type = 'x') {
  std::size_t length = key.size() + value.size() + 3;
  length += std::to_string(length + std::to_string(length).size()).size();
  return tar_member("pax", std::to_string(length) + " " + key + "=" + value + "\n", type);
}

TEST(WebDataset, splits_names_as_webdataset_does) {
  struct Case {
    std::string name, sample;  // no sample: the member is none of one
  };
  // Each as webdataset.tariterators.base_plus_ext() and tar_file_iterator() say.
  const std::vector<Case> cases = {
      {"a.jpg", "a: jpg"},
      {"a.b/c.jpg", "a.b/c: jpg"},
      {"x.seg.png", "x: seg.png"},
      {"./a.jpg", "./a: jpg"},
      {"a/.x", "a/: x"},
      {"a/b/.x", "a/b/: x"},
      {"x.y/b/.z", "x.y/b/: z"},
      {"a.b/.x", ""},
      {"./.x", ""},
      {".x", ""},
      {"a/b.c/d", ""},
      {"README", ""},
      {"A.JPG", "A: jpg"},
      {"a.", "a: "},
      {"__meta__.json", "__meta__: json"},
      {"__meta__", ""},
      {"__a.b__", ""},
      {"__meta__/a.txt", ""},
      {"x/__meta__/a.txt", "x/__meta__/a: txt"},
  };
  for (const Case& one : cases) {
    const auto samples = samples_of(tar_member(one.name, "data") + tar_end());
    EXPECT_EQ(samples, one.sample.empty() ? std::vector<std::string>()
                                          : std::vector<std::string>{one.sample})
        << one.name;
  }
}

TEST(WebDataset, members_with_one_key_are_a_sample_if_they_follow_each_other) {
  EXPECT_THAT(samples_of(tar_member("a.x", "1") + tar_member("a.y", "2") + tar_member("b.x", "3") +
                         tar_member("a.x", "4") + tar_end()),
              ElementsAre("a: x y", "b: x", "a: x"));
}

TEST(WebDataset, a_sample_of_very_many_members_costs_no_more_for_each) {
  // "frame.000001.jpg": the first dot stands before the number, so all of them are one sample.
  constexpr int members = 100'000;
  std::string tar;
  for (int member = 0; member < members; ++member) {
    tar += tar_header("frame." + std::to_string(member) + ".jpg", 0);
  }
  const FileIndex index = indexed("webdataset", {{"a.tar", tar + tar_end()}}, "a.tar");
  ASSERT_EQ(index.spans.size(), 1u);
  EXPECT_EQ(fields_told("webdataset", "", tar).size(), members + 1u);
}

TEST(WebDataset, folders_links_and_names_without_a_dot_are_passed_over) {
  EXPECT_THAT(samples_of(tar_member("a/", "", '5') + tar_member("a/1.x", "1") +
                         tar_member("README", "read me") + tar_member("a/1.link", "", '2') +
                         tar_member("a/1.y", "2") + tar_end()),
              ElementsAre("a/1: x y"));
}

TEST(WebDataset, links_have_no_data_whatever_their_size_says) {
  EXPECT_THAT(samples_of(tar_header("a.link", 1 << 20, '1') + tar_member("a.x", "1") + tar_end()),
              ElementsAre("a: x"));
}

TEST(WebDataset, takes_long_names_of_gnu_and_of_pax) {
  const std::string longer(300, 'n');
  EXPECT_THAT(
      samples_of(tar_member("././@LongLink", longer + ".x\0"s, 'L') + tar_member("cut", "1") +
                 pax("path", longer + ".y") + tar_member("cut", "2") + tar_end()),
      ElementsAre(longer + ": x y"));
}

TEST(WebDataset, takes_a_prefix_of_ustar) {
  std::string header = tar_header("1.x", 0);
  header.replace(345, 6, "folder");
  unsigned sum = 8 * ' ';
  for (std::size_t at = 0; at < header.size(); ++at) {
    sum += at < 148 || at >= 156 ? static_cast<unsigned char>(header[at]) : 0u;
  }
  char digits[8] = {};
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 6, digits);
  EXPECT_THAT(samples_of(header + tar_end()), ElementsAre("folder/1: x"));
}

TEST(WebDataset, a_record_begins_with_the_header_of_its_name) {
  const std::string named = tar_member("././@LongLink", "a.y\0"s, 'L') + tar_member("cut", "22");
  const std::string tar = tar_member("b.x", "1") + named + tar_end();
  const FileIndex index = indexed("webdataset", {{"a.tar", tar}}, "a.tar");
  ASSERT_EQ(index.spans.size(), 2u);
  EXPECT_EQ(index.spans[1], (RecordSpan{1024, 1024 + 512 + 2}));
}

TEST(WebDataset, sizes_may_be_of_pax_or_of_base_256) {
  std::string header = tar_header("a.x", 0);
  const std::string number = "\x80\0\0\0\0\0\0\0\0\0\0\x03"s;  // 3
  header.replace(124, 12, number);
  unsigned sum = 8 * ' ';
  for (std::size_t at = 0; at < header.size(); ++at) {
    sum += at < 148 || at >= 156 ? static_cast<unsigned char>(header[at]) : 0u;
  }
  char digits[8] = {};
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 6, digits);
  const std::string data = "abc" + std::string(509, '\0');
  const std::string tar =
      header + data + pax("size", "3") + tar_header("a.y", 0) + data + tar_end();
  const FileIndex index = indexed("webdataset", {{"a.tar", tar}}, "a.tar");
  ASSERT_EQ(index.spans.size(), 1u);
  EXPECT_THAT(fields_told("webdataset", "", tar.substr(0, index.spans[0].bytes)),
              ElementsAre("__key__:text=a", "x:bytes=abc", "y:bytes=abc"));
}

TEST(WebDataset, refuses_what_would_be_read_as_something_else) {
  const std::string one = tar_member("a.x", "1");
  EXPECT_THAT(tar_complaint(one + tar_member("a.X", "2") + tar_end()), HasSubstr("second member"));
  EXPECT_THAT(tar_complaint(one + tar_member("a.__key__", "2") + tar_end()),
              HasSubstr("second member"));
  EXPECT_THAT(tar_complaint(tar_member("a.x", "1", 'S') + tar_end()), HasSubstr("sparse"));
  EXPECT_THAT(tar_complaint(pax("GNU.sparse.major", "1") + one + tar_end()), HasSubstr("sparse"));
  EXPECT_THAT(tar_complaint(tar_member("a.x", "1", 'M') + tar_end()), HasSubstr("volume"));
  EXPECT_THAT(tar_complaint(pax("size", "9", 'g') + one + tar_end()), HasSubstr("global"));
  EXPECT_THAT(tar_complaint(pax("path", "b.x") + tar_end()), HasSubstr("another member"));
}

TEST(WebDataset, says_where_a_tar_is_damaged) {
  std::string tar = tar_member("a.x", "1") + tar_member("a.y", "2") + tar_end();
  tar[1024 + 3] ^= 1;
  EXPECT_THAT(tar_complaint(tar), HasSubstr("a.tar: at byte 1024 there is no header"));
}

TEST(WebDataset, a_tar_that_ends_early_is_cut_short) {
  const std::string tar = tar_member("a.x", "1") + tar_member("b.x", "2");
  EXPECT_THAT(tar_complaint(tar), HasSubstr("end mark"));
  EXPECT_THAT(tar_complaint(tar.substr(0, 1024 + 100)), HasSubstr("end mark"));
  EXPECT_THAT(tar_complaint(tar.substr(0, 1024 + 512)), HasSubstr("does not fit"));
}

TEST(WebDataset, tars_that_were_joined_are_refused) {
  const std::string tar = tar_member("a.x", "1") + tar_end();
  EXPECT_THAT(tar_complaint(tar + tar), HasSubstr("joined"));
  EXPECT_EQ(tar_complaint(tar + std::string(20 * 512, '\0')), "");
}

TEST(WebDataset, a_tar_without_samples_has_no_records) {
  EXPECT_THAT(samples_of(tar_end()), IsEmpty());
  EXPECT_THAT(samples_of(tar_member("README", "x") + tar_end()), IsEmpty());
}

TEST(WebDataset, names_may_be_in_no_encoding) {
  EXPECT_THAT(samples_of(tar_member("\xff\xfe.x", "1") + tar_end()), ElementsAre("\xff\xfe: x"));
}

}  // namespace
}  // namespace sprat::io
