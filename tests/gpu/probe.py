"""What this GPU and its driver let a library do, and how fast: one JSON object, the last line of the output.

  python3 tests/gpu/probe.py

Sprat's way of device tensors asks for a stream that waits for a word of host memory, pinned memory that several processes share, and
memory of one process that another opens.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time

import torch

MIB = 1 << 20
# CUdevice_attribute's numbers.
ATTRIBUTES = {"stream_mem_ops_v1": 92, "stream_wait_value_nor": 94, "host_register": 99, "stream_mem_ops": 122, "dma_buf": 124}


def check(driver: ctypes.CDLL, status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(text))
        raise RuntimeError(f"{what}: {text.value.decode() if text.value else status}")


def attributes(driver: ctypes.CDLL) -> dict[str, int]:
    found = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int(-1)
        status = driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        found[name] = value.value if status == 0 else -status
    return found


def stream_waits_for_the_host(driver: ctypes.CDLL) -> dict[str, object]:
    """A stream stops at a word of pinned memory until the host writes it."""
    word = torch.zeros(1, dtype=torch.int32).pin_memory()
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    seconds = []
    for turn in range(1, 101):
        status = driver.cuStreamWaitValue32_v2(ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(word.data_ptr()),
                                               ctypes.c_uint32(turn), ctypes.c_uint(0))
        check(driver, status, "cuStreamWaitValue32")
        event.record(stream)
        if turn == 1:
            time.sleep(0.05)
            if event.query():
                raise RuntimeError("the stream did not wait")
        begin = time.perf_counter()
        word[0] = turn
        while not event.query():
            if time.perf_counter() - begin > 5:
                raise RuntimeError("the stream did not go on within 5 s")
        seconds.append(time.perf_counter() - begin)
    return {"release_us": round(sorted(seconds)[50] * 1e6, 1)}


def shared_memory_is_pinned(runtime: ctypes.CDLL) -> dict[str, float]:
    """Pages that peers map too, registered: copies both ways in GB/s."""
    size = 256 * MIB
    memory = mmap.mmap(-1, size)
    view = (ctypes.c_char * size).from_buffer(memory)
    begin = time.perf_counter()
    status = runtime.cudaHostRegister(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), ctypes.c_uint(0))
    if status:
        raise RuntimeError(f"cudaHostRegister of shared memory: error {status}")
    found = {"register_ms": round((time.perf_counter() - begin) * 1e3, 1)}
    host = torch.frombuffer(view, dtype=torch.uint8)
    device = torch.zeros(size, dtype=torch.uint8, device="cuda")
    for name, to, of in (("to_host", host, device), ("to_device", device, host), ("on_device", torch.empty_like(device), device)):
        for _ in range(2):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            to.copy_(of, non_blocking=True)
            torch.cuda.synchronize()
            found[name + "_gb_s"] = round(size / (time.perf_counter() - begin) / 1e9, 1)
    return found


def _opened(queue, answers) -> None:
    tensor = queue.get()
    answers.put(float(tensor.sum().item()))
    del tensor


def another_process_opens_it() -> dict[str, float]:
    from torch import multiprocessing

    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=_opened, args=(queue, answers))
    child.start()
    tensor = torch.ones(MIB, device="cuda")
    queue.put(tensor)
    total = answers.get(timeout=45)
    child.join(10)
    if total != MIB:
        raise RuntimeError(f"the other process saw {total}, not {MIB}")
    return {"sum": total}


def main() -> int:
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU here")
        return 77
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    # PyTorch's own runtime, whose context this is, whatever folder it lies in.
    runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
    found: dict[str, object] = {"attributes": attributes(driver)}
    failed = False
    questions = {"stream_waits_for_the_host": lambda: stream_waits_for_the_host(driver),
                 "shared_memory_is_pinned": lambda: shared_memory_is_pinned(runtime),
                 "another_process_opens_it": another_process_opens_it}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception as error:  # each question by itself
            failed, found[name] = True, f"{type(error).__name__}: {error}"
    print(json.dumps(found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
