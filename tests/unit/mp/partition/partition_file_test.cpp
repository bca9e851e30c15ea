// Models as text, partitions as files and by hand: what comes back, and what is refused how.
#include "mp/partition/partition_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "mp/partition/method.hpp"
#include "sprat/error.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {
namespace {

std::string refusal_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

std::string refusal_of_model(const std::string& text) {
  return refusal_of([&] { parse_model("m.json", text); });
}

const char* const three_layers =
    R"({"layers":[{"name":"a","time":3,"parameter_bytes":8},{"name":"b","time":1},
                  {"name":"b.c","time":2,"activation_bytes":5,"shared":{"w":4}}]})";

TEST(ModelFile, tells_layers_modules_and_operations_apart) {
  EXPECT_EQ(pieces_of(parse_model("m", three_layers)).size(), 3u);
  const PlannedModel module =
      parse_model("m", R"({"module":{"name":"m","children":[{"name":"m.a"},{"name":"m.b"}]}})");
  EXPECT_EQ(std::get<Module>(module).children.size(), 2u);
  const PlannedModel graph = parse_model("m",
                                         R"({"operations":[{"name":"a"},{"name":"b","group":"g"}],
          "edges":[{"from":"b","to":"a","bytes":7}]})");
  const OperationGraph& operations = std::get<OperationGraph>(graph);
  EXPECT_EQ(operations.operations[1].group, "g");
  EXPECT_EQ(operations.edges[0].from, 1);
  EXPECT_EQ(operations.edges[0].bytes, 7);
}

TEST(ModelFile, is_refused_with_the_place_and_the_reason) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "m.json: it is no object"},
      {"{}",
       "m.json: it describes no model: there is none of the keys \"layers\", \"module\", "
       "\"operations\", and none of a GPT-2's config.json"},
      {R"({"layers":[]})", "m.json: \"layers\" is no list with something in it"},
      {R"({"layers":[{"name":"a","tme":1}]})",
       "m.json: layer 0 has no key \"tme\"; there are: name, time, parameter_bytes, "
       "activation_bytes, output_bytes, shared"},
      {R"({"layers":[{"name":"a","time":-1}]})",
       "m.json: \"time\" of \"a\" is -1, not from 0 to 1e+18"},
      {R"({"layers":[{"time":1}]})", "m.json: layer 0 has no text \"name\""},
      {R"({"layers":[{"name":"a"},{"name":"a"}]})",
       "m.json: two pieces are named \"a\"; use whole paths such as \"h.3.mlp\""},
      {R"({"layers":[{"name":"a","time":1,"time":2}]})", "m.json: it gives the key \"time\" twice"},
      {R"({"layers":[{"name":"a","shared":{"w":1}},{"name":"b","shared":{"w":2}}]})",
       "m.json: the shared parameter \"w\" has 1 bytes in one place and 2 in \"b\""},
      {R"({"operations":[{"name":"a"}],"edges":[{"from":"a","to":"z","bytes":1}]})",
       "m.json: edge 0 names the operation \"z\", which is not there"},
      {R"({"n_layer":12})", "m.json: a GPT-2's config.json has \"n_embd\"; it is missing"},
      {R"({"n_layer":1,"n_embd":10,"n_head":3,"vocab_size":9,"n_positions":9})",
       "m.json: n_embd 10 is not a multiple of n_head 3"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(refusal_of_model(text), expected);
  }
}

// 124 439 808 parameters, 7 087 872 of them in each block.
TEST(Gpt2Layers, have_the_known_number_of_parameters) {
  const auto layers = gpt2_layers({});
  double bytes = layers.front().shared[0].bytes;
  for (const ModelPiece& layer : layers) {
    bytes += layer.parameter_bytes;
  }
  EXPECT_EQ(bytes / 4, 124'439'808);
  EXPECT_EQ(layers[1].parameter_bytes / 4, 7'087'872);
  Gpt2Shape apart;
  apart.tie_word_embeddings = false;
  EXPECT_EQ(gpt2_layers(apart).back().parameter_bytes / 4, 50257.0 * 768 + 2 * 768);
}

TEST(PartitionMethods, cut_gpt2_into_four_of_every_layer) {
  const PlannedModel model = gpt2_layers({});
  MethodRequest request;
  request.partitions = 4;
  request.contiguity = Contiguity::free;  // the head is with the embedding, which it shares
  for (const PartitionMethod& method : all_partition_methods()) {
    const std::vector<int> partition_of = method.cut(model, request);
    ASSERT_EQ(partition_of.size(), 14u) << method.name;
    for (int partition = 0; partition < 4; ++partition) {
      EXPECT_GT(std::ranges::count(partition_of, partition), 0) << method.name << ' ' << partition;
    }
  }
}

