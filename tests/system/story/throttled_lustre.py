"""A file system that shows layouts of Lustre, and gives what an FSx of a kind and size would: a burst while credit lasts, then the base."""
import contextlib
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "io"))
from layouts_through_fuse import blob, write


@contextlib.contextmanager
def throttled_lustre(program, folder, files, rates):
    """`files`: names to (bytes, storage targets); `rates`: base, burst (bytes a second) and credit (bytes). Gives the mounted folder."""
    backing, mount = folder / "backing", folder / "fsx"
    for name, (content, targets) in files.items():
        write(f"{backing}/{name}", content)
        write(f"{backing}/.lov/{name}", blob(targets))
    write(f"{backing}/.throughput", " ".join(str(int(rate)) for rate in rates).encode())
    mount.mkdir()
    server = subprocess.Popen([program, backing, mount, "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while not mount.is_mount():
            if server.poll() is not None or time.monotonic() > deadline:
                print("skipped: FUSE cannot be mounted here:", server.stderr.read() if server.poll() is not None else "no word")
                sys.exit(77)
            time.sleep(0.05)
        yield mount
    finally:
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        server.kill()
        server.wait()
