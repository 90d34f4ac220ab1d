"""Real A2A peers against capd-a2a, through two sidecars: agents of the PyPI and npm SDKs imported at B and called from A; clients of
both SDKs served at A, which call those agents. Prints a line for each check, and how many passed.

Run by .ci/a2a, with CAPD_BIN and the folder of the installed npm packages."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CAPD = pathlib.Path(os.environ["CAPD_BIN"]).resolve()
CAPCTL, BRIDGE = CAPD.with_name("capctl"), CAPD.with_name("capd-a2a")
NODE = pathlib.Path(sys.argv[1]).resolve()
PATIENCE_S = 120
EXTENSION = "urn:capd:a2a:capabilities:1"
AGENTS = {
    "py-rpc": ([sys.executable, HERE / "agent.py"], "JSONRPC"),
    "py-rest": ([sys.executable, HERE / "agent.py"], "HTTP+JSON"),
    "js-rpc": (["node", NODE / "agent.mjs"], "JSONRPC"),
    "js-rest": (["node", NODE / "agent.mjs"], "HTTP+JSON"),
}
CLIENTS = {
    "PyPI a2a-sdk": [sys.executable, HERE / "client.py"],
    "npm @a2a-js/sdk": ["node", NODE / "client.mjs"],
}
passed, failed = 0, 0


def check(what, good, said=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print("ok  " if good else "FAIL", what, "" if good else said, flush=True)


class Sidecar:
    def __init__(self, folder, peers=()):
        folder.mkdir(mode=0o700)
        text = f'[agent]\ndir = "{folder}/state"\n[listen]\nquic = "127.0.0.1:0"\n[peer]\nadmit = "any"\nserves = ["*"]\n'
        for peer in peers:
            text += f'[[peers]]\ndid = "{peer.did}"\naddresses = ["quic://{peer.quic}"]\nserves = ["*"]\n'
        text += '[[allow]]\ncallers = ["*"]\ncapabilities = ["*"]\npermissions = ["*"]\n'
        (folder / "capd.toml").write_text(text)
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            [CAPD, "run", "--announce", "--stop-with-stdin", "--config", folder / "capd.toml"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env={"HOME": str(folder)},
        )
        said = json.loads(self.process.stdout.readline())
        self.did, self.quic, self.socket = said["did"], said["quic"], said["socket"]

    def call(self, name, params):
        done = subprocess.run(
            [CAPCTL, "--json", "--socket", self.socket, "call", name, "--params", json.dumps(params)],
            capture_output=True, text=True, env={"PATH": os.environ["PATH"]},
        )
        return done.returncode, done.stdout + done.stderr

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def eventually(attempt):
    end = time.monotonic() + PATIENCE_S
    while True:
        code, said = attempt()
        if code == 0 or time.monotonic() > end:
            return code, said
        time.sleep(0.1)


def main():
    started = []
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        b = Sidecar(home / "b")
        a = Sidecar(home / "a", [b])
        try:
            for name, (command, binding) in AGENTS.items():
                agent = subprocess.Popen([*command, binding, home / f"{name}.effects"], stdout=subprocess.PIPE, text=True)
                started.append(agent)
                words = [BRIDGE, "import", "--socket", b.socket, "--namespace", f"com.example.{name}"]
                words += ["--lock", home / f"{name}.lock", agent.stdout.readline().strip()]
                started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=open(home / f"{name}.log", "w")))
            serve = [BRIDGE, "serve", "--socket", a.socket, "--listen", "127.0.0.1:0", "--state", home / "state"]
            started.append(subprocess.Popen(serve, stdin=subprocess.DEVNULL, stderr=open(home / "serve.txt", "w")))
            agents(a)
            clients(home)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
            a.stop()
            b.stop()
        for log in [*home.glob("*.log"), home / "serve.txt"]:
            check(f"{log.stem} logs no error", "ERROR" not in log.read_text(), log.read_text())
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def agents(a):
    """Agents of others, imported at B and called from A."""
    for name in AGENTS:
        capability = f"com.example.{name}.shout"
        code, said = eventually(lambda: a.call(capability, {"text": "hello"}))
        check(f"{name}: a skill is called", code == 0 and "HELLO" in said, said)
        code, said = a.call(capability, {"text": "fail"})
        check(f"{name}: a failed task is a failed call", code != 0 and "5001" in said and "cannot shout" in said, said)
        code, said = a.call(capability, {"text": 7})
        check(f"{name}: params that do not fit are refused", code != 0 and "4004" in said, said)


def clients(home):
    """Clients of others, served at A, whose calls go to the agents behind B."""
    def url():
        words = (home / "serve.txt").read_text().split("url=")
        return (0, words[1].split()[0].strip('"')) if len(words) > 1 else (1, "")

    _, address = eventually(url)
    for name, command in CLIENTS.items():
        for binding in ["JSONRPC", "HTTP+JSON"]:
            for agent in ["py-rpc", "js-rest"]:
                what = f"{name} over {binding}, to {agent}"
                words = [*command, address, binding, f"com.example.{agent}.shout:1.0.0"]
                try:
                    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
                    said = json.loads(done.stdout.strip().splitlines()[-1])
                except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
                    check(what, False, f"{error}\n{done.stderr if 'done' in locals() else ''}")
                    continue
                told(what, said, (home / f"{agent}.effects").read_text().splitlines())


def told(what, said, effects):
    """Holds what a client was told against what the agent did."""
    state = lambda task: task["status"]["state"].removeprefix("TASK_STATE_")
    words = lambda task: task["status"]["message"]["parts"][0]["text"]
    done = said["done"]
    result = done["artifacts"][0]["parts"][0]["data"]
    check(f"{what}: the card's signature is verified", said["verified"], said)
    check(f"{what}: a message is a task with a result", state(done) == "COMPLETED" and result["text"] == said["text"].upper(), done)
    check(f"{what}: its outcome stands in the metadata", done["metadata"][EXTENSION]["outcome"] == "executed", done)
    same = done["id"] == said["again"]["id"] == said["joined"]["id"]
    check(f"{what}: the same message is the same task, and ran once", same and effects.count(said["text"]) == 1, said)
    check(f"{what}: a stream ends with the end", said["states"][-1] == "TASK_STATE_COMPLETED", said["states"])
    wrong = said["wrong"]
    check(f"{what}: params that do not fit are rejected", state(wrong) == "REJECTED" and words(wrong).startswith("Not executed: ") and "/text" in words(wrong), wrong)
    bad = said["failed"]
    check(f"{what}: a failed task says so", state(bad) == "FAILED" and "cannot shout" in words(bad), bad)
    check(f"{what}: a task is cancelled", state(said["cancelled"]) == "CANCELED", said["cancelled"])


main()
