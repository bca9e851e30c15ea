// The C API's loaders: lines of JSON on a disk, and decode functions of C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "sprat/sprat.h"
#include "tests/unit/io/temporary_folder.hpp"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(const sprat_field& field) {
  return {static_cast<const char*>(field.data), field.bytes};
}

class CLoader : public testing::Test {
 protected:
  static constexpr int lines = 12;

  void SetUp() override {
    std::ofstream file(folder / "lines.jsonl");
    for (int line = 0; line < lines; ++line) {
      file << R"({"text": "line )" << line << R"(", "number": )" << line << "}\n";
    }
  }
  void TearDown() override { EXPECT_EQ(sprat_loader_free(loader), SPRAT_ok); }

  std::string options(const std::string& more) const {
    return R"({"sources": [{"paths": [")" + (folder / "lines.jsonl") + R"("]}],)" + more + "}";
  }
  sprat_status open(const std::string& more, const std::vector<sprat_decode_stage>& stages = {}) {
    return sprat_loader_open(options(more).c_str(), stages.data(), stages.size(), &loader);
  }
  sprat_batch* next() {
    sprat_batch* batch = nullptr;
    EXPECT_EQ(sprat_loader_next(loader, &batch), SPRAT_ok) << sprat_last_error();
    return batch;
  }
  /// The values of field "text" of each sample; frees the batch.
  static std::vector<std::string> texts(sprat_batch* batch) {
    std::vector<std::string> found;
    sprat_batch_info info = {};
    EXPECT_EQ(sprat_batch_describe(batch, &info), SPRAT_ok);
    for (size_t sample = 0; sample < info.samples; ++sample) {
      sprat_field field = {};
      EXPECT_EQ(sprat_batch_find(batch, sample, "text", &field), SPRAT_ok) << sprat_last_error();
      found.push_back(text_of(field));
    }
    EXPECT_EQ(sprat_batch_free(batch), SPRAT_ok);
    return found;
  }

  sprat::TemporaryFolder folder;
  sprat_loader* loader = nullptr;
};

constexpr const char* in_order = R"("batch": 4, "order": {"shuffle": "none", "epochs": 1})";

TEST_F(CLoader, gives_batches_until_the_last_epoch_ends) {
  ASSERT_EQ(open(in_order), SPRAT_ok) << sprat_last_error();
  uint64_t samples = 0, fingerprint = 0;
  ASSERT_EQ(sprat_loader_samples_per_epoch(loader, &samples), SPRAT_ok);
  EXPECT_EQ(samples, 12u);
  ASSERT_EQ(sprat_loader_fingerprint(loader, &fingerprint), SPRAT_ok);
  EXPECT_NE(fingerprint, 0u);
  EXPECT_THAT(texts(next()), ElementsAre("line 0", "line 1", "line 2", "line 3"));
  EXPECT_THAT(texts(next()), ElementsAre("line 4", "line 5", "line 6", "line 7"));
  EXPECT_THAT(texts(next()), ElementsAre("line 8", "line 9", "line 10", "line 11"));
  EXPECT_EQ(next(), nullptr);
}

