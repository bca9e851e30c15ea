"""Tests of what sprat.torch.launch_environment() makes of launchers' variables.

Use: python tests/system/torch/launch_environment_test.py. Needs neither torch nor Sprat.
"""

from __future__ import annotations

import importlib.util
import pathlib
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "plugins/torch/sprat/torch/launch.py"
spec = importlib.util.spec_from_file_location("launch_source", SOURCE)
launch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launch)

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "3", "PMIX_RANK": "2", "PMIX_NAMESPACE": "job 7"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4"}


def said(environment: dict[str, str]) -> tuple[str, ...]:
    """Rank and size, in the job and on the host, that a process with these variables gets."""
    environment = dict(environment)
    launch.launch_environment(environment)
    return tuple(environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))


class LaunchEnvironment(unittest.TestCase):
    def test_says_what_each_launcher_says(self) -> None:
        self.assertEqual(said(OPEN_MPI), ("2", "3", "2", "3"))
        self.assertEqual(said(MPICH), ("1", "2", "1", "2"))
        self.assertEqual(said(SRUN), ("1", "4", "1", "4"))

    def test_tasks_of_srun_are_ranks_of_one_job(self) -> None:
        ports = set()
        for rank in range(4):
            environment = dict(SRUN, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank))
            launch.launch_environment(environment)
            self.assertEqual((environment["RANK"], environment["WORLD_SIZE"]), (str(rank), "4"))
            ports.add(environment["MASTER_PORT"])
        self.assertEqual(len(ports), 1, "the ranks of a job meet at one port")

    def test_steps_of_a_slurm_job_do_not_meet(self) -> None:
        ports = set()
        for step in "01":
            environment = dict(SRUN, SLURM_STEP_ID=step)
            launch.launch_environment(environment)
            ports.add(environment["MASTER_PORT"])
        self.assertEqual(len(ports), 2)

    def test_srun_on_several_hosts_counts_those_of_this_one(self) -> None:
        for host, count in enumerate(("2", "2", "3", "1")):
            environment = dict(SRUN, SLURM_STEP_NUM_TASKS="8", SLURM_STEP_TASKS_PER_NODE="2(x2),3,1",
                               SLURM_NODEID=str(host), MASTER_ADDR="host0")
            self.assertEqual(said(environment)[3], count)

    def test_srun_on_several_hosts_asks_for_that_of_rank_0(self) -> None:
        environment = dict(SRUN, SLURM_STEP_TASKS_PER_NODE="2(x2)")
        with self.assertRaisesRegex(ValueError, "rank 1 of 4: srun started 2 ranks on this host and MASTER_ADDR"):
            launch.launch_environment(environment)

    def test_a_batch_script_without_srun_is_alone(self) -> None:
        """It has SLURM_PROCID 0 and SLURM_NTASKS 4, and three others do not exist."""
        batch = {name: value for name, value in SRUN.items() if "STEP" not in name}
        self.assertEqual(said(dict(batch, SLURM_PROCID="0", SLURM_LOCALID="0")), ("0", "1", "0", "1"))

    def test_mpirun_within_a_slurm_job_is_believed(self) -> None:
        """Its daemons are tasks of srun, and what they start inherits their variables."""
        for launcher, expected in ((OPEN_MPI, ("2", "3", "2", "3")), (MPICH, ("1", "2", "1", "2"))):
            self.assertEqual(said(SRUN | launcher), expected)

    def test_srun_with_pmi2_is_srun(self) -> None:
        self.assertEqual(said(SRUN | {"PMI_RANK": "1", "PMI_SIZE": "4"}), ("1", "4", "1", "4"))

    def test_a_rank_without_a_size_is_refused(self) -> None:
        """Each rank would be rank 0 of 1, and train alone."""
        for name in ("PMIX_RANK", "PMI_RANK"):
            with self.assertRaisesRegex(ValueError, f"{name} is 3.*set RANK and WORLD_SIZE"):
                launch.launch_environment({name: "3", "PMIX_NAMESPACE": "job"})

    def test_without_a_launcher_this_process_is_alone(self) -> None:
        self.assertEqual(said({}), ("0", "1", "0", "1"))

    def test_torchrun_is_left_alone(self) -> None:
        environment = {"RANK": "5", "WORLD_SIZE": "8"} | SRUN
        before = dict(environment)
        launch.launch_environment(environment)
        self.assertEqual(environment, before)


if __name__ == "__main__":
    unittest.main()
