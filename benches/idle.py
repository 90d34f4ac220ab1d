#!/usr/bin/env python3
"""What an idle sidecar takes: the size of its program, its memory and its processor time, against what is promised.

    benches/idle.py [CAPD] [--sidecars N] [--seconds S]

CAPD is target/shipped/capd, which deploy/build.sh makes, unless another one is named. N sidecars run beside each other, each
with a peer that it is linked to, since pages of the program that they share are a part of each one's PSS. Reads
/proc/PID/smaps_rollup and the schedstat of each thread, so it runs on Linux. Needs Python 3.9. Exit code 1: a bar is missed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SETTLE_S = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("capd", nargs="?", type=pathlib.Path, default=root / "target/shipped/capd")
    parser.add_argument("--sidecars", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    size = stripped(args.capd)
    with tempfile.TemporaryDirectory() as folder:
        sidecars = []
        try:
            for number in range(args.sidecars):
                sidecars.append(start(args.capd.resolve(), pathlib.Path(folder) / str(number), sidecars))
            time.sleep(SETTLE_S)
            pids = [process.pid for process, _ in sidecars]
            began, before = time.monotonic(), [cpu_ns(pid) for pid in pids]
            time.sleep(args.seconds)
            seconds, after = time.monotonic() - began, [cpu_ns(pid) for pid in pids]
            memory = [smaps(pid) for pid in pids]
        finally:
            for process, _ in sidecars:
                process.stdin.close()
            for process, _ in sidecars:
                process.wait(timeout=60)
    cpu = [(end - start) / 1e9 / seconds * 100 for start, end in zip(before, after)]
    bars = [
        ("program, stripped", size / 1e6, 20, "MB"),
        ("RSS, highest", max(one["Rss"] for one in memory) / 1e6, 20, "MB"),
        ("PSS, median", statistics.median(one["Pss"] for one in memory) / 1e6, 3, "MB"),
        ("processor, median", statistics.median(cpu), 0.05, "% of a core"),
    ]
    print(f"{args.sidecars} idle sidecars, {seconds:.0f} s, {args.capd}")
    for name, value, bar, unit in bars:
        print(f"{name:20} {value:8.3f} {unit:12} at most {bar}: {'met' if value <= bar else 'MISSED'}")
    private = statistics.median(one["Private_Dirty"] for one in memory) / 1e6
    print(f"beside: {private:.3f} MB of each are its own and written (median); processor, highest: {max(cpu):.3f} %")
    sys.exit(any(value > bar for _, value, bar, _ in bars))


def stripped(program: pathlib.Path) -> int:
    """How large the program is without its symbols."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, program], check=True)
        return os.stat(copy.name).st_size


def start(capd: pathlib.Path, folder: pathlib.Path, others: list) -> tuple:
    """A sidecar that serves nothing. Every second one is linked to the one before."""
    folder.mkdir(mode=0o700)
    text = f'[agent]\ndir = "{folder}/state"\n[listen]\nquic = "127.0.0.1:0"\nhealth = "127.0.0.1:0"\n[peer]\nadmit = "any"\n'
    if len(others) % 2:
        peer = others[-1][1]
        text += f'[[peers]]\ndid = "{peer["did"]}"\naddresses = ["quic://{peer["quic"]}"]\n'
    config = folder / "capd.toml"
    config.write_text(text)
    command = [capd, "run", "--announce", "--stop-with-stdin", "--config", config]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    said = process.stdout.readline()
    if not said:
        raise SystemExit(f"{capd} did not start: run it with --config {config}")
    return process, json.loads(said)


def cpu_ns(pid: int) -> int:
    """Time that all its threads have run. Clock ticks are too coarse for an idle process."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def smaps(pid: int) -> dict:
    """Bytes of its memory, by their kind."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


if __name__ == "__main__":
    main()
