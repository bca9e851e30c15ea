// What the fuzzers started from and what they found, once more in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

using Names = std::set<std::string>;

/// Of each target the inputs that are understood; all others in its folder are refused. An input of
/// an earlier version is refused, too, and then shows the fuzzer nothing of what lies behind: so a
/// change of what is written changes these.
const std::map<std::string_view, Names> understood = {
    {"handshake", {"greeting", "greeting_and_wrong_proof", "hello", "hello_of_another_size"}},
    {"control",
     {"different_purposes", "exchange", "exchange_expires", "failed", "farewell", "handout",
      "hubs_own_words", "lost", "mismatch", "stall"}},
    {"rank_words", {"axis", "late", "most_ranks", "part", "result", "shared_parts"}},
    {"ring",
     {"announce_grant_piece", "message", "message_too_long_for_its_buffer", "refuse_withdraw"}},
    {"streams",
     {"announce_granted_and_withdrawn", "contact", "expected_to_a_receive_and_to_none",
      "expects_a_long_message", "grant_credit_refuse", "hello_and_a_guess", "message_in_parts",
      "message_unexpected_and_too_long", "message_whole", "piece_ahead_of_its_message",
      "scatter_and_pieces"}},
    {"text",
     {"configuration", "contact", "door", "door_name", "interfaces", "rules", "topology",
      "tuning_file"}},
    {"safetensors", {"empty_and_scalar", "nothing", "padded", "two_tensors"}},
    {"manifest", {"box_of_no_dimensions", "boxes", "boxes_and_rows", "nothing_in_it", "whole"}},
    {"pipeline",
     {"message_to_nobody", "messages_text", "one_f_one_b_csv", "overlap", "parameters_and_tapes",
      "waits_for_ever"}},
    {"partition",
     {"edge_to_itself", "file_of_a_partition", "gpt2", "layers", "module", "operations"}},
    {"tokenizer", {"merge_given_twice", "merges", "merges_in_dos_lines", "whole", "words"}},
    {"stream_state", {"all_skipped", "beginning", "epoch_of_64_bits", "skips"}},
    {"lustre",
     {"extending", "foreign", "fsx_default", "mirrors", "mounts", "on_the_metadata_server",
      "option", "option_of_throughput", "plain", "released", "swapped"}},
    {"report", {"killed", "whole"}},
    {"webdataset",
     {"gnu_long_name", "pax_global", "pax_path_and_size", "webdataset", "webdataset_of_two"}},
    {"tfrecord", {"example", "feature_without_list", "numbers_not_packed", "tfrecord"}},
    {"mds", {"index_json", "mds"}},
    {"megatron", {"megatron"}},
    {"tokens", {"magic_alone", "tokens_of_llm_c"}},
    {"jsonl", {"jsonl"}},
    {"documents", {"text", "text_with_separators"}},
    {"tensors", {"safetensors"}},
    {"dataset_index", {"spans", "stride"}},
    {"caches", {"message", "records", "shape"}},
    {"digests", {"name_of_a_collective", "name_of_a_message", "run", "values"}},
};

TEST(Corpus, harms_nobody_and_is_understood_where_it_is_valid) {
  for (const Target& target : all_targets()) {
    const auto folder =
        std::filesystem::path(SPRAT_SOURCE_DIR) / "tests/system/fuzz/corpus" / target.name;
    int inputs = 0;
    Names taken;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      SCOPED_TRACE(entry.path());
      if (target.run(std::as_bytes(std::span(bytes)))) {
        taken.insert(entry.path().filename());
      }
      ++inputs;
    }
    EXPECT_GT(inputs, 0) << target.name;
    const auto expected = understood.find(target.name);
    EXPECT_EQ(taken, expected == understood.end() ? Names() : expected->second) << target.name;
  }
}

}  // namespace
}  // namespace sprat::fuzz
