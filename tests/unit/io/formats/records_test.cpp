// What single formats refuse, and what they make of records: tokens, Megatron, TFRecord, MDS, JSON
// lines, texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/io/formats/expecting.hpp"
#include "tests/unit/io/formats/specimens.hpp"

namespace sprat::io {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

Specimen specimen_named(const std::string& name) {
  for (Specimen& specimen : specimens()) {
    if (specimen.name == name) {
      return specimen;
    }
  }
  throw std::logic_error("no specimen " + name);
}

/// "0a000000" for 10.
std::string u32(std::uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

TEST(Tokens, without_a_header_want_a_type) {
  const FilesByName files = {{"a.bin", "abcd"}};
  EXPECT_THAT(complaint("tokens", files, "a.bin"), HasSubstr("--token-type"));
  EXPECT_THAT(complaint("tokens", files, "a.bin", {.token_type = "u12"}), HasSubstr("u12"));
  EXPECT_EQ(indexed("tokens", files, "a.bin", {.token_type = "u32"}).count, 1u);
  EXPECT_THAT(complaint("tokens", {{"a.bin", "abc"}}, "a.bin", {.token_type = "u16"}),
              HasSubstr("no whole number"));
}

TEST(Tokens, that_begin_with_a_magic_by_chance_are_plain_only_if_their_type_is_said) {
  const FilesByName files = {{"a.bin", u32(20240520) + u32(9) + std::string(2000, 'x')}};
  EXPECT_THAT(complaint("tokens", files, "a.bin"), HasSubstr("begins with llm.c's magic"));
  EXPECT_EQ(indexed("tokens", files, "a.bin", {.token_type = "u16"}).count, 1004u);
}

TEST(Tokens, behind_a_header_are_as_many_as_it_says) {
  const std::string head = u32(20240520) + u32(1) + u32(3) + std::string(1012, '\0');
  EXPECT_EQ(indexed("tokens", {{"a.bin", head + "aabbcc"}}, "a.bin").count, 3u);
  EXPECT_THAT(complaint("tokens", {{"a.bin", head + "aabb"}}, "a.bin"), HasSubstr("cut short"));
  EXPECT_THAT(complaint("tokens", {{"a.bin", head + "aabbccdd"}}, "a.bin"), HasSubstr("too long"));
  // A type does not make a file with a header one without.
  EXPECT_THAT(complaint("tokens", {{"a.bin", head + "aabb"}}, "a.bin", {.token_type = "u16"}),
              HasSubstr("cut short"));
  EXPECT_THAT(complaint("tokens", {{"a.bin", head + "aabbcc"}}, "a.bin", {.token_type = "u32"}),
              HasSubstr("by its header"));
}

TEST(Tokens, of_evaluations_are_refused) {
  EXPECT_THAT(complaint("tokens", {{"a.bin", u32(20240522) + u32(1) + std::string(2000, '\0')}},
                        "a.bin", {.token_type = "u16"}),
              HasSubstr("evaluation"));
}

TEST(Tokens, several_are_one_field) {
  const auto fields = format_named("tokens").fields("u16", 0, bytes_in("aabbcc"));
  ASSERT_EQ(fields.size(), 1u);
  EXPECT_THAT(fields[0].shape, ElementsAre(3u));
}

TEST(MegatronPairs, want_their_idx) {
  Specimen pair = specimen_named("megatron");
  pair.files.erase("a.idx");
  EXPECT_THAT(complaint("megatron", pair.files, "a.bin"), HasSubstr("a.idx"));
}

TEST(MegatronPairs, are_of_one_length) {
  Specimen pair = specimen_named("megatron");
  pair.files["a.bin"] += "xx";
  EXPECT_THAT(complaint("megatron", pair.files, "a.bin"), HasSubstr("too long"));
}

TEST(MegatronPairs, may_have_a_mode_for_each_sequence) {
  Specimen pair = specimen_named("megatron");
  pair.files["a.idx"] += "\0\1"s;
  EXPECT_EQ(indexed("megatron", pair.files, "a.bin").spans, pair.spans);
}

TEST(MegatronPairs, that_lie_about_their_counts_are_refused_before_memory_is_made) {
  Specimen pair = specimen_named("megatron");
  pair.files["a.idx"].replace(18, 8, std::string(8, '\xff'));
  EXPECT_THAT(complaint("megatron", pair.files, "a.bin"), HasSubstr("too few"));
}

TEST(MegatronPairs, of_more_sequences_than_tokens_are_of_two_datasets) {
  // As a file of holes says it: sequences of nothing, which lie one after another.
  std::string idx = specimen_named("megatron").files.at("a.idx").substr(0, 34);
  const std::uint64_t sequences = 3, documents = 0;
  std::memcpy(idx.data() + 18, &sequences, sizeof sequences);
  std::memcpy(idx.data() + 26, &documents, sizeof documents);
  idx.append(sequences * 12, '\0');
  EXPECT_THAT(complaint("megatron", {{"a.bin", ""}, {"a.idx", idx}}, "a.bin"),
              HasSubstr("a.bin has 0 tokens, and a.idx speaks of 3 sequences"));
}

TEST(TfRecord, a_flipped_bit_of_a_payload_is_found) {
  const Specimen records = specimen_named("tfrecord");
  const std::string& file = records.files.at("a.tfrecord");
  for (std::size_t at = 0; at < records.spans[1].bytes; ++at) {
    std::string record = file.substr(records.spans[1].offset);
    record[at] ^= 4;
    EXPECT_THAT(fields_complaint("tfrecord", "", record), HasSubstr("damaged")) << at;
  }
}

TEST(TfRecord, another_length_is_found_by_its_checksum) {
  Specimen records = specimen_named("tfrecord");
  records.files["a.tfrecord"][25] ^= 1;
  EXPECT_THAT(complaint("tfrecord", records.files, "a.tfrecord"),
              HasSubstr("a.tfrecord: at byte 25"));
}

TEST(MdsShards, of_pickles_are_refused) {
  Specimen shard = specimen_named("mds");
  std::string& bytes = shard.files["shard.00000.mds"];
  bytes.replace(bytes.find("\"int\""), 5, "\"pkl\"");
  EXPECT_THAT(complaint("mds", shard.files, shard.file), HasSubstr("pickles"));
}

TEST(MdsShards, that_are_compressed_are_refused_by_name) {
  EXPECT_THAT(complaint("mds", {{"shard.00000.mds.br", "xxxx"}}, "shard.00000.mds.br"),
              HasSubstr("without compression"));
}

/// The context of a shard with one column.
std::string column(const std::string& encoding, std::uint64_t size) {
  const std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return u32(1) + "c" + u32(static_cast<std::uint32_t>(encoding.size())) + encoding + u32(8) +
         bytes;
}

TEST(MdsShards, arrays_say_what_their_encoding_leaves_open) {
  // Code 17 is i16; three dimensions with extents of two bytes are 3 << 2 | 1.
  const std::string values(12, 'v');
  const std::string shape = from_hex("0d 0100 0200 0300");
  const auto shape_of = [](const std::string& context, const std::string& record) {
    return format_named("mds").fields(context, 0, bytes_in(record)).at(0).shape;
  };
  EXPECT_THAT(shape_of(column("ndarray", 0), u32(20) + from_hex("11") + shape + values),
              ElementsAre(1u, 2u, 3u));
  EXPECT_THAT(shape_of(column("ndarray:int16", 0), u32(19) + shape + values),
              ElementsAre(1u, 2u, 3u));
  EXPECT_THAT(shape_of(column("ndarray:int16:2,3", 12), values), ElementsAre(2u, 3u));
  EXPECT_THAT(fields_complaint("mds", column("ndarray:int16:2,4", 12), values),
              HasSubstr("asks for 16"));
  EXPECT_THAT(fields_complaint("mds", column("ndarray:int16:x", 12), values), HasSubstr("\"x\""));
  EXPECT_THAT(fields_complaint("mds", column("ndarray", 0), u32(1) + "\x07"),
              HasSubstr("unknown type 7"));
}

TEST(MdsShards, columns_of_a_sample_fill_it) {
  EXPECT_EQ(fields_told("mds", column("bytes", 0), u32(2) + "hi"),
            std::vector<std::string>{"c:bytes=hi"});
  EXPECT_EQ(fields_told("mds", column("jpeg", 0), u32(2) + "hi"),
            std::vector<std::string>{"c:bytes=hi"});
  EXPECT_THAT(fields_complaint("mds", column("str", 0), u32(3) + "hi"), HasSubstr("too short"));
  EXPECT_THAT(fields_complaint("mds", column("str", 0), u32(1) + "hi"), HasSubstr("more"));
}

std::string catalogue_complaint(const std::string& json) {
  const FilesByName files = {{"index.json", json}};
  MemoryFile file(files, "index.json");
  try {
    format_named("mds").catalogue(file);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(MdsShards, are_listed_by_index_json) {
  const std::string shard =
      R"({"format": "mds", "version": 2, "samples": 3, "raw_data": {"basename": "a.mds", "bytes": 9},
          "compression": null, "zip_data": )";
  const FilesByName files = {{"index.json", R"({"version": 2, "shards": [)" + shard + "null}]}"}};
  MemoryFile file(files, "index.json");
  const auto entries = format_named("mds").catalogue(file);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "a.mds");
  EXPECT_EQ(entries[0].bytes, 9u);
  EXPECT_EQ(entries[0].records, 3u);
  EXPECT_THAT(catalogue_complaint(R"({"shards": [)" + shard + R"({"basename": "a.mds.zstd"}}]})"),
              HasSubstr("compress"));
  EXPECT_THAT(catalogue_complaint(R"({"shards": [3]})"), HasSubstr("basename"));
  EXPECT_THAT(catalogue_complaint("{"), HasSubstr("no JSON object"));
}

TEST(JsonLines, keys_become_fields) {
  EXPECT_THAT(fields_told("jsonl", "",
                          R"( { "a" : "b" ,"n":-1.5e3,"t":true, "z":null,"o":{"x":["}",{}]} })"),
              ElementsAre("a:text=b", "n:json=-1.5e3", "t:json=true", "z:json=null",
                          R"(o:json={"x":["}",{}]})"));
  EXPECT_THAT(fields_told("jsonl", "", "{}"), ElementsAre());
  EXPECT_THAT(fields_told("jsonl", "", R"({"k\"ey":"\\\"\u20ac"})"),
              ElementsAre("k\"ey:text=\\\"\xe2\x82\xac"));
}

