"""Control groups for memory and disks: limits, and the most memory that their processes ever took. Versions 1 and 2."""
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")


class NoControlGroup(Exception):
    """Why there is none."""


def _controller(name):
    """Where groups of that controller are made, and whether they are of version 1."""
    if (ROOT / name).is_dir():
        return ROOT / name, True
    try:
        if name in (ROOT / "cgroup.subtree_control").read_text().split():
            return ROOT, False
    except OSError:
        pass
    raise NoControlGroup(f"no control group of {name} can be made under {ROOT}")


class ControlGroup:
    """A group that is removed in the end. `with MemoryGroup() as group:`"""
    CONTROLLER = ""
    made = 0

    def __init__(self):
        parent, self.first_version = _controller(self.CONTROLLER)
        ControlGroup.made += 1
        self.folder = parent / f"sprat-{os.getpid()}-{ControlGroup.made}"
        try:
            self.folder.mkdir()
        except OSError as error:
            raise NoControlGroup(f"cannot make a control group: {error}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(100):  # those who were killed leave it a little later
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)

    @property
    def processes(self):
        """Whoever writes 0 into this file joins."""
        return self.folder / "cgroup.procs"

    def _file(self, first, second):
        return self.folder / (first if self.first_version else second)


class MemoryGroup(ControlGroup):
    CONTROLLER = "memory"

    def __init__(self, limit=None):
        super().__init__()
        try:
            if limit is not None:
                self._file("memory.limit_in_bytes", "memory.max").write_text(str(limit))
            self.peak()
        except OSError as error:
            self.__exit__()
            raise NoControlGroup(f"{error}") from None

    def peak(self):
        """The most bytes that its processes had at a time: their own, shared memory once, and files that they read or
        wrote and that the kernel still keeps."""
        return int(self._file("memory.max_usage_in_bytes", "memory.peak").read_text())

    def parts(self):
        """What its memory is now, in bytes."""
        known = {"cache": "files", "file": "files", "rss": "private", "anon": "private", "shmem": "shared"}
        parts = {}
        for line in (self.folder / "memory.stat").read_text().splitlines():
            key, value = line.split()
            if key in known:
                parts[known[key]] = int(value)
        # Files are counted with shared memory in them.
        parts["files"] = parts.get("files", 0) - parts.get("shared", 0)
        if self.first_version:
            parts["kernel"] = int((self.folder / "memory.kmem.usage_in_bytes").read_text())
        return parts


class DiskGroup(ControlGroup):
    """Reads and writes of the disk under a folder, each at most so many bytes a second."""
    CONTROLLER = "blkio" if (ROOT / "blkio").is_dir() else "io"

    def __init__(self, folder, bytes_per_second):
        super().__init__()
        device = disk_of(folder)
        try:
            if self.first_version:
                for way in ("read", "write"):
                    (self.folder / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {bytes_per_second}")
            else:
                (self.folder / "io.max").write_text(f"{device} rbps={bytes_per_second} wbps={bytes_per_second}")
        except OSError as error:
            self.__exit__()
            raise NoControlGroup(f"the disk {device} cannot be slowed down: {error}") from None


def disk_of(folder):
    """MAJOR:MINOR of the whole disk that a folder is on."""
    number = os.stat(folder).st_dev
    device = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise NoControlGroup(f"{folder} is on no disk of its own")
    device = device.resolve()
    whole = device.parent if (device / "partition").exists() else device
    return (whole / "dev").read_text().strip()
