#!/usr/bin/env python3
"""Ranks as processes started by hand: kills, disagreements, absences. run.py WORKER SPRAT [CASE ...]

Every survivor must end with a non-zero status within five seconds of a kill, its standard error must
name the lost rank and the operation, and /dev/shm and the processes must be as before.
"""
import atexit
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request

RANKS = 4
LIMIT_S = 5.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, ranks=RANKS, hosts="", skip=(), port=None, input=False, **variables):
    """Starts ranks with torchrun's variables and no launcher; returns them by rank."""
    port = port or free_port()
    processes = {}
    for rank in range(ranks):
        if rank in skip:
            continue
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPRAT_HOST=hosts, **variables)
        processes[rank] = subprocess.Popen(command, env=environment, text=True,
                                           stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return processes


def collect(processes, limit_s):
    """Waits for all; returns {rank: (status, errors, seconds)}. Kills and reports what hangs."""
    begin = time.monotonic()
    results = {}
    for rank, process in processes.items():
        left = max(0.1, limit_s - (time.monotonic() - begin))
        try:
            _, errors = process.communicate(timeout=left)
            results[rank] = (process.returncode, errors, time.monotonic() - begin)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
            results[rank] = (None, errors, time.monotonic() - begin)
    return results


def for_everybody(program):
    """A copy that any user may run: the build may lie in a home that is its owner's alone."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    return shutil.copy(program, folder)


def let_everybody_suppress_leaks():
    """The list of leaks that are not ours to free, which a sanitized process of another user reads, may lie in that home too."""
    options = os.environ.get("LSAN_OPTIONS", "")
    if listed := re.search("suppressions=([^:]+)", options):
        os.environ["LSAN_OPTIONS"] = options.replace(listed[1], for_everybody(listed[1]))


def fail(case, text, results):
    print(f"FAILED {case}: {text}")
    for rank, (status, errors, seconds) in sorted(results.items()):
        print(f"  rank {rank}: status {status} after {seconds:.2f} s: {errors.strip()[-600:]}")
    sys.exit(1)


def check(case, results, words, limit_s=LIMIT_S):
    for rank, (status, errors, seconds) in results.items():
        if status is None or seconds > limit_s:
            fail(case, f"rank {rank} did not end within {limit_s} s", results)
        if status == 0:
            fail(case, f"rank {rank} ended as if all were well", results)
        for word in words:
            if not any(word in line for line in errors.splitlines()):
                fail(case, f'rank {rank} does not say "{word}"', results)
    print(f"ok {case}: slowest {max(seconds for _, _, seconds in results.values()):.2f} s")


def kill_and_check(case, processes, victim, words):
    processes[victim].send_signal(signal.SIGKILL)
    processes.pop(victim).communicate()
    check(case, collect(processes, LIMIT_S + 5), words)


def case_kill_in_all_reduce(worker, sprat):
    for hosts in ("", "a,a,b,b", "a,b,c,d"):
        for count in ("2", "3000000"):
            for victim in (0, 2):
                processes = start([worker, "endless", count], hosts=hosts)
                for process in processes.values():
                    process.stdout.readline()
                kill_and_check(f"kill rank {victim} in all_reduce of {count} on hosts [{hosts}]",
                               processes, victim, [f"lost rank {victim} ", "all_reduce"])


def case_kill_in_pipeline(worker, sprat):
    for hosts in ("", "a,b,c,d"):
        for count in ("2", "100000"):
            for victim in (0, 2):
                processes = start([worker, "pipeline", count], hosts=hosts)
                for process in processes.values():
                    process.stdout.readline()
                kill_and_check(f"kill rank {victim} in a pipeline, {count} floats a message, on hosts [{hosts}]",
                               processes, victim, [f"lost rank {victim} ", " of world.pipeline, "])


def await_line(case, processes, line):
    for rank, process in processes.items():
        said = process.stdout.readline().strip()
        if said != line:
            fail(case, f'rank {rank} says "{said}" instead of "{line}"', collect(processes, 0.1))


def shrink(worker, hosts, count, victims, how="", **variables):
    case = f"shrink{how} without ranks {victims}, all_reduce of {count} on hosts [{hosts}]"
    processes = start([worker, "shrink", count], hosts=hosts, **variables)
    await_line(case, processes, f"ready {RANKS}")
    begin = time.monotonic()
    for left, victim in zip((RANKS - 1, RANKS - 2), victims):
        processes[victim].send_signal(signal.SIGKILL)
        processes.pop(victim).communicate()
        await_line(case, processes, f"ready {left}")
    print(f"ok {case}: {time.monotonic() - begin:.2f} s")
    for process in processes.values():
        process.kill()
        process.communicate()


def case_shrink(worker, sprat):
    for hosts in ("", "a,a,b,b"):
        for count in ("2", "300000"):
            for victims in ((0, 1), (3, 0), (2, 1), (1, 3)):
                shrink(worker, hosts, count, victims)


def case_shrink_encrypted(worker, sprat):
    shrink(worker, "a,a,b,b", "2", (0, 1), " encrypted", SPRAT_ENCRYPT="1", SPRAT_TOKEN="a token of sixteen and more")


def case_kill_after_fork(worker, sprat):
    for hosts in ("", "a,b,c,d"):
        for victim in (0, 2):
            # A leak checker sees leaks in a child whose other threads are gone.
            processes = start([worker, "forked", "2"], hosts=hosts, ASAN_OPTIONS="detect_leaks=0")
            await_line("ranks that have forked", processes, "ready")
            kill_and_check(f"kill rank {victim}, whose child sleeps, on hosts [{hosts}]", processes,
                           victim, [f"lost rank {victim} ", "all_reduce"])
            subprocess.run(["pkill", "-KILL", "-f", f"{worker} forked"])


def case_stopped(worker, sprat):
    """A rank is stopped in the middle of an operation, and goes on when the others have their buffers back."""
    for hosts in ("", "a,a,b"):
        for memory in ("shared", "private"):
            case = f"rank 1 stopped in all_reduce of {memory} memory on hosts [{hosts}]"
            processes = start([worker, "stopped", memory], ranks=3, hosts=hosts, input=True)
            await_line(case, processes, "ready")
            time.sleep(0.05)
            stopped = processes.pop(1)
            stopped.send_signal(signal.SIGSTOP)
            await_line(case, processes, "refilled")
            stopped.send_signal(signal.SIGCONT)
            await_line(case, {1: stopped}, "refilled")
            processes[1] = stopped
            for process in processes.values():
                process.stdin.write("\n")
                process.stdin.flush()
            await_line(case, processes, "unchanged")
            results = collect(processes, 20)
            check(case, {1: results.pop(1)}, ["no end after 2"], limit_s=20)
            check(case, results, ["no end after 2", "rank 1 "], limit_s=20)


def case_long_stop(worker, sprat):
    """Longer than a cut link is put up with: a stopped process is not a lost one."""
    processes = start([worker, "endless", "2"], hosts="a,b,c,d")
    for process in processes.values():
        process.stdout.readline()
    processes[2].send_signal(signal.SIGSTOP)
    time.sleep(12)
    ended = [rank for rank, process in processes.items() if process.poll() is not None]
    processes[2].send_signal(signal.SIGCONT)
    if ended:
        fail("stop rank 2 for 12 s", f"ranks {ended} ended", collect(processes, 0.1))
    kill_and_check("stop rank 2 for 12 s, go on, kill it", processes, 2, ["lost rank 2 ", "all_reduce"])


def case_other_user(worker, sprat):
    """Without a secret, rank 1 as another user is refused by rank 0; with one it joins."""
    if os.geteuid() != 0:
        print("other_user: skipped, since only root can be two users")
        return
    let_everybody_suppress_leaks()
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for token in ("", "hush"):
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            os.chmod(folder, 0o755)
            open(stop, "w").close()
            port = free_port()
            variables = dict(port=port, ranks=2, SPRAT_TOKEN=token)
            if not token:
                variables["SPRAT_JOIN_TIMEOUT"] = "3"
            processes = start([worker, "until", stop], skip=(1,), **variables)
            processes |= start(nobody + [worker, "until", stop], skip=(0,), **variables)
            results = collect(processes, 20)
        if token and any(status != 0 for status, _, _ in results.values()):
            fail("another user with the secret", "it did not join", results)
        if not token:
            check("another user without a secret", {1: results[1]}, ["SPRAT_TOKEN"], limit_s=15)
            check("its hub", {0: results[0]}, ["missing: rank 1", "turned away"], limit_s=15)


def case_leave(worker, sprat):
    for hosts in ("", "a,b,c,d"):
        for how in ("exit", "throw", "global"):
            processes = start([worker, "leave", how], hosts=hosts)
            leaver = processes.pop(1)
            results = collect(processes, 20)
            leaver.communicate(timeout=20)
            check(f"rank 1 leaves by {how} on hosts [{hosts}]", results, ["rank 1 ", "all_reduce"], limit_s=20)


def case_last_words(worker, sprat):
    for hosts in ("", "a,b,c,d", "a,a,b,b"):
        results = collect(start([worker, "last_words"], hosts=hosts), 20)
        if any(status != 0 for status, _, _ in results.values()):
            fail(f"last words on hosts [{hosts}]", "what rank 1 broadcast before it left did not arrive", results)
        print(f"ok last words on hosts [{hosts}]")


def case_kill_in_join(worker, sprat):
    for command in ([worker, "endless", "2"], [sprat, "bench", "all_reduce"]):
        for victim in (0, 1):
            processes = start(command, skip=(3,))
            time.sleep(2.0)  # the three that were started are in the rendezvous by now
            kill_and_check(f"kill rank {victim} of {os.path.basename(command[0])} while joining", processes, victim,
                           [f"rank {victim}", "join"])


def case_missing_in_join(worker, sprat):
    processes = start([worker, "endless", "2"], skip=(2,), SPRAT_JOIN_TIMEOUT="2")
    check("rank 2 never joins", collect(processes, 20), ["2"], limit_s=8)


def case_kill_in_training(worker, sprat):
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w") as file:
            file.write("all work and no play makes jack a dull boy. " * 4000)
        config = os.path.join(folder, "config.json")
        with open(config, "w") as file:
            file.write('{"model": {"layers": 2, "width": 64, "heads": 2, "context": 64},'
                       f'"data": {{"files": ["{text}"]}},'
                       '"train": {"steps": 100000, "batch": 8}, "parallel": {"hybrid_shard_degree": 2}}')
        report = os.path.join(folder, "report")
        processes = start([sprat, "train", config, "--report", report])
        patience = time.monotonic() + 60
        while not (os.path.exists(report) and os.path.getsize(report) > 200):
            if time.monotonic() > patience:
                fail("kill in training", "training did not start",
                     collect(processes, 0.1))
            time.sleep(0.1)
        kill_and_check("kill rank 2 in training", processes, 2, ["lost rank 2 "])


def case_differ(worker, sprat):
    values = {"count": ["of 8 f32", "of 4 f32"], "dtype": ["4 i32", "4 f32"],
              "op": ["f32, max", "f32, sum"], "collective": ["barrier", "all_reduce of 4 f32"]}
    for hosts in ("", "a,a,b,b"):
        for what, words in values.items():
            processes = start([worker, "differ", what], hosts=hosts)
            await_line(what, processes, "joined")  # a busy machine may take seconds to start them
            check(f"different {what} on hosts [{hosts}]", collect(processes, 10), ["mismatch"] + words)


def case_moves(worker, sprat):
    for hosts in ("", "a,a,b,b"):
        results = collect(start([worker, "moves", "2000"], hosts=hosts), 120)
        if any(status != 0 for status, _, _ in results.values()):
            fail(f"buffers that move, on hosts [{hosts}]", "a rank failed", results)


def case_absent(worker, sprat):
    for hosts in ("", "a,b,c,d"):
        processes = start([worker, "absent", "2"], hosts=hosts)
        await_line("absent", processes, "joined")
        absent = processes.pop(1)
        results = collect(processes, 10)
        absent.kill()
        absent.communicate()
        check(f"rank 1 never calls on hosts [{hosts}]", results, ["rank 1 ", "all_reduce"], limit_s=6)


def status(sprat, case, *arguments):
    """What `sprat status` prints."""
    run = subprocess.run([sprat, "status", *map(str, arguments)], text=True, capture_output=True, timeout=20)
    if run.returncode != 0:
        fail(case, f"sprat status {arguments}: {run.stderr}", {})
    return run.stdout


def until(case, patterns, produce):
    """Asks again until the text has all patterns; the last text if it never has."""
    patience = time.monotonic() + 20
    while True:
        text = produce()
        if all(re.search(pattern, text) for pattern in patterns):
            print(f"ok {case}")
            return text
        if time.monotonic() > patience:
            fail(case, f"{patterns} not in: {text}", {})
        time.sleep(0.05)


def case_status(worker, sprat):
    for hosts in ("", "a,a,b,b"):
        processes = start([worker, "endless", "2"], hosts=hosts)
        try:
            check_status(sprat, f"status with rank 2 stopped on hosts [{hosts}]", processes)
        finally:
            for process in processes.values():
                process.kill()
                process.communicate()


def check_status(sprat, case, processes):
    pids = {rank: process.pid for rank, process in processes.items()}
    for process in processes.values():
        process.stdout.readline()
    os.kill(pids[2], signal.SIGSTOP)
    until(f"{case}: it shows itself", ["rank 2 of 4", "all_reduce of 2 f32, max", "done"],
          lambda: status(sprat, case, pids[2]))
    until(f"{case}: another names it", ["running", " rank 2\n"], lambda: status(sprat, case, pids[3]))
    # Rank 2 has not called it, is behind, or is stopped within: then rank 1 may wait for rank 0, and this for rank 2.
    until(f"{case}: who waits for whom",
          ["world, operation ", " in all_reduce of 2 f32, max since", r"; rank 2 is (late|behind)|wait for ranks? (\d[,-] ?)*2\b"],
          lambda: status(sprat, case, "--explain", *pids.values()))
    others = [pid for rank, pid in pids.items() if rank != 2]
    until(f"{case}: without it", ["no record of rank 2"], lambda: status(sprat, case, "--explain", *others))


def case_flight_recorder(worker, sprat):
    with tempfile.TemporaryDirectory() as folder:
        processes = start([worker, "endless", "2"], SPRAT_FLIGHT_RECORDER=folder)
        for process in processes.values():
            process.stdout.readline()
        kill_and_check("kill rank 1 with a flight recorder", processes, 1, ["lost rank 1 "])
        files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        if len(files) != 3 or not all(f"-rank{rank}.json" in file for rank, file in zip((0, 2, 3), files)):
            fail("flight recorder", f"it left {files}", {})
        text = status(sprat, "flight recorder", "--explain", *files)
        if "no record of rank 1" not in text or "all_reduce of 2 f32, max" not in text:
            fail("flight recorder", f"it explains: {text}", {})
        print("ok flight recorder")
    processes = start([worker, "absent", "1"], SPRAT_FLIGHT_RECORDER="/dev/null/none")
    absent = processes.pop(1)
    results = collect(processes, 10)
    absent.kill()
    absent.communicate()
    check("a flight recorder that cannot be written", results, ["cannot keep the last operations", "timeout"],
          limit_s=8)


def case_stragglers(worker, sprat):
    for hosts in ("", "a,a,b,b"):
        processes = start([worker, "wait", "3"], hosts=hosts, SPRAT_STRAGGLER_AFTER="1")
        results = collect(processes, 20)
        errors = "".join(errors for _, errors, _ in results.values())
        for pattern in (r"\(operation 1 of world\) has waited [12]\.\d+ s for rank 2 \(", r"rank 2 \(.* s late",
                        r"recv from rank 2 with tag 0 on world has waited [12]\."):
            if not re.search(pattern, errors):
                fail(f"stragglers on hosts [{hosts}]", f'nobody says "{pattern}"', results)
        if any(status != 0 for status, _, _ in results.values()):
            fail(f"stragglers on hosts [{hosts}]", "a rank failed", results)
        if hosts == "" and errors.count("(operation 1 of world) has waited") != 1:
            fail("stragglers", "not one rank alone speaks", results)
        print(f"ok stragglers on hosts [{hosts}]")


def case_top(worker, sprat):
    """One of two ranks is slow: `sprat top` says so, in each of its forms."""
    processes = start([worker, "slow", "20"], ranks=2)
    try:
        await_line("top", processes, "ready")
        pids = {process.pid for process in processes.values()}
        check_top_json(sprat, pids)
        until("top --once", [r"\n  rank 1 keeps others waiting: late in \d+ % ", r"1 host, .*\n  .*worker slow 20\n"],
              lambda: subprocess.run([sprat, "top", "--once", "--interval", "0.5"], text=True, capture_output=True, timeout=20).stdout)
        check_top_screen(sprat)
        check_top_metrics(sprat, pids)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def check_top_json(sprat, pids):
    """Rates and shares of the job; other jobs of this host may be there, too."""
    patience = time.monotonic() + 20
    while True:
        run = subprocess.run([sprat, "top", "--json"], text=True, capture_output=True, timeout=20)
        jobs = [job for job in json.loads(run.stdout)["jobs"] if {rank["pid"] for rank in job["ranks"]} == pids]
        if len(jobs) == 1:
            quick, slow = jobs[0]["ranks"]
            calls = quick["operations"][0]["calls_per_s"] if quick["operations"] else 0
            if (quick["wait_share"] > 0.5 > slow["wait_share"] and slow["late_share"] > 0.5 > quick["late_share"]
                    and 2 < calls < 51 and abs(quick["bytes_per_s"] - 4096 * quick["calls_per_s"]) < 1
                    and "rank 1 keeps others waiting" in jobs[0]["straggler"] and jobs[0]["hosts"] == 1):
                print("ok top --json")
                return
        if time.monotonic() > patience:
            fail("top --json", f"it says {run.stdout} {run.stderr}", {})


def check_top_screen(sprat):
    """On a terminal: pages of its width, keys, and the terminal as it was. Jobs of other tests stand there, too."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 400, 60, 0, 0))
    before = termios.tcgetattr(end)
    program = subprocess.Popen([sprat, "top", "--interval", "0.2"], stdin=end, stdout=end, stderr=end,
                               env=dict(os.environ, TERM="xterm"))
    shown = ""

    def shows(pattern, key=None):
        nonlocal shown
        patience = time.monotonic() + 20
        while not re.search(pattern, shown, re.DOTALL):
            if time.monotonic() > patience:
                program.kill()
                fail("top on a terminal", f"it shows {shown!r}, and nothing like {pattern}", {})
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode()
        if key:
            shown = ""
            os.write(terminal, key)

    shows(r"ranks by rank;.*RANK", b"s")
    shows(r"ranks by wait;.*keeps others waiting", b"q")
    shows(r"\x1b\[\?1049l")
    if program.wait(20) != 0 or termios.tcgetattr(end) != before:
        fail("top on a terminal", "it ends otherwise than well, or the terminal is not as it was", {})
    lines = re.split(r"\r\n|\x1b\[H", shown.split("\x1b[?1049l")[0])
    wide = [line for line in lines if len(re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", line)) > 60]
    if wide:
        fail("top on a terminal", f"lines are wider than it: {wide}", {})
    os.close(terminal)
    os.close(end)
    print("ok top on a terminal")


def check_top_metrics(sprat, pids):
    """In a file and over HTTP: the same counters, which grow."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sprat.prom")
        subprocess.run([sprat, "top", "--prometheus", path], check=True, timeout=20)
        if os.listdir(folder) != ["sprat.prom"]:
            fail("top --prometheus", f"it leaves {os.listdir(folder)}", {})
        first = open(path).read()
    job = re.search(rf'sprat_rank_info{{job="([^"]+)",rank="0",pid="({"|".join(map(str, pids))})"', first)[1]
    calls = re.compile(rf'sprat_calls_total{{job="{job}",rank="0",operation="all_reduce"}} (\d+)')
    server = subprocess.Popen([sprat, "top", "--listen", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        if not url.startswith("http://127.0.0.1:"):
            fail("top --listen", f"it says {url}", {})
        silent = socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/", url)[1])))  # keeps nobody else waiting
        patience = time.monotonic() + 20
        while True:
            scraped = urllib.request.urlopen(url, timeout=10).read().decode()
            if int(calls.search(scraped)[1]) > int(calls.search(first)[1]):
                break
            if time.monotonic() > patience:
                fail("top --listen", f"calls do not grow: {first} {scraped}", {})
        for request in (urllib.request.Request(url, data=b"x"), url + "x"):
            try:
                urllib.request.urlopen(request, timeout=10)
                fail("top --listen", f"it answers {request}", {})
            except urllib.error.HTTPError as refused:
                if refused.code not in (404, 405):
                    raise
        silent.close()
    finally:
        server.kill()
        server.communicate()
    print("ok top --prometheus and --listen")


def on_terminal(command, columns, terminal="xterm"):
    """What a command shows on a terminal that is so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(os.environ, TERM=terminal))
    os.close(theirs)
    shown = b""
    patience = time.monotonic() + 60
    while time.monotonic() < patience:
        try:
            if not select.select([ours], [], [], 1)[0]:
                continue
            shown += os.read(ours, 65536)
        except OSError:  # EIO: nobody has the other end any more
            break
    os.close(ours)
    if program.wait(20) != 0:
        fail(f"{command} on a terminal", f"it ends with {program.returncode} and shows {shown!r}", {})
    return shown.decode()


def drawn(shown):
    """What was drawn over what stood in a line, without the blanks that cover what was longer."""
    return [text for piece in shown.replace("\r\n", "\n").split("\n") for text in piece.split("\r")[1:-1] if text.strip()]


def case_progress(worker, sprat):
    """Lines that are drawn anew on terminals, plain ones elsewhere, none if nobody wants any."""
    with tempfile.TemporaryDirectory() as folder:
        text, config = os.path.join(folder, "text.txt"), os.path.join(folder, "config.json")
        with open(text, "w") as file:
            file.write("the quick brown fox jumps over the lazy dog\n" * 500)
        with open(config, "w") as file:
            json.dump({"model": {"layers": 1, "width": 16, "heads": 2, "context": 32}, "data": {"files": [text]},
                       "train": {"steps": 40, "batch": 4, "validate_every": 20, "sample_bytes": 0},
                       "checkpoint": {"folder": os.path.join(folder, "saved"), "every": 20}}, file)
        train = [sprat, "train", config]
        lines = on_terminal(train, 50)
        shown = drawn(lines)
        if not any("training" in line for line in shown) or not all(len(line.rstrip()) < 50 for line in shown):
            fail("progress of train", f"{shown} of {lines!r}", {})
        if not all(line.startswith("step ") for line in shown) or "\nvalidation loss" not in lines:
            fail("progress of train", f"it leaves traces: {lines!r}", {})
        plain = subprocess.run(train, text=True, capture_output=True, timeout=60).stdout
        for case, other in (("on a dumb terminal", on_terminal(train, 50, "dumb")), ("in a file", plain)):
            if drawn(other) or not re.search(r"\nstep +20/40  loss .* left\r?\n", other):
                fail(f"progress of train {case}", repr(other), {})
        quiet = on_terminal(train + ["--quiet"], 50)
        if drawn(quiet) or "step " in quiet.replace("a step", "") or "\nvalidation loss" not in quiet:
            fail("progress of train --quiet", repr(quiet), {})
        print("ok progress of train")
        for command, word in (([sprat, "bench", "all_reduce", "-e", "128", "-n", "5"], "row 1 of 3  all_reduce of 8 B f32"),
                              ([sprat, "io", "bench", text, "--seconds", "2"], "turn 1 of ")):
            shown = on_terminal(command, 60)
            if not any(word in line for line in drawn(shown)):
                fail(f"progress of {command}", repr(shown), {})
            if drawn(on_terminal(command + ["--quiet"], 60)):
                fail(f"progress of {command} --quiet", repr(shown), {})
        print("ok progress of bench and io bench")


def main():
    worker, sprat, *chosen = sys.argv[1:]
    before = set(os.listdir("/dev/shm"))
    cases = {name[5:]: run for name, run in globals().items() if name.startswith("case_")}
    for name, run in cases.items():
        if not chosen or name in chosen:
            run(worker, sprat)
    patience = time.monotonic() + 10  # other programs come and go there
    while (residue := set(os.listdir("/dev/shm")) - before) and time.monotonic() < patience:
        time.sleep(0.1)
    if residue:
        print("FAILED: left in /dev/shm:", sorted(residue))
        sys.exit(1)


if __name__ == "__main__":
    main()