TEST_F(CLoader, says_what_a_batch_is) {
  ASSERT_EQ(open(in_order), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_batch_free(next()), SPRAT_ok);
  sprat_batch* batch = next();
  sprat_batch_info info = {};
  ASSERT_EQ(sprat_batch_describe(batch, &info), SPRAT_ok);
  EXPECT_EQ(info.index, 1u);
  EXPECT_EQ(info.first, 4u);
  EXPECT_EQ(info.samples, 4u);
  EXPECT_EQ(info.bytes, 0u);
  sprat_sample_info sample = {};
  ASSERT_EQ(sprat_batch_sample(batch, 3, &sample), SPRAT_ok);
  EXPECT_EQ(sample.epoch, 0u);
  EXPECT_EQ(sample.source, 0u);
  EXPECT_EQ(sample.record, 7u);
  ASSERT_EQ(sample.fields, 2u);
  std::vector<std::string> names;
  for (size_t index = 0; index < sample.fields; ++index) {
    sprat_field field = {};
    ASSERT_EQ(sprat_batch_field(batch, 3, index, &field), SPRAT_ok);
    names.emplace_back(field.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("text", "number"));
  // What fields point to outlives the loader.
  sprat_field number = {};
  ASSERT_EQ(sprat_batch_find(batch, 3, "number", &number), SPRAT_ok);
  ASSERT_EQ(sprat_loader_free(loader), SPRAT_ok);
  loader = nullptr;
  EXPECT_EQ(text_of(number), "7");
  EXPECT_STREQ(number.type, "json");
  EXPECT_EQ(sprat_batch_free(batch), SPRAT_ok);
}

TEST_F(CLoader, goes_on_behind_a_state) {
  const std::string shuffled = R"("batch": 4, "order": {"seed": 5})";
  ASSERT_EQ(open(shuffled), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_batch_free(next()), SPRAT_ok);
  const char* state = nullptr;
  ASSERT_EQ(sprat_loader_state(loader, &state), SPRAT_ok);
  const std::string kept = state;
  EXPECT_LT(kept.size(), 1024u);
  const std::vector<std::string> second = texts(next()), third = texts(next());
  ASSERT_EQ(sprat_loader_free(loader), SPRAT_ok);
  ASSERT_EQ(open(shuffled), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_loader_resume(loader, kept.c_str()), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(texts(next()), second);
  EXPECT_EQ(texts(next()), third);
}

TEST_F(CLoader, reports_as_json_and_for_people) {
  ASSERT_EQ(open(in_order), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_batch_free(next()), SPRAT_ok);
  EXPECT_EQ(sprat_loader_note_step(loader, 0.5), SPRAT_ok);
  EXPECT_EQ(sprat_loader_note_step(loader, -1), SPRAT_invalid_argument);
  const char *json = nullptr, *text = nullptr;
  ASSERT_EQ(sprat_loader_report(loader, &json, &text), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(json[0], '{');
  EXPECT_STRNE(text, "");
  EXPECT_EQ(sprat_loader_report(loader, nullptr, nullptr), SPRAT_ok);
  const char* how = nullptr;
  ASSERT_EQ(sprat_loader_describe(loader, &how), SPRAT_ok);
  EXPECT_STRNE(how, "");
}

/// Puts "(sample number) text" in the place of the text, and counts its calls.
int number_text(sprat_record* record, void* context) {
  ++*static_cast<std::atomic<int>*>(context);
  sprat_field field = {};
  uint64_t sample = 0;
  size_t fields = 0;
  if (sprat_record_find(record, "text", &field) != SPRAT_ok ||
      sprat_record_sample(record, &sample) != SPRAT_ok ||
      sprat_record_fields(record, &fields) != SPRAT_ok || fields != 2 ||
      sprat_record_field(record, 2, &field) != SPRAT_invalid_argument) {
    return 1;
  }
  const std::string numbered = "(" + std::to_string(sample) + ") " + text_of(field);
  field.data = numbered.data();
  field.bytes = numbered.size();
  return sprat_record_set(record, &field) != SPRAT_ok ||
         sprat_record_remove(record, "number") != SPRAT_ok;
}

TEST_F(CLoader, decodes_by_functions_of_c) {
  std::atomic<int> calls = 0;
  ASSERT_EQ(open(in_order, {{.name = "number", .function = number_text, .context = &calls}}),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_THAT(texts(next()), ElementsAre("(0) line 0", "(1) line 1", "(2) line 2", "(3) line 3"));
  sprat_batch* second = next();
  sprat_field gone = {};
  EXPECT_EQ(sprat_batch_find(second, 0, "number", &gone), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("no field \"number\" in sample 0; there are: text"));
  EXPECT_EQ(sprat_batch_free(second), SPRAT_ok);
  EXPECT_GE(calls, 8);
  // The function is called for batches ahead until the loader is gone, and counts on this stack.
  EXPECT_EQ(sprat_loader_free(std::exchange(loader, nullptr)), SPRAT_ok);
}

TEST_F(CLoader, a_decode_function_that_fails_is_named) {
  const auto fail = [](sprat_record*, void*) { return 7; };
  ASSERT_EQ(open(in_order, {{.name = "jpeg", .function = fail, .context = nullptr}}), SPRAT_ok);
  sprat_batch* batch = nullptr;
  EXPECT_EQ(sprat_loader_next(loader, &batch), SPRAT_unavailable);
  EXPECT_THAT(sprat_last_error(), HasSubstr("decode stage \"jpeg\" returned 7"));
  EXPECT_EQ(batch, nullptr);
}

TEST_F(CLoader, refuses_what_breaks_its_contract) {
  EXPECT_EQ(open(R"("bach": 4)"), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("bach"));
  EXPECT_EQ(loader, nullptr);
  EXPECT_EQ(open(in_order, {{.name = "none", .function = nullptr, .context = nullptr}}),
            SPRAT_invalid_argument);
  EXPECT_EQ(sprat_loader_open(nullptr, nullptr, 0, &loader), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_loader_open(options(in_order).c_str(), nullptr, 1, &loader),
            SPRAT_invalid_argument);
  EXPECT_EQ(sprat_loader_next(nullptr, nullptr), SPRAT_invalid_argument);
  ASSERT_EQ(open(in_order), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_loader_resume(loader, "{}"), SPRAT_unavailable);
  sprat_batch* batch = next();
  sprat_sample_info sample = {};
  sprat_field field = {};
  EXPECT_EQ(sprat_batch_sample(batch, 4, &sample), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("sample 4 of a batch that has 4"));
  EXPECT_EQ(sprat_batch_field(batch, 0, 2, &field), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_batch_describe(batch, nullptr), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_batch_free(batch), SPRAT_ok);
  EXPECT_EQ(sprat_batch_free(nullptr), SPRAT_ok);
  EXPECT_EQ(sprat_loader_free(nullptr), SPRAT_ok);
}

}  // namespace
