// One safetensors file.
#include "checkpoint/tensor_writer.hpp"

namespace sprat::fsdp {

extern const CheckpointFormat single_format;
const CheckpointFormat single_format = {
    .name = "single",
    .about =
        "one safetensors file in f32; model.safetensors in TO if that is a folder or ends "
        "with /",
    .write = write_one_file};

}  // namespace sprat::fsdp
