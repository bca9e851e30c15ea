"""A device for PyTorch that needs none: see README.md. Importing it builds it and makes it PyTorch's third device.

``torch.standin`` then has what FSDP2 and others ask of ``torch.cuda``.
"""

from __future__ import annotations

import os
import pathlib
import types

import torch
from torch.utils.cpp_extension import load

_HERE = pathlib.Path(__file__).resolve().parent
TREE = _HERE.parents[2]
# Names of devices are letters for init_device_mesh.
NAME = "standin"


def _build() -> types.ModuleType:
    folder = pathlib.Path(os.environ.get("STAND_IN_BUILD", TREE / "build" / "stand_in" / torch.__version__))
    folder.mkdir(parents=True, exist_ok=True)
    return load("stand_in_native", [str(path) for path in sorted(_HERE.glob("*.cpp"))], build_directory=str(folder),
                extra_cflags=["-std=c++20", "-O1"], extra_include_paths=[str(TREE), str(TREE / "include")])


native = _build()


def Stream(device=None, priority: int = 0) -> torch.Stream:
    """As ``torch.cuda.Stream``."""
    return torch.Stream(device=torch.device(NAME, native.current_device()) if device is None else torch.device(device), priority=priority)


def Event(enable_timing: bool = False, **_) -> torch.Event:
    """As ``torch.cuda.Event``."""
    return torch.Event(device=torch.device(NAME, native.current_device()))


def _module() -> types.ModuleType:
    module = types.ModuleType(f"torch.{NAME}")
    module.Stream, module.Event = Stream, Event
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: native.devices
    module.current_device = native.current_device
    module.set_device = lambda device: native.set_device(torch.device(NAME, device).index if isinstance(device, int)
                                                         else torch.device(device).index or 0)
    module.synchronize = lambda device=None: native.synchronize(native.current_device())
    module.current_stream = lambda device=None: torch.accelerator.current_stream(device)
    module.default_stream = lambda device=None: torch.Stream(stream_id=0, device_index=native.current_device(), device_type=20)
    module.stream = lambda stream: stream
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    module.manual_seed_all = lambda seed: None
    return module


torch.utils.rename_privateuse1_backend(NAME)
torch._register_device_module(NAME, _module())
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
