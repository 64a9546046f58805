#!/usr/bin/env python3
"""How long `bytepath run` takes on a terminal until it shows what: seconds from its start to the
first figures, to the first verdict, and to the report; and how many studies explained a difference.

answer.py [RUNS [LOAD]]: median and 90th percentile of RUNS (20) studies, while LOAD (0) per cent of
each CPU are used by another program, in bursts of 20 ms. BYTEPATH is the binary (default:
target/release/bytepath). Words behind `--` go to `bytepath run`.
"""

import fcntl
import multiprocessing
import os
import pty
import re
import shutil
import statistics
import struct
import sys
import tempfile
import termios
import time

BYTEPATH = os.environ.get("BYTEPATH") or os.path.join(
    os.path.dirname(__file__), "../target/release/bytepath")
BURST = 0.02
# A rate in a row of the table.
FIGURES = re.compile(rb"(socket|sendfile|splice|msg-zerocopy|uring(-zc)?) [^\r\n]*\d\.\d")
VERDICT = re.compile(rb"FASTER|SLOWER|LESS CPU|MORE CPU|EQUIVALENT")
EXPLANATION = re.compile(rb"\nWhy ")


def use_cpu(cpu, share):
    os.sched_setaffinity(0, {cpu})
    while True:
        begin = time.monotonic()
        while time.monotonic() - begin < BURST:
            pass
        time.sleep(BURST * (1 / share - 1))


def study(arguments):
    """Seconds to the first figures, the first verdict and the end; and whether it explains."""
    folder = tempfile.mkdtemp()
    begin = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(BYTEPATH, [BYTEPATH, "run", "--study", "study", *arguments])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    shown, times = b"", [None, None]
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other end is closed.
            break
        if not part:
            break
        shown += part
        for at, pattern in enumerate([FIGURES, VERDICT]):
            if times[at] is None and pattern.search(shown):
                times[at] = time.monotonic() - begin
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    end = time.monotonic() - begin
    os.close(terminal)
    shutil.rmtree(folder)
    if code not in (0, 5):
        sys.exit(f"exit code {code}: {shown.decode(errors='replace')[-2000:]}")
    return [*times, end], bool(EXPLANATION.search(shown))


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    numbers, arguments = words[:at], words[at + 1:]
    runs = int(numbers[0]) if numbers else 20
    load = float(numbers[1]) / 100 if len(numbers) > 1 else 0.0
    cpus = os.sched_getaffinity(0) if load else []
    for cpu in cpus:
        multiprocessing.Process(target=use_cpu, args=(cpu, load), daemon=True).start()
    studies = []
    for number in range(runs):
        studies.append(study(arguments))
        print(f"{number + 1}: {studies[-1]}", file=sys.stderr)
    print(f"{runs} studies of {len(os.sched_getaffinity(0))} CPUs, {load:.0%} of each used by others")
    for at, name in enumerate(["first figures", "first verdict", "report"]):
        times = [times[at] for times, _ in studies if times[at] is not None]
        if len(times) < 2:
            print(f"{name:<14} in {len(times)} of {runs}")
            continue
        ninth = statistics.quantiles(times, n=10, method="inclusive")[8]
        print(f"{name:<14} median {statistics.median(times):5.1f} s, 90th percentile {ninth:5.1f} s, "
              f"in {len(times)} of {runs}")
    print(f"{sum(explained for _, explained in studies)} of {runs} explained a difference")


if __name__ == "__main__":
    main()
