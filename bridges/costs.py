#!/usr/bin/env python3
"""What `tools/call` costs through capd: the tool `echo` of npm's server-everything, called directly, through one sidecar and through two,
over stdio and over HTTP. Prints a table.

    cargo build --release -p capd -p capd-mcp
    (cd tests/interop/mcp && npm ci)
    python3 bridges/costs.py --bin target/release --npm tests/interop/mcp --seconds 5

The client is in this file, in plain lines and plain HTTP, so that no SDK's own cost is in the figures. Calls are made one after the other
for the times, and 16 at once for the rate. A local import is the row of one sidecar: client, `capd-mcp serve`, sidecar, `capd-mcp import`,
server. Memory is resident memory of capd's own processes after the calls."""

import argparse
import http.client
import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import tempfile
import threading
import time

LINE = {"message": "x" * 100}


class Sidecar:
    def __init__(self, binaries, folder, peers=()):
        folder.mkdir(mode=0o700)
        text = f'[agent]\ndir = "{folder}/state"\n[listen]\nquic = "127.0.0.1:0"\n[peer]\nadmit = "any"\nserves = ["*"]\n'
        for peer in peers:
            text += f'[[peers]]\ndid = "{peer.did}"\naddresses = ["quic://{peer.quic}"]\nserves = ["*"]\n'
        text += '[[allow]]\ncallers = ["*"]\ncapabilities = ["*"]\npermissions = ["*"]\n'
        (folder / "capd.toml").write_text(text)
        self.process = subprocess.Popen(
            [binaries / "capd", "run", "--announce", "--stop-with-stdin", "--config", folder / "capd.toml"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(folder / "log", "w"), text=True, env={"HOME": str(folder)})
        said = json.loads(self.process.stdout.readline())
        self.did, self.quic, self.socket = said["did"], said["quic"], said["socket"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Lines:
    """A client over stdio."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
        self.next_id = 0
        self.request("initialize", INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.next_id += 1
        self.send({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
        return self.next_id

    def answer(self):
        while True:
            message = json.loads(self.process.stdout.readline())
            if "method" not in message:
                return message
            if "id" in message:
                self.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "not here"}})

    def request(self, method, params):
        self.ask(method, params)
        return self.answer()

    def rate(self, params, seconds):
        for _ in range(16):
            self.ask("tools/call", params)
        done, end, begun = 0, time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end:
            self.answer()
            done += 1
            self.ask("tools/call", params)
        took = time.monotonic() - begun
        for _ in range(16):
            self.answer()
        return done / took

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Http:
    """A client over streamable HTTP, on one connection that is kept."""

    def __init__(self, url, session=None):
        self.host, self.path = re.fullmatch(r"http://([^/]+)(/.*)", url).groups()
        self.url, self.connection, self.session, self.next_id = url, http.client.HTTPConnection(self.host), session, 0
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if session is None:
            self.request("initialize", INITIALIZE)
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message):
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            head |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        self.connection.request("POST", self.path, json.dumps(message), head)
        response = self.connection.getresponse()
        self.session = self.session or response.headers.get("Mcp-Session-Id")
        return response, response.read()

    def request(self, method, params):
        self.next_id += 1
        response, body = self.post({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
        if response.headers.get_content_type() == "text/event-stream":
            events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
            return next(message for message in map(json.loads, events) if "method" not in message)
        return json.loads(body)

    def rate(self, params, seconds):
        counts, end, begun = [], time.monotonic() + seconds, time.monotonic()

        def call(client):
            done = 0
            while time.monotonic() < end:
                client.request("tools/call", params)
                done += 1
            counts.append(done)

        threads = [threading.Thread(target=call, args=(Http(self.url, self.session or ""),)) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return sum(counts) / (time.monotonic() - begun)

    def close(self):
        self.connection.close()


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "costs", "version": "0"}}


def eventually(attempt, what):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := attempt():
            return found
        time.sleep(0.05)
    raise SystemExit(f"not in time: {what}")


def resident(processes):
    """MiB of each process."""
    read = lambda pid: int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    return " + ".join(f"{read(process.pid):.0f}" for process in processes)


def measured(name, client, tool, seconds, processes):
    params = {"name": tool, "arguments": LINE}

    def offered():
        answer = client.request("tools/call", params)
        return "error" not in answer and not answer["result"].get("isError")

    eventually(offered, f"{name}: {tool}")
    for _ in range(300):
        client.request("tools/call", params)
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        answer = client.request("tools/call", params)
        times.append(time.perf_counter() - begun)
        assert LINE["message"] in json.dumps(answer), answer
    times.sort()
    at = lambda share: times[int(len(times) * share)] * 1e3
    rate = client.rate(params, seconds)
    memory = resident(processes) if processes else "–"
    print(f"| {name} | {at(0.5):.2f} | {at(0.99):.2f} | {len(times) / sum(times):,.0f} | {rate:,.0f} | {memory} |", flush=True)
    client.close()


def idempotent(lock):
    """The owner's word that the tools may run twice, so that no call is journaled. The import reads it within a second."""
    lock.write_text(lock.read_text().replace("idempotent = false", "idempotent = true"))
    time.sleep(3)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", type=pathlib.Path, default="target/release", help="the folder of capd and capd-mcp")
    arguments.add_argument("--npm", type=pathlib.Path, default="tests/interop/mcp", help="the folder of node_modules")
    arguments.add_argument("--seconds", type=float, default=5)
    given = arguments.parse_args()
    binaries, server = given.bin.resolve(), given.npm.resolve() / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    bridge = binaries / "capd-mcp"
    stdio = ["node", str(server)]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, {time.strftime('%Y-%m-%d')}\n")
    print("| `tools/call` | p50 ms | p99 ms | calls/s, one at a time | calls/s, 16 at once | capd's memory, MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        running = []
        b = Sidecar(binaries, home / "b")
        a = Sidecar(binaries, home / "a", [b])
        quiet = {"PATH": os.environ["PATH"], "HOME": str(home), "CAPD_LOG": "warn"}

        def start(words):
            running.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quiet, cwd=home))
            return running[-1]

        try:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port = listener.getsockname()[1]
            running.append(subprocess.Popen(
                [*stdio, "streamableHttp"], env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            url = f"http://127.0.0.1:{port}/mcp"

            def listens():
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(listens, "the server over HTTP")
            common = ["import", "--socket", b.socket]
            over_stdio = start([
                bridge, *common, "--namespace", "org.stdio", "--lock", home / "stdio.lock", "--unconfined", "--", *stdio])
            over_http = start([bridge, *common, "--namespace", "org.http", "--lock", home / "http.lock", "--url", url])
            serve = lambda sidecar: [str(bridge), "serve", "--socket", sidecar.socket]

            measured("stdio: the server directly", Lines(stdio), "echo", given.seconds, [])
            for name, sidecar, capd in (("one sidecar", b, [b]), ("two sidecars", a, [a, b])):
                client = Lines(serve(sidecar), quiet)
                processes = [client.process, *(each.process for each in capd), over_stdio]
                measured(f"stdio: {name}", client, "org_stdio_echo", given.seconds, processes)
            idempotent(home / "stdio.lock")
            client = Lines(serve(b), quiet)
            measured(
                "stdio: one sidecar, the tool marked `idempotent`", client, "org_stdio_echo", given.seconds,
                [client.process, b.process, over_stdio])
            measured("HTTP: the server directly", Http(url), "echo", given.seconds, [])
            for name, sidecar, capd in (("one sidecar", b, [b]), ("two sidecars", a, [a, b])):
                log = home / f"serve-{name}"
                serving = subprocess.Popen(
                    [*serve(sidecar), "--http", "127.0.0.1:0"], stdin=subprocess.DEVNULL, stderr=open(log, "w"),
                    env=quiet | {"CAPD_LOG": "info"})
                running.append(serving)
                said = lambda: re.search(r'url="?(http://[^" ]+)', log.read_text())
                client = Http(eventually(said, "capd-mcp serve --http")[1])
                processes = [serving, *(each.process for each in capd), over_http]
                measured(f"HTTP: {name}", client, "org_http_echo", given.seconds, processes)
        finally:
            for process in running:
                process.terminate()
                process.wait()
            a.stop()
            b.stop()


main()
