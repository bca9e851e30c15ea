// What reads bytes that others wrote, each as a function of bytes: for libFuzzer, and for replaying
// what it kept.
#pragma once

#include <cstddef>
#include <span>

namespace sprat::fuzz {

struct Target {
  const char* name;  ///< Its folder in corpus/.
  /// True if the input was understood: what reads it took all of it, or one of several readers did.
  bool (*run)(std::span<const std::byte> input);
};
std::span<const Target> all_targets();

bool run_handshake(
    std::span<const std::byte> input);  ///< What a stranger sends to the coordinator's port.
bool run_control(
    std::span<const std::byte> input);  ///< Frames of joined ranks, and the coordinator's state.
bool run_rank_words(
    std::span<const std::byte> input);  ///< Payloads of frames, and parts that a host shares.
bool run_ring(std::span<const std::byte> input);     ///< A local peer's memory.
bool run_streams(std::span<const std::byte> input);  ///< What comes over sockets between hosts.
bool run_text(std::span<const std::byte> input);     ///< Settings, rules, addresses, topologies.
bool run_safetensors(std::span<const std::byte> input);  ///< Files of tensors.
bool run_tokenizer(std::span<const std::byte> input);    ///< Files of tokenizers, texts and merges.
bool run_manifest(std::span<const std::byte> input);     ///< What a checkpoint says it holds.
bool run_pipeline(std::span<const std::byte> input);     ///< Pipeline schedules, as text and CSV.
bool run_partition(std::span<const std::byte> input);    ///< Models to cut, and cuts that are kept.
bool run_stream_state(std::span<const std::byte> input);  ///< Where a run stands in its samples.
bool run_lustre(std::span<const std::byte> input);        ///< Layouts, mounts, sizes of FSx.
bool run_report(std::span<const std::byte> input);        ///< What loaders reported.
bool run_caches(std::span<const std::byte> input);        ///< Indices of caches, hosts' messages.
bool run_digests(std::span<const std::byte> input);       ///< What calls gave, and their values.

// Formats of datasets: where records are, and what is in them.
bool run_webdataset(std::span<const std::byte> input);     ///< Tars.
bool run_tfrecord(std::span<const std::byte> input);       ///< TFRecord files and Examples.
bool run_mds(std::span<const std::byte> input);            ///< MDS shards, or index.json.
bool run_megatron(std::span<const std::byte> input);       ///< A .bin and its .idx.
bool run_tokens(std::span<const std::byte> input);         ///< Tokens with and without headers.
bool run_jsonl(std::span<const std::byte> input);          ///< Lines of JSON.
bool run_documents(std::span<const std::byte> input);      ///< Texts with separators.
bool run_tensors(std::span<const std::byte> input);        ///< Tensors as records.
bool run_dataset_index(std::span<const std::byte> input);  ///< An entry of a dataset's index.

/// Ends the program, so that a broken invariant counts like a crash.
void expect(bool holds, const char* what);

}  // namespace sprat::fuzz
