#!/usr/bin/env python3
"""Compares builds or settings of capd by whole calls: the same benchmark, of one after the other in turn, all in one run.

    benches/e2e/compare.py [--rounds N] [--only KIND,…] NAME=PROGRAM[,KEY=VALUE…] NAME=PROGRAM[,KEY=VALUE…] …

KEY=VALUE are keys of the configuration, such as otlp.endpoint=http://127.0.0.1:9. The first one is what the others are held
against: in each round by the calls per second of that round, so that what the machine does meanwhile counts for both. The mean
of these ratios is geometric; it lies within the interval with 95 %, if the rounds differ by chance.
KIND is one of the benchmark's own ways to call: channel (the first), signed, journaled and others.
Needs Python 3.9. Builds the benchmark, optimized, and nothing else.
"""

import argparse
import math
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile

MANIFEST = pathlib.Path(__file__).resolve().parent / "Cargo.toml"
# The round of each kind, and the smallest of the sizes, which is the load of `channel` once more.
ROUND = re.compile(r"^(?:round 1, (\S+)|400 bytes): (\d+) calls/s$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", metavar="KIND,…", default="channel")
    parser.add_argument("subjects", nargs="+", metavar="NAME=PROGRAM[,KEY=VALUE…]")
    args = parser.parse_args()
    cargo = ["cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", str(MANIFEST), "--"]
    with tempfile.TemporaryDirectory() as folder:
        subjects = [subject(text, pathlib.Path(folder)) for text in args.subjects]
        rates: dict[str, dict[str, list[float]]] = {kind: {} for kind in args.only.split(",")}
        for number in range(1, args.rounds + 1):
            # Each is first as often as last.
            for name, program in subjects if number % 2 else reversed(subjects):
                options = ["--only", args.only, "--rounds", "1", "--seconds", str(args.seconds), "--capd", str(program)]
                said = subprocess.run([*cargo, *options], check=True, stdout=subprocess.PIPE, text=True).stdout
                for kind, of_kind in rates.items():
                    found = [float(rate) for of, rate in ROUND.findall(said) if (of or "channel") == kind]
                    if len(found) != (2 if kind == "channel" else 1):
                        raise SystemExit(f"the benchmark did not print the rates of {kind}:\n{said}")
                    of_kind.setdefault(name, []).append(statistics.fmean(found))
                    print(f"round {number}, {name}, {kind}: {of_kind[name][-1]:.0f} calls/s", flush=True)
    first = subjects[0][0]
    print("\n| | | calls/s, median | of the first, median | lowest to highest | mean, and its interval |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind, of_kind in rates.items():
        for name, _ in subjects:
            own = of_kind[name]
            ratios = sorted(rate / of_first for rate, of_first in zip(own, of_kind[first]))
            middle = statistics.median(ratios)
            spread = f"{ratios[0]:.2%} to {ratios[-1]:.2%}"
            print(f"| {kind} | {name} | {statistics.median(own):.0f} | {middle:.2%} | {spread} | {mean(ratios)} |")


def mean(ratios: list[float]) -> str:
    """The geometric mean, and where it lies with 95 %."""
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(middle):.2%}"
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(middle):.2%}, {math.exp(middle - half):.2%} to {math.exp(middle + half):.2%}"


def subject(text: str, folder: pathlib.Path) -> tuple[str, pathlib.Path]:
    """A name, and a program that is capd with these settings."""
    name, _, rest = text.partition("=")
    path, *settings = rest.split(",")
    program = pathlib.Path(path).resolve()
    if not program.is_file():
        raise SystemExit(f"{text}: {program} is no program")
    words = " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
    wrapper = folder / f"{len(list(folder.iterdir()))}-{name}"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@" {words}\n')
    wrapper.chmod(0o700)
    return name, wrapper


if __name__ == "__main__":
    main()
