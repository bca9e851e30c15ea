"""Hugging Face accelerate: processes that debug_launcher forks."""

from __future__ import annotations

import runpy

from accelerate import debug_launcher


def train() -> None:
    runpy.run_path(__file__.replace("_notebook", "_train"))


if __name__ == "__main__":
    debug_launcher(train, num_processes=2)
