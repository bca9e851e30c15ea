"""Lets torchtitan train on the CPU: import this before torchtitan, whose sources stay as they are.

Where there is no accelerator torchtitan takes "cuda", and asks that device's module for what torch.cpu has not.
"""

from __future__ import annotations

import os
import types

import torch

torch._utils._get_available_device_type = lambda: "cpu"
total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
torch.cpu.get_device_name = lambda device=None: "CPU"
torch.cpu.get_device_properties = lambda device=None: types.SimpleNamespace(total_memory=total)
torch.cpu.memory_stats = lambda device=None: {}
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda device=None: None
torch.cpu.current_device = lambda: 0  # "cpu" in PyTorch, and no index for a barrier