TEST(JsonLines, that_are_no_objects_are_refused) {
  for (const char* line :
       {"[1]", "3", "{\"a\":}", "{\"a\":1}x", "{", "", "{\"a\":\"\xff\"}", R"({"a":"\ud800"})"}) {
    EXPECT_THAT(fields_complaint("jsonl", "", line), HasSubstr("no JSON object")) << line;
  }
  EXPECT_THAT(fields_complaint("jsonl", "", R"({"a":1,"a":2})"), HasSubstr("twice"));
}

TEST(JsonLines, begin_behind_a_byte_order_mark) {
  EXPECT_EQ(indexed("jsonl", {{"a", "\xef\xbb\xbf{}\n{}"}}, "a").spans,
            (std::vector<RecordSpan>{{3, 2}, {6, 2}}));
}

TEST(JsonLines, of_windows_end_before_the_carriage_return) {
  const std::string file = "\xef\xbb\xbf{\"a\": 1}\r\n\r\n \t\r\n  {\"a\": 2} \r\n{\"a\": 3}\r";
  const FileIndex index = indexed("jsonl", {{"a.jsonl", file}}, "a.jsonl");
  std::vector<std::string> lines;
  for (const RecordSpan span : index.spans) {
    lines.push_back(file.substr(span.offset, span.bytes));
  }
  EXPECT_THAT(lines, ElementsAre("{\"a\": 1}", "{\"a\": 2}", "{\"a\": 3}"));
  for (const char* wide : {"\xff\xfe{", "\xfe\xff"}) {
    EXPECT_THAT(complaint("jsonl", {{"a.jsonl", wide}}, "a.jsonl"), HasSubstr("is UTF-16"));
  }
}

