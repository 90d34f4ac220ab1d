#!/usr/bin/env python3
"""Starts the three agents of this example, each beside a sidecar of its own, asks the first one a question, and ends all.

    python3 examples/research/run.py [QUESTION]

Needs capd (CAPD_BIN, the PATH, or this repository's target/), Python 3.9, Node 20 with npm, and Go 1.22. Everything that is
started or made lives in a temporary folder and ends with this program.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
END_SECONDS_MAX = 10
# capd reads its configuration from variables that begin with CAPD_, and every sidecar here has a file of its own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CAPD_")}


def find_capd() -> str:
    """The capd to run."""
    candidates = [os.environ.get("CAPD_BIN"), shutil.which("capd"), ROOT / "target/release/capd", ROOT / "target/debug/capd"]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            return str(Path(candidate).resolve())
    sys.exit("capd was not found: build it with `cargo build --release --bin capd`, or set CAPD_BIN")


def build_calculator(folder: Path) -> List[str]:
    program = folder / "calculator"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "calculator", check=True)
    return [str(program)]


def build_reviewer(folder: Path) -> List[str]:
    """Compiles the SDK and the reviewer in a folder where `capd` is a package."""
    built = folder / "reviewer"
    package = built / "node_modules/capd"
    shutil.copytree(ROOT / "sdk/typescript", package, ignore=shutil.ignore_patterns("node_modules", "dist", "test"))
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=package, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=package, check=True)
    shutil.copy(HERE / "reviewer.ts", built)
    (built / "package.json").write_text('{"type": "module"}')
    tsc, types = str(package / "node_modules/.bin/tsc"), str(package / "node_modules/@types")
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--typeRoots", types, "--types", "node"]
    subprocess.run([tsc, *options, "reviewer.ts"], cwd=built, check=True)
    return ["node", str(built / "reviewer.js")]


class Sidecar:
    """One sidecar: its folder, its DID, and once it runs its address."""

    def __init__(self, capd: str, folder: Path, name: str) -> None:
        self.capd, self.folder, self.name = capd, folder / f"{name}-sidecar", name
        self.folder.mkdir(mode=0o700)
        self.config = self.folder / "capd.toml"
        self.peers: List[str] = []
        self.allow: List[str] = []
        self.write()
        self.did = subprocess.run([capd, "id", "--config", str(self.config)], check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT).stdout.strip()
        self.address = ""

    def write(self) -> None:
        head = f'[agent]\ndir = "{self.folder}/state"\n\n[listen]\nquic = "127.0.0.1:0"\n\n[log]\nlevel = "warn"\n'
        self.config.write_text("\n".join([head, *self.peers, *self.allow]))
        self.config.chmod(0o600)

    def serves(self, peer: "Sidecar", capability: str) -> None:
        """Lets a peer call one capability here."""
        self.peers.append(f'[[peers]]\ndid = "{peer.did}"\naddresses = []\n')
        self.allow.append(f'[[allow]]\ncallers = ["{peer.did}"]\ncapabilities = ["{capability}"]\n')

    def calls(self, peer: "Sidecar", capability: str) -> None:
        """Takes one capability from a peer, which must run already."""
        self.peers.append(f'[[peers]]\ndid = "{peer.did}"\naddresses = ["quic://{peer.address}"]\nserves = ["{capability}"]\n')

    def start(self, processes: "Processes") -> None:
        self.write()
        process = processes.start([self.capd, "run", "--announce", "--stop-with-stdin", "--config", str(self.config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        assert process.stdout is not None
        announcement = process.stdout.readline()
        if not announcement:
            sys.exit(f"the sidecar of {self.name} did not start")
        self.address = json.loads(announcement)["quic"]

    @property
    def environment(self) -> Dict[str, str]:
        return {**ENVIRONMENT, "CAPD_SOCKET": str(self.folder / "state/capd.sock"), "PYTHONPATH": str(ROOT / "sdk/python/src")}


class Processes:
    """What was started, ended in reverse order."""

    def __init__(self) -> None:
        self.all: List[subprocess.Popen[Any]] = []

    def start(self, command: List[str], **more: Any) -> "subprocess.Popen[Any]":
        process = subprocess.Popen(command, **more)
        self.all.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self.all):
            process.send_signal(signal.SIGTERM)
        for process in self.all:
            try:
                process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def running() -> Iterator[Processes]:
    processes = Processes()
    try:
        yield processes
    finally:
        processes.end()


def main() -> int:
    capd = find_capd()
    with tempfile.TemporaryDirectory(prefix="capd-research-") as name, running() as processes:
        folder = Path(name)
        calculator_command, reviewer_command = build_calculator(folder), build_reviewer(folder)
        calculator, reviewer, researcher = (Sidecar(capd, folder, name) for name in ("calculator", "reviewer", "researcher"))

        calculator.serves(reviewer, "com.example.calculate")
        calculator.start(processes)
        reviewer.calls(calculator, "com.example.calculate")
        reviewer.serves(researcher, "com.example.review")
        reviewer.start(processes)
        researcher.calls(reviewer, "com.example.review")
        researcher.start(processes)

        processes.start(calculator_command, env=calculator.environment)
        processes.start(reviewer_command, env=reviewer.environment)
        return subprocess.run([sys.executable, str(HERE / "researcher.py"), *sys.argv[1:]], env=researcher.environment).returncode


if __name__ == "__main__":
    sys.exit(main())
