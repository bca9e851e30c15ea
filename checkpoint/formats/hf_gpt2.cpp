// One safetensors file as transformers has a GPT-2; what differs is in gpt2_names.
#include "checkpoint/tensor_writer.hpp"

namespace sprat::fsdp {

extern const CheckpointFormat hf_gpt2_format;
const CheckpointFormat hf_gpt2_format = {
    .name = "hf-gpt2",
    .about = "the same with the names and the transposed weights of Hugging Face's GPT-2",
    .write = write_one_file};

}  // namespace sprat::fsdp
