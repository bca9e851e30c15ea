// Every collective of a lane beside the host's, for tests on a stand-in and on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/device.hpp"

namespace sprat::gpu {

/// What a rank's operands are made of, in blocks; 0: it lacks one.
struct Operands {
  int in = 1, out = 1;
  bool in_place = false;  ///< On the device.
};

/// One collective, by a lane and on the host.
struct CollectiveCase {
  const char* name;
  Operands (*operands)(int size, bool is_root);
  DeviceWork (*on_device)(DeviceLane& lane, int root, ConstElements in, Elements out,
                          DeviceStream stream);
  Work (*on_host)(Communicator& group, int root, ConstElements in, Elements out);
};

inline const CollectiveCase collective_cases[] = {
    {"all_reduce", [](int, bool) { return Operands{}; },
     [](DeviceLane& lane, int, ConstElements in, Elements out, DeviceStream stream) {
       return lane.all_reduce(in, out, ReduceOp::sum, stream);
     },
     [](Communicator& group, int, ConstElements in, Elements out) {
       return group.all_reduce(in, out);
     }},
    {"all_reduce_in_place",
     [](int, bool) {
       return Operands{1, 1, true};
     },
     [](DeviceLane& lane, int, ConstElements in, Elements out, DeviceStream stream) {
       return lane.all_reduce(in, out, ReduceOp::max, stream);
     },
     [](Communicator& group, int, ConstElements in, Elements out) {
       return group.all_reduce(in, out, ReduceOp::max);
     }},
    {"all_gather",
     [](int size, bool) {
       return Operands{1, size};
     },
     [](DeviceLane& lane, int, ConstElements in, Elements out, DeviceStream stream) {
       return lane.all_gather(in, out, stream);
     },
     [](Communicator& group, int, ConstElements in, Elements out) {
       return group.all_gather(in, out);
     }},
    {"reduce_scatter",
     [](int size, bool) {
       return Operands{size, 1};
     },
     [](DeviceLane& lane, int, ConstElements in, Elements out, DeviceStream stream) {
       return lane.reduce_scatter(in, out, ReduceOp::sum, stream);
     },
     [](Communicator& group, int, ConstElements in, Elements out) {
       return group.reduce_scatter(in, out);
     }},
    {"broadcast",
     [](int, bool is_root) {
       return Operands{is_root ? 1 : 0, 1};
     },
     [](DeviceLane& lane, int root, ConstElements in, Elements out, DeviceStream stream) {
       return lane.broadcast(in, out, root, stream);
     },
     [](Communicator& group, int root, ConstElements in, Elements out) {
       if (in.count > 0) {
         std::memcpy(out.data, in.data, in.bytes());
       }
       return group.broadcast(out, root);
     }},
    {"all_to_all",
     [](int size, bool) {
       return Operands{size, size};
     },
     [](DeviceLane& lane, int, ConstElements in, Elements out, DeviceStream stream) {
       return lane.all_to_all(in, out, stream);
     },
     [](Communicator& group, int, ConstElements in, Elements out) {
       return group.all_to_all(in, out);
     }},
    {"reduce",
     [](int, bool is_root) {
       return Operands{1, is_root ? 1 : 0};
     },
     [](DeviceLane& lane, int root, ConstElements in, Elements out, DeviceStream stream) {
       return lane.reduce(in, out, root, ReduceOp::sum, stream);
     },
     [](Communicator& group, int root, ConstElements in, Elements out) {
       return group.reduce(in, out, root);
     }},
    {"gather",
     [](int size, bool is_root) {
       return Operands{1, is_root ? size : 0};
     },
     [](DeviceLane& lane, int root, ConstElements in, Elements out, DeviceStream stream) {
       return lane.gather(in, out, root, stream);
     },
     [](Communicator& group, int root, ConstElements in, Elements out) {
       return group.gather(in, out, root);
     }},
    {"scatter",
     [](int size, bool is_root) {
       return Operands{is_root ? size : 0, 1};
     },
     [](DeviceLane& lane, int root, ConstElements in, Elements out, DeviceStream stream) {
       return lane.scatter(in, out, root, stream);
     },
     [](Communicator& group, int root, ConstElements in, Elements out) {
       return group.scatter(in, out, root);
     }},
};

/// Numbers that every type can hold, different for each rank and element.
inline std::vector<std::byte> values_of(DType dtype, std::size_t count, int rank) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 13) % 23);
    std::byte* const at = bytes.data() + i * size_of(dtype);
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    const float real = static_cast<float>(number) * 0.37f - 3;
    switch (dtype) {
      case DType::f16:
        put(to_float16(real));
        break;
      case DType::bf16:
        put(to_bfloat16(real));
        break;
      case DType::f8e4m3:
        put(to_float8_e4m3(real));
        break;
      case DType::f8e5m2:
        put(to_float8_e5m2(real));
        break;
      case DType::f32:
        put(real);
        break;
      case DType::f64:
        put(static_cast<double>(real));
        break;
      case DType::i64:
      case DType::u64:
        put(static_cast<std::int64_t>(number));
        break;
      case DType::i32:
      case DType::u32:
        put(static_cast<std::int32_t>(number));
        break;
      case DType::i16:
      case DType::u16:
        put(static_cast<std::int16_t>(number));
        break;
      case DType::i8:
      case DType::u8:
        put(static_cast<std::int8_t>(number));
        break;
      case DType::boolean:
        put(static_cast<std::int8_t>(number % 2));
        break;
    }
  }
  return bytes;
}

}  // namespace sprat::gpu
