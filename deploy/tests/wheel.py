"""Uses an installed wheel: two sidecars, an agent behind each, and calls between them while both sidecars are replaced.

Run by the Python of a virtual environment that has the wheel. Prints what was shown; ends with 1 where it was not.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import capd

BIN = Path(sys.executable).parent
CALLS = 300
WAIT_SECONDS_MAX = 60


class Sidecar:
    """`capd run` with a configuration; `replace` is what an upgrade does to it."""

    def __init__(self, folder: Path, lines: str) -> None:
        self.folder = folder
        self.config = folder / "capd.toml"
        self.config.write_text(f'[agent]\ndir = "{folder}/state"\n[log]\nlevel = "warn"\n{lines}')
        self.start()

    def start(self) -> None:
        words = [BIN / "capd", "run", "--announce", "--stop-with-stdin", "--config", self.config]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean())
        line = self.process.stdout.readline()
        assert line, f"{self.folder.name} did not start"
        self.announced = json.loads(line)

    def stop(self) -> None:
        self.process.terminate()
        code = self.process.wait(WAIT_SECONDS_MAX)
        assert code == 0, f"{self.folder.name} ended with {code} after SIGTERM"

    def replace(self) -> None:
        self.stop()
        self.start()


def clean() -> dict:
    """The environment without what would configure a sidecar."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CAPD_")}


def main() -> None:
    assert Path(capd.__file__).is_relative_to(sys.prefix), f"imported from {capd.__file__}, not from the wheel"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for side in ("caller", "provider"):
            (work / side).mkdir(mode=0o700)
        caller_did = subprocess.run(
            [BIN / "capd", "id", "--set", f"agent.dir={work}/caller/state"], check=True, text=True, stdout=subprocess.PIPE, env=clean()
        ).stdout.strip()
        rules = f'[[allow]]\ncallers = ["{caller_did}"]\ncapabilities = ["*"]\n[[peers]]\ndid = "{caller_did}"\naddresses = []\n'
        provider = Sidecar(work / "provider", f'[listen]\nquic = "127.0.0.1:0"\n{rules}')
        # Its successor listens where callers look for it.
        text = provider.config.read_text()
        provider.config.write_text(text.replace("127.0.0.1:0", provider.announced["quic"]))
        peer = f'[[peers]]\ndid = "{provider.announced["did"]}"\naddresses = ["quic://{provider.announced["quic"]}"]\nserves = ["*"]\n'
        caller = Sidecar(work / "caller", peer)
        try:
            use(caller, provider)
        finally:
            for sidecar in (caller, provider):
                sidecar.process.kill()
                sidecar.process.wait()


def use(caller: Sidecar, provider: Sidecar) -> None:
    agent = capd.Agent(provider.announced["socket"])
    executed: "collections.Counter[int]" = collections.Counter()
    lock = threading.Lock()

    @agent.capability("com.example.order", idempotent=False)
    def order(number: int) -> int:
        with lock:
            executed[number] += 1
        time.sleep(0.02)
        return number * 2

    agent.start()
    try:
        words = [BIN / "capctl", "--socket", caller.announced["socket"], "call", "com.example.order", "--params", '{"number": -1}']
        printed = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, env=clean()).stdout
        assert json.loads(printed) == -2, f"capctl printed {printed!r}"
        print("capctl called an agent of the SDK through two sidecars")
        upgrade(caller, provider)
        twice = [number for number, times in executed.items() if times != 1]
        assert not twice and len(executed) == CALLS + 1, f"{len(executed)} numbers were executed, more than once: {twice}"
    finally:
        agent.stop()


def upgrade(caller: Sidecar, provider: Sidecar) -> None:
    """Makes calls while each sidecar in turn is ended by SIGTERM and started again, and looks at every result."""
    ended = threading.Semaphore(0)
    unknown: "list[int]" = []

    def call(number: int) -> int:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                return client.call("com.example.order", {"number": number}, key=f"order-{number}", timeout=WAIT_SECONDS_MAX)
            except capd.Refused as error:
                # A sidecar that has just started does not know its agent's capabilities before the agent declares them again.
                if error.code != 4002 or time.monotonic() > end:
                    raise
                unknown.append(number)
                time.sleep(0.1)

    def made(number: int) -> int:
        try:
            return call(number)
        finally:
            ended.release()

    with capd.Client(caller.announced["socket"], wait=WAIT_SECONDS_MAX) as client, ThreadPoolExecutor(8) as threads:
        results = [threads.submit(made, number) for number in range(CALLS)]
        for sidecar in (provider, caller):
            for _ in range(CALLS // 4):
                ended.acquire()
            assert not all(result.done() for result in results), "all calls ended before the upgrade"
            sidecar.replace()
        assert [result.result() for result in results] == [number * 2 for number in range(CALLS)]
    again = f"{len(unknown)} refusals with 4002 were answered by the same call again"
    print(f"{CALLS} calls that may run only once kept their results while both sidecars were replaced; {again}")


if __name__ == "__main__":
    main()
