#!/usr/bin/env python3
"""Which share of two sidecars' processor time a function takes while they carry calls, 64 in flight, in channel mode.

    benches/e2e/share.py [--seconds S] FUNCTION NAME=PROGRAM NAME=PROGRAM …

The kernel's clock samples both sidecars 10,000 times a second, which works in a virtual machine as well. Where two programs differ
in one function, the difference of its shares is what that costs calls, and the machine's mood counts for neither. PROGRAM is capd
with its symbols; what was inlined counts for its caller. Needs `perf` and Python 3.9. Builds the caller and the provider, optimized.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """[agent]
dir = "{folder}/{name}"
[listen]
quic = "127.0.0.1:0"
[runtime]
busy_poll_us = 0
[log]
level = "warn"
[peer]
admit = "any"
signatures = "channel"
[[allow]]
callers = ["*"]
capabilities = ["*"]
{rest}"""
# Other columns follow the name, behind spaces.
LINE = re.compile(r"^\s*[\d.]+%\s+(\d+)\s+\[.\]\s+(.*?)(?:\s{2}.*)?$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=25)
    parser.add_argument("function")
    parser.add_argument("subjects", nargs="+", metavar="NAME=PROGRAM")
    args = parser.parse_args()
    agents = built()
    print(f"\n| | calls/s | samples | of these in `{args.function}` |\n| --- | --- | --- | --- |")
    for text in args.subjects:
        name, _, program = text.partition("=")
        with tempfile.TemporaryDirectory() as folder:
            rate, lines = sampled(pathlib.Path(program).resolve(), agents, pathlib.Path(folder), args.seconds)
        every = sum(int(count) for count, _ in lines)
        own = sum(int(count) for count, symbol in lines if symbol.endswith(args.function))
        if own == 0:
            raise SystemExit(f"{name}: no sample in {args.function}; is it inlined, or are there no symbols?")
        print(f"| {name} | {rate:.0f} | {every} | {own}, {own / every:.3%} |", flush=True)


def built() -> str:
    """The program that is caller and provider."""
    command = ["cargo", "bench", "--locked", "--bench", "journal", "--no-run", "--message-format", "json"]
    made = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    programs = [json.loads(line).get("executable") for line in made.splitlines()]
    return next(program for program in reversed(programs) if program and "/journal-" in program)


def sampled(program: pathlib.Path, agents: str, folder: pathlib.Path, seconds: int) -> tuple:
    """Calls in a second, and how many samples each function has."""
    running = []

    def start(*command, **kind) -> subprocess.Popen:
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **kind))
        return running[-1]

    def sidecar(name: str, rest: str = "") -> dict:
        (folder / name).mkdir(mode=0o700)
        config = folder / f"{name}.toml"
        config.write_text(CONFIG.format(folder=folder, name=name, rest=rest))
        process = start(program, "run", "--announce", "--config", config)
        return {"pid": process.pid, **json.loads(process.stdout.readline())}

    try:
        b = sidecar("b")
        peer = f'[[peers]]\ndid = "{b["did"]}"\naddresses = ["quic://{b["quic"]}"]\nserves = ["*"]\n'
        a = sidecar("a", peer)
        start(agents, "--provider", b["socket"], stdin=subprocess.PIPE).stdout.readline()
        data = folder / "perf.data"
        sampler = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "10000", "--output", data]
        perf = start(*sampler, "--pid", f"{a['pid']},{b['pid']}", stderr=subprocess.DEVNULL)
        load = f"org.example.unjournaled:1.0.0 64 {seconds * 1000} 300\n"
        caller = [agents, "--caller", a["socket"]]
        said = subprocess.run(caller, input=load, stdout=subprocess.PIPE, text=True, check=True).stdout
        perf.send_signal(signal.SIGINT)
        perf.wait()
        told = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        report = ["perf", "report", "--stdio", "--no-children", "--sort", "symbol", "-n", "--percent-limit", "0"]
        report = subprocess.run([*report, "--input", data], check=True, capture_output=True, text=True).stdout
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()
    return told["calls"] / told["seconds"], LINE.findall(report)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    main()
