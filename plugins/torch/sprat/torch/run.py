"""Runs a program whose framework chooses gloo by itself, with Sprat in gloo's place.

    python -m sprat.torch.run SCRIPT [ARGUMENT...]          one rank, or one of its launcher's
    python -m sprat.torch.run -n 4 SCRIPT [ARGUMENT...]     four ranks on this host
    python -m sprat.torch.run -m MODULE [ARGUMENT...]       a module instead of a script

Under torchrun, mpirun and srun too: torchrun --nproc-per-node 4 -m sprat.torch.run SCRIPT. Where
the program asks torch.distributed for gloo, or names no backend on a machine without an
accelerator, it gets sprat; other backends stay. The same holds in Python programs that it starts.
With -n the exit status is that of the rank that failed first.

    python -m sprat.torch.run --sagemaker [DISTRIBUTION.json] SCRIPT [ARGUMENT...]

also answers the imports of a script written for SageMaker: torch.sagemaker and smdistributed. Its
init() takes the estimator's distribution from the file. The backend smddp is sprat then, and so is
nccl where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys

import sprat.sagemaker
import sprat.torch
from sprat.replacement import take_the_place_of
from sprat.sagemaker.configuration import parameters
from sprat.torch.launch import launched
from sprat.torch.local_ranks import run_ranks
from sprat.torch.main_program import run_module, run_script


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sprat.torch.run", description=__doc__, allow_abbrev=False,
        usage="python -m sprat.torch.run [-n N] [--sagemaker [FILE.json]] [-m] PROGRAM [ARGUMENT...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", "--nproc", type=int, metavar="N", help="start N ranks on this host")
    parser.add_argument("-m", "--module", action="store_true", help="PROGRAM is a module's name")
    parser.add_argument("--sagemaker", action="store_true",
                        help="PROGRAM is written for SageMaker; FILE.json its distribution")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT...]",
                        help="what to run, and what it gets")
    options = parser.parse_args(arguments)
    options.distribution = None
    if options.sagemaker and options.program and options.program[0].lower().endswith(".json"):
        options.distribution, *rest = options.program
        parser.parse_args(rest, options)  # -n and -m may stand behind the file
    if options.program and options.program[0] == "--":
        del options.program[0]
    complaint = _complaint_of(options)
    if complaint:
        parser.error(complaint)
    return options


def _complaint_of(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, before any rank is started."""
    if not options.program:
        return f"nothing to run\n\n{__doc__}"
    count, program = options.nproc, options.program[0]
    if count is not None and count < 1:
        return f"-n {count}: a job has at least one rank"
    if count is not None and (launched(os.environ) or "RANK" in os.environ):
        return (f"-n {count} inside of a job: a launcher has started this process as one of its "
                "ranks; leave out -n, or the launcher")
    if options.distribution is not None:
        if not os.path.isfile(options.distribution):
            return (f"--sagemaker {options.distribution}: there is no such file; write the "
                    "estimator's distribution there, as JSON")
        try:
            parameters(options.distribution)
        except (OSError, ValueError) as error:
            return f"--sagemaker {error}"
    if not options.module and not os.path.exists(program):
        return f"{program}: there is no such file; a module's name stands behind -m"
    return None


def _command_of_a_rank(options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "sprat.torch.run"]
    if options.sagemaker:
        command += ["--sagemaker", *filter(None, [options.distribution])]
    return command + ["-m"] * options.module + options.program


def main(arguments: list[str]) -> int:
    """Returns if it started ranks; else the program ends as it does alone."""
    options = parse(arguments)
    if options.nproc is not None:
        return run_ranks(options.nproc, _command_of_a_rank(options))
    try:
        sprat.torch.launch_environment()
    except ValueError as error:
        print(f"sprat.torch.run: {error}", file=sys.stderr)
        return 2
    if options.sagemaker:
        sprat.sagemaker.answer(options.distribution)
    else:
        take_the_place_of("gloo")
    run = run_module if options.module else run_script
    run(options.program[0], options.program[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