TEST(JsonLines, are_found_over_the_borders_of_pieces) {
  std::string file;
  std::vector<RecordSpan> spans;
  for (std::size_t bytes = 1; file.size() < 5'000'000; bytes = bytes * 7 % 1'000'003) {
    spans.push_back({file.size(), bytes});
    file += std::string(bytes, 'x') + "\n";
  }
  EXPECT_EQ(indexed("jsonl", {{"a", file}}, "a").spans, spans);
}

TEST(Texts, separators_are_found_over_the_borders_of_pieces) {
  const std::string separator = "<|endoftext|>";
  // Around the border, at 2^20, a separator lies at every offset.
  for (std::size_t before = (1 << 20) - 20; before < (1 << 20) + 3; ++before) {
    const std::string file = std::string(before, 'x') + separator + "second" + separator;
    EXPECT_EQ(indexed("text", {{"a", file}}, "a", {.separator = separator}).spans,
              (std::vector<RecordSpan>{{0, before}, {before + separator.size(), 6}}));
  }
}

TEST(Texts, separators_that_overlap_are_found_from_the_left) {
  EXPECT_EQ(indexed("text", {{"a", "xaaay"}}, "a", {.separator = "aa"}).spans,
            (std::vector<RecordSpan>{{0, 1}, {3, 2}}));
}

}  // namespace
}  // namespace sprat::io
