"""Which lines of AWS's public scripts are changed to train on CPUs, by the file's name in git and the line's number."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
from typing import NamedTuple

COMMIT = "2d519b5"  # Of aws/amazon-sagemaker-examples.


class File(NamedTuple):
    blob: str  # Of git: another version has other lines.
    lines: dict[int, str]  # What stands there instead, behind the same indentation.


class Example(NamedTuple):
    folder: str  # In the repository, where some names begin with spaces.
    files: dict[str, File]


EXAMPLES = {
    "smddp": Example("*build_and_train_models/sm-distributed_data_parallelism_pytorch/code", {
        "train_pytorch_smdataparallel_mnist.py": File("5b2be043fae9a49eed57db1f7e3039e36c0ceb24", {
            201: "if False:", 208: 'device = torch.device("cpu")', 259: "pass", 260: "pass",
            264: "writer = SummaryWriter('tensorboard') if rank == 0 and local_rank == 0 else None"})}),
    "v1": Example("*archived/smp-gpt-sharded-data-parallel", {
        "train.py": File("e1d168f2e477f3c485a51279db1a7cc663410355", {321: "pass", 364: "pass", 964: "pass"})}),
    "v2": Example("*build_and_train_models/sm-distributed_model_parallel_v2/shared-scripts", {
        "train_lib.py": File("8aa3d041f2e4c6b735b84c0758e2affb114852f9", {
            168: "pass", 221: "pass", 473: 'device = torch.device("cpu")', 645: "pass", 675: "device_id=device,"}),
        "train_utils.py": File("fe56fb1f1c2b1a56d8a832b785715bce8ba174c2", {
            155: 'attn_implementation="sdpa",',
            162: 'model = AutoModelForCausalLM.from_config(model_config, attn_implementation="sdpa")'})}),
}


def copy(examples: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """The example's folder, with the lines changed. FileNotFoundError, ValueError: not that commit."""
    example = EXAMPLES[name]
    found = list(examples.glob(example.folder))
    if len(found) != 1:
        raise FileNotFoundError(f"{examples} has {len(found)} folders {example.folder}: give a clone of "
                                f"aws/amazon-sagemaker-examples, checked out at {COMMIT}")
    shutil.copytree(found[0], target)
    for file, changes in example.files.items():
        content = (target / file).read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if blob != changes.blob:
            raise ValueError(f"{found[0] / file} is {blob} and not {changes.blob}: its lines may be others; check "
                             f"out {COMMIT}")
        (target / file).write_text(changed(content.decode(), changes.lines))


def changed(text: str, lines: dict[int, str]) -> str:
    rows = text.split("\n")
    for number, instead in lines.items():
        row = rows[number - 1]
        rows[number - 1] = row[:len(row) - len(row.lstrip())] + instead
    return "\n".join(rows)
