#include "tests/unit/io/formats/specimens.hpp"

#include <fmt/format.h>

#include <cctype>

namespace sprat::io {
namespace {

using namespace std::string_literals;

ExpectedField text_field_of(const std::string& name, const std::string& text) {
  return {name, "text", {}, text};
}
ExpectedField bytes_field_of(const std::string& name, const std::string& bytes) {
  return {name, "bytes", {}, bytes};
}

Specimen whole_text() {
  return {.name = "text",
          .format = "text",
          .file = "a.txt",
          .files = {{"a.txt", "one\ntwo\n"}},
          .spans = {{0, 8}},
          .fields = {{text_field_of("text", "one\ntwo\n")}},
          .recognised = false,
          .any_cut_fails = false};
}

Specimen separated_text() {
  return {.name = "text_with_separators",
          .format = "text",
          .file = "a.txt",
          .files = {{"a.txt", "one<|e|><|e|>two<|e|>"}},
          .options = {.separator = "<|e|>"},
          .spans = {{0, 3}, {13, 3}},
          .fields = {{text_field_of("text", "one")}, {text_field_of("text", "two")}},
          .recognised = false,
          .any_cut_fails = false};
}

Specimen json_lines() {
  return {.name = "jsonl",
          .format = "jsonl",
          .file = "a.jsonl",
          .files = {{"a.jsonl",
                     "{\"text\":\"a\\u00e9\\n\",\"n\":[1, {\"b\":2}]}\r\n\n  \n {\"x\": \"y\"}"}},
          .spans = {{0, 37}, {44, 10}},
          .fields = {{text_field_of("text", "a\xc3\xa9\n"), {"n", "json", {}, "[1, {\"b\":2}]"}},
                     {text_field_of("x", "y")}},
          .recognised = false,
          .any_cut_fails = false};
}

Specimen plain_tokens() {
  return {.name = "tokens",
          .format = "tokens",
          .file = "a.bin",
          .files = {{"a.bin", from_hex("0100 0200 ffff")}},
          .options = {.token_type = "u16"},
          .spans = {{0, 2}, {2, 2}, {4, 2}},
          .fields = {{{"tokens", "u16", {1}, from_hex("0100")}},
                     {{"tokens", "u16", {1}, from_hex("0200")}},
                     {{"tokens", "u16", {1}, from_hex("ffff")}}},
          .recognised = false,
          .any_cut_fails = false};
}

/// 20240801 is 0x0134d9a1 (little-endian a1 d9 34 01), version 7, two tokens.
Specimen llmc_tokens() {
  return {.name = "tokens_of_llm_c",
          .format = "tokens",
          .file = "a.bin",
          .files = {{"a.bin", from_hex("a1d93401 07000000 02000000") + std::string(1012, '\0') +
                                  from_hex("01000000 00f40100")}},
          .spans = {{1024, 4}, {1028, 4}},
          .fields = {{{"tokens", "u32", {1}, from_hex("01000000")}},
                     {{"tokens", "u32", {1}, from_hex("00f40100")}}}};
}

Specimen megatron_pair() {
  return {.name = "megatron",
          .format = "megatron",
          .file = "a.bin",
          .files = {{"a.bin", from_hex("0100 0200 0300")},
                    {"a.idx", "MMIDIDX\0\0"s + from_hex("0100000000000000 08"  // version, u16
                                                        "0200000000000000"     // sequences
                                                        "0300000000000000"     // documents + 1
                                                        "02000000 01000000"    // lengths
                                                        "0000000000000000 0400000000000000"
                                                        "0000000000000000 0100000000000000"
                                                        "0200000000000000")}},
          .spans = {{0, 4}, {4, 2}},
          .fields = {{{"tokens", "u16", {2}, from_hex("0100 0200")}},
                     {{"tokens", "u16", {1}, from_hex("0300")}}}};
}

/// As GNU tar wrote it: tar --format=ustar --owner=0 --group=0 --numeric-owner --mode=0644
/// --mtime=@0 -cf g.tar a.txt a.cls
std::string gnu_tar_header(const std::string& name, const std::string& size,
                           const std::string& sum) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644").replace(108, 7, "0000000").replace(116, 7, "0000000");
  block.replace(124, 11, size).replace(136, 11, "00000000000").replace(148, 6, sum);
  block.replace(155, 2, " 0")
      .replace(257, 8,
               "ustar\0"
               "00"s);
  return block.replace(329, 7, "0000000").replace(337, 7, "0000000");
}

Specimen gnu_tar() {
  const std::string tar = gnu_tar_header("a.txt", "00000000002", "010156") + "hi" +
                          std::string(510, '\0') +
                          gnu_tar_header("a.cls", "00000000001", "010117") + "7" +
                          std::string(511, '\0') + std::string(10240 - 2048, '\0');
  return {.name = "webdataset",
          .format = "webdataset",
          .file = "a.tar",
          .files = {{"a.tar", tar}},
          .spans = {{0, 1537}},
          .fields = {{text_field_of("__key__", "a"), text_field_of("txt", "hi"),
                      text_field_of("cls", "7")}},
          .any_cut_fails = false};  // an end mark is one block, and padding may be shorter
}

Specimen tar_of_samples() {
  const std::string tar = tar_member("x/1.jpg", "JPEG") + tar_member("x/1.json", "{}") +
                          tar_member("x/2.jpg", std::string(600, 'j')) + tar_end();
  return {
      .name = "webdataset_of_two",
      .format = "webdataset",
      .file = "a.tar",
      .files = {{"a.tar", tar}},
      .spans = {{0, 1538}, {2048, 1112}},
      .fields = {{text_field_of("__key__", "x/1"),
                  bytes_field_of("jpg", "JPEG"),
                  {"json", "json", {}, "{}"}},
                 {text_field_of("__key__", "x/2"), bytes_field_of("jpg", std::string(600, 'j'))}},
      .any_cut_fails = false};
}

/// Checksums are those of google-crc32c, masked. The CRC-32C of "123456789" is e3069283, the check
/// value that its catalogues give.
Specimen tensorflow_records() {
  const std::string example = from_hex(
      "0a350a0e0a016212090a070a01780a02797a0a0d0a0166120812060a040000c03f0a140a016c120f1a0d0a0b01ff"
      "ffffffffffffffff01");
  return {.name = "tfrecord",
          .format = "tfrecord",
          .file = "a.tfrecord",
          .files = {{"a.tfrecord",
                     from_hex("0900000000000000 37f97139") + "123456789" + from_hex("e5b08ac7") +
                         from_hex("3700000000000000 e7e8ca59") + example + from_hex("f62feafb")}},
          .spans = {{0, 25}, {25, 71}},
          .fields = {{bytes_field_of("bytes", "123456789")},
                     {bytes_field_of("bytes", example),
                      bytes_field_of("b", "x"),
                      bytes_field_of("b", "yz"),
                      {"f", "f32", {1}, from_hex("0000c03f")},
                      {"l", "i64", {2}, from_hex("0100000000000000 ffffffffffffffff")}}},
          .any_cut_fails = false};  // between two records nothing tells that more were there
}

Specimen mds_shard() {
  const std::string config =
      R"({"column_encodings": ["int", "str", "ndarray:uint16"], "column_names": ["n", "s", "t"], )"
      R"("column_sizes": [8, null, null], "compression": null, "format": "mds", "hashes": [], )"
      R"("size_limit": 67108864, "version": 2})";
  // Sizes of s and t, then n, s, t. t has one dimension with extents of a byte: 1 << 2 | 0, 2.
  const std::string first =
      from_hex("02000000 06000000 0700000000000000") + "hi" + from_hex("04 02 0100 0200");
  const std::string second = from_hex("00000000 04000000 ffffffffffffffff 04 01 0900");
  const std::uint32_t begin = 4 + 3 * 4 + static_cast<std::uint32_t>(config.size());
  std::string shard = from_hex("02000000");
  for (const std::size_t offset :
       {std::size_t{begin}, begin + first.size(), begin + first.size() + second.size()}) {
    for (int byte = 0; byte < 4; ++byte) {
      shard.push_back(static_cast<char>(offset >> (8 * byte) & 0xff));
    }
  }
  return {.name = "mds",
          .format = "mds",
          .file = "shard.00000.mds",
          .files = {{"shard.00000.mds", shard + config + first + second}},
          .spans = {{begin, first.size()}, {begin + first.size(), second.size()}},
          .fields = {{{"n", "i64", {}, from_hex("0700000000000000")},
                      text_field_of("s", "hi"),
                      {"t", "u16", {2}, from_hex("0100 0200")}},
                     {{"n", "i64", {}, from_hex("ffffffffffffffff")},
                      text_field_of("s", ""),
                      {"t", "u16", {1}, from_hex("0900")}}}};
}

Specimen tensors() {
  const std::string json = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("a":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]}})";
  return {.name = "safetensors",
          .format = "safetensors",
          .file = "a.safetensors",
          .files = {{"a.safetensors",
                     from_hex("6f 00000000000000") + json + from_hex("0000803f 00000040 803f")}},
          .spans = {{119, 8}, {127, 2}},
          .fields = {{{"b", "f32", {2}, from_hex("0000803f 00000040")}},
                     {{"a", "bf16", {1, 1}, from_hex("803f")}}}};
}

}  // namespace