TEST(PartitionMethods, refuse_forms_that_they_do_not_cut) {
  const PlannedModel graph = parse_model("m", R"({"operations":[{"name":"a"},{"name":"b"}]})");
  for (const char* name : {"tree", "chain"}) {
    EXPECT_EQ(refusal_of([&] { partition_method_named(name).cut(graph, {}); }),
              "operations with edges are no chain; cut them with method graph");
  }
  EXPECT_EQ(refusal_of([] { partition_method_named("trees"); }),
            "no method \"trees\"; there are: chain, graph, tree");
}

TEST(PartitionFile, comes_back) {
  const PlannedModel model = parse_model("m", three_layers);
  const auto pieces = pieces_of(model);
  const std::vector<int> partition_of = {0, 1, 0};
  const std::string text = write_partition_file(pieces, partition_of, 2);
  EXPECT_EQ(partition_from("p.json", parse_partition_file("p.json", text), pieces, 2),
            partition_of);
}

TEST(PartitionFile, of_another_model_is_refused_with_what_differs) {
  const PlannedModel model = parse_model("m", three_layers);
  const std::string text = write_partition_file(pieces_of(model), std::vector{0, 1, 1}, 2);
  const PartitionFile file = parse_partition_file("p.json", text);
  const auto refusal_for = [&](const std::string& other, int partitions) {
    const PlannedModel parsed = parse_model("m", other);
    return refusal_of([&] { partition_from("p.json", file, pieces_of(parsed), partitions); });
  };
  EXPECT_EQ(refusal_for(R"({"layers":[{"name":"a","parameter_bytes":9}]})", 2),
            "p.json is of another model: its piece 0 is \"a\" with 8 bytes of parameters, here it "
            "is \"a\" with 9; plan again with `sprat partition --write`");
  EXPECT_EQ(refusal_for(R"({"layers":[{"name":"a","parameter_bytes":8}]})", 2),
            "p.json is of another model: it has 3 pieces, this one 1; plan again with `sprat "
            "partition --write`");
  EXPECT_EQ(refusal_for(three_layers, 3),
            "p.json has 2 partitions, not 3; plan again with `sprat partition --write`, or ask for "
            "2");
}

TEST(PartitionFile, that_is_damaged_is_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "p.json: it is no partition file: \"sprat_partition\" is missing"},
      {R"({"sprat_partition":2})",
       "p.json: its version is 2, and this sprat reads version 1; plan again with `sprat partition "
       "--write`"},
      {R"({"sprat_partition":1,"partitions":2,"model":"",
           "pieces":[{"name":"a","parameter_bytes":1,"partition":2}]})",
       "p.json: it places \"a\" on partition 2 of 2"},
      {R"({"sprat_partition":1,"partitions":1,"model":"f00","pieces":[]})",
       "p.json: it names the model f00, but its pieces are those of cbf29ce484222325; plan again "
       "with `sprat partition --write`"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(refusal_of([&, text = text] { parse_partition_file("p.json", text); }), expected);
  }
}

// Measured times differ from run to run; the partition still fits.
TEST(PartitionFile, fits_a_model_whose_times_have_changed) {
  const PlannedModel slow = parse_model("m", R"({"layers":[{"name":"a","time":3}]})");
  const PlannedModel fast = parse_model("m", R"({"layers":[{"name":"a","time":1}]})");
  EXPECT_EQ(model_fingerprint(pieces_of(slow)), model_fingerprint(pieces_of(fast)));
}

TEST(ManualPartition, puts_a_piece_where_its_longest_pin_says) {
  const PlannedModel model = parse_model(
      "m", R"({"layers":[{"name":"a"},{"name":"h.1.x"},{"name":"h.1.y"},{"name":"h.10"}]})");
  EXPECT_EQ(manual_partition(pieces_of(model), {{"h.1", 1}, {"h.1.y", 2}}, 3, 4),
            (std::vector{3, 1, 2, 3}));
}

TEST(ManualPartition, refuses_what_is_not_there) {
  const PlannedModel model = parse_model("m", three_layers);
  const auto pieces = pieces_of(model);
  EXPECT_EQ(refusal_of([&] {
              manual_partition(pieces, {{"x", 1}}, 0, 2);
            }),
            "no piece is named \"x\" or \"x....\"; the first is \"a\"");
  EXPECT_EQ(refusal_of([&] {
              manual_partition(pieces, {{"a", 2}}, 0, 2);
            }),
            "\"a\" is pinned to partition 2, not from 0 to 1");
  EXPECT_EQ(refusal_of([&] { manual_partition(pieces, {}, 2, 2); }),
            "default_partition is 2, not from 0 to 1");
}

}  // namespace
}  // namespace sprat::mp
