#include "tests/system/fuzz/targets.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace sprat::fuzz {

std::span<const Target> all_targets() {
  static constexpr std::array targets = {
      Target{"handshake", run_handshake},
      Target{"control", run_control},
      Target{"rank_words", run_rank_words},
      Target{"ring", run_ring},
      Target{"streams", run_streams},
      Target{"text", run_text},
      Target{"safetensors", run_safetensors},
      Target{"manifest", run_manifest},
      Target{"pipeline", run_pipeline},
      Target{"partition", run_partition},
      Target{"tokenizer", run_tokenizer},
      Target{"stream_state", run_stream_state},
      Target{"lustre", run_lustre},
      Target{"report", run_report},
      Target{"webdataset", run_webdataset},
      Target{"tfrecord", run_tfrecord},
      Target{"mds", run_mds},
      Target{"megatron", run_megatron},
      Target{"tokens", run_tokens},
      Target{"jsonl", run_jsonl},
      Target{"documents", run_documents},
      Target{"tensors", run_tensors},
      Target{"dataset_index", run_dataset_index},
      Target{"caches", run_caches},
      Target{"digests", run_digests},
  };
  return targets;
}

void expect(bool holds, const char* what) {
  if (holds) {
    return;
  }
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace sprat::fuzz