std::string from_hex(std::string_view digits) {
  std::string bytes;
  int high = -1;
  for (const char digit : digits) {
    if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) {
      continue;
    }
    const int value = digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
    if (high >= 0) {
      bytes.push_back(static_cast<char>(high << 4 | value));
    }
    high = high >= 0 ? -1 : value;
  }
  return bytes;
}

std::string tar_header(const std::string& name, std::size_t bytes, char type) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name).replace(100, 7, "0000644");
  block.replace(124, 11, fmt::format("{:011o}", bytes)).replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, 8,
                "ustar\0"
                "00"s);
  unsigned sum = 0;
  for (const char byte : block) {
    sum += static_cast<unsigned char>(byte);
  }
  return block.replace(148, 8, fmt::format("{:06o}", sum) + "\0 "s);
}

std::string tar_member(const std::string& name, const std::string& data, char type) {
  return tar_header(name, data.size(), type) + data +
         std::string((512 - data.size() % 512) % 512, '\0');
}

std::string tar_end() { return std::string(1024, '\0'); }

std::vector<Specimen> specimens() {
  return {whole_text(),         separated_text(), json_lines(), plain_tokens(),
          llmc_tokens(),        megatron_pair(),  gnu_tar(),    tar_of_samples(),
          tensorflow_records(), mds_shard(),      tensors()};
}

}  // namespace sprat::io
