"""Keyed calls with a side effect, while clients, connections and both sidecars are killed at random: none runs twice.

`CAPD_KEYED_CALLS` is how many, 48 unless set; `CAPD_SEED` makes the same choices again; `CAPD_KEYED_WRITE` names a file for what was
counted.
"""

import collections
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from capd_process import PATIENCE_SECONDS, Capd
from cutting_proxy import CuttingProxy

import capd

pytestmark = pytest.mark.skipif("CAPD_BIN" not in os.environ, reason="CAPD_BIN, the path of a capd, is not set: NOTHING WAS RUN AGAINST A REAL SIDECAR")

WORKERS = 4
#: Longest time for one call, all restarts included.
CALL_SECONDS_MAX = 20.0


class Worker:
    """A client process, and the keys that it calls with."""

    def __init__(self, socket: str, journal: Path, keys: List[str]) -> None:
        self.journal = journal
        self._command = [sys.executable, str(Path(__file__).parent / "keyed_worker.py"), socket, str(journal), *keys]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(capd.__file__).parents[1])}
        self.process = subprocess.Popen(self._command, env=environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def outcomes(workers: List[Worker]) -> Dict[str, Any]:
    """The outcome of each key, as the workers wrote it down."""
    found: Dict[str, Any] = {}
    for worker in workers:
        for line in worker.journal.read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                outcome = json.loads(line)
                assert outcome["key"] not in found, "a key that had an outcome was called with again"
                found[outcome["key"]] = outcome
    return found


def disturb(choice: random.Random, workers: List[Worker], caller: Capd, provider: Capd, done: Dict[str, int]) -> None:
    """Kills something, and brings it back."""
    what = choice.choice(["client", "client", "caller's sidecar", "provider's sidecar"])
    if what == "client":
        worker = choice.choice(workers)
        if worker.process.poll() is not None:
            return
        worker.kill()
        worker.start()
    else:
        sidecar = caller if what == "caller's sidecar" else provider
        sidecar.kill()
        time.sleep(choice.uniform(0, 0.2))
        sidecar.start()
    done[what] = done.get(what, 0) + 1


def asked_again(client: capd.Client, key: str) -> Dict[str, Any]:
    """What the key says once everything is quiet."""
    try:
        return {"key": key, "outcome": "result", "value": client.call("com.acme.order", {"key": key}, key=key, ttl=3600, timeout=60)}
    except capd.CapdError as error:
        return {"key": key, "outcome": error.outcome, "code": error.code}


def test_no_keyed_call_runs_twice_whatever_is_killed(tmp_path: Path) -> None:
    count, seed = int(os.environ.get("CAPD_KEYED_CALLS", "48")), int(os.environ.get("CAPD_SEED", str(random.randrange(10**6))))
    print(f"CAPD_KEYED_CALLS={count} CAPD_SEED={seed}")
    choice, runs, lock = random.Random(seed), collections.Counter(), threading.Lock()  # type: ignore[var-annotated]
    provider = Capd(tmp_path / "provider").start()
    caller = Capd(tmp_path / "caller", (provider,)).start()
    proxy = CuttingProxy(str(tmp_path / "proxy.sock"), caller.socket, 6, seed)
    agent = capd.Agent(provider.socket)

    def order(params: Any) -> Dict[str, Any]:
        with lock:
            runs[params["key"]] += 1
            number = sum(runs.values())
            pause = choice.uniform(0, 0.1)
        time.sleep(pause)
        return {"order": number}

    agent.add("com.acme.order", order)
    agent.start()
    keys = [f"key-{number}" for number in range(count)]
    workers: List[Worker] = []
    done: Dict[str, int] = {}
    try:
        assert agent.wait_ready(PATIENCE_SECONDS)
        workers += [Worker(str(tmp_path / "proxy.sock"), tmp_path / f"journal-{number}", keys[number::WORKERS]) for number in range(WORKERS)]
        end = time.monotonic() + 60 + count * CALL_SECONDS_MAX / WORKERS
        while any(worker.process.poll() is None for worker in workers):
            assert time.monotonic() < end, f"not done in time: {done}\n{caller.log[-3000:]}"
            time.sleep(choice.uniform(0.2, 1.2))
            disturb(choice, workers, caller, provider, done)
        assert [worker.process.returncode for worker in workers] == [0] * WORKERS
        said = outcomes(workers)
        assert said.keys() == set(keys)
        twice = {key: times for key, times in runs.items() if times > 1}
        assert not twice, f"ran more than once: {twice}"
        with capd.Client(caller.socket, wait=60) as client:
            again = {key: asked_again(client, key) for key in keys}
        kinds = collections.Counter(outcome["outcome"] for outcome in said.values())
        print(f"outcomes {dict(kinds)}, killed {done}, connections cut {proxy.cuts}")
        for key in keys:
            check(said[key], again[key], runs[key])
        write(count, seed, said, again, runs, {**done, "connection cut after a request": proxy.cuts})
        assert max(runs.values()) == 1 and kinds["result"] > 0
    finally:
        for worker in workers:
            worker.kill()
        agent.stop()
        proxy.close()
        caller.kill()
        provider.kill()


def write(count: int, seed: int, said: Dict[str, Any], again: Dict[str, Any], runs: "collections.Counter[str]", kills: Dict[str, int]) -> None:
    """What was counted, for docs/evidence/http.json."""
    if "CAPD_KEYED_WRITE" not in os.environ:
        return
    counted = {
        "keys": count,
        "seed": seed,
        "kills": kills,
        "outcomes": dict(collections.Counter(outcome["outcome"] for outcome in said.values())),
        "executions": sum(runs.values()),
        "second_executions": sum(times - 1 for times in runs.values()),
        "asked_again": {
            "the_same": sum(again[key] == said[key] for key in said),
            "a_result_in_place_of_unknown": sum(again[key]["outcome"] == "result" != said[key]["outcome"] for key in said),
        },
    }
    Path(os.environ["CAPD_KEYED_WRITE"]).write_text(json.dumps(counted, indent=2) + "\n")


def check(said: Dict[str, Any], again: Dict[str, Any], runs: int) -> None:
    """The outcome is true, and the key says the same when it is asked again."""
    if said["outcome"] == "result":
        assert runs == 1 and again == said
    elif said["outcome"] == "refused":
        assert runs == 0
    elif said["outcome"] == "unknown":
        # The sidecar may have learned meanwhile how it ended.
        assert again["outcome"] == "unknown" or (again["outcome"] == "result" and runs == 1), (said, again)
    else:
        assert said["outcome"] == "failed" and again == said, (said, again)
