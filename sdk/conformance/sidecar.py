#!/usr/bin/env python3
"""Plays the sidecar of one scenario: checks each HTTP request and answers as the script says.

    sidecar.py SCENARIOS.json NAME --dir DIR [--socket PATH]

It prints the address that it serves, plays until its standard input ends, and prints a report as JSON.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import parse_qsl, unquote, urlsplit

from exact import dumps, loads
from matching import ABSENT, difference

WAIT_SECONDS_MAX = 20.0
POLL_SECONDS = 0.005
HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024


class Cut(Exception):
    """The script breaks the connection here, or the other side did."""


class Signals:
    """Named files in one folder: how the sidecar, the driver and the script wait for each other."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def set(self, name: str) -> None:
        with open(os.path.join(self.folder, name), "w", encoding="ascii"):
            pass

    def is_set(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.folder, name))

    def wait(self, name: str, stopped: threading.Event) -> bool:
        """Whether it was set in time."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not self.is_set(name):
            if stopped.is_set() or time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True


class Request:
    """One request as it came."""

    def __init__(self, method: str, target: str, headers: Dict[str, str], body: bytes) -> None:
        parts = urlsplit(target)
        self.method, self.path = method, unquote(parts.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.headers, self.body = headers, body

    def json(self) -> Any:
        return loads(self.body.decode("utf-8")) if self.body else ABSENT

    def difference(self, expected: Dict[str, Any], bound: Dict[str, Any]) -> Optional[str]:
        """Where it differs from what an exchange expects, method and path aside."""
        query = {**{name: {"$absent": True} for name in self.query}, **expected.get("query", {})}
        for name, pattern in query.items():
            found = difference(pattern, self.query.get(name, ABSENT), bound, f"query {name}")
            if found:
                return found
        for name, pattern in expected.get("headers", {}).items():
            found = difference(pattern, self.headers.get(name.lower(), ABSENT), bound, f"header {name}")
            if found:
                return found
        if "text" in expected:
            return difference(expected["text"], self.body.decode("utf-8"), bound, "body as text")
        try:
            body = self.json()
        except ValueError as error:
            return f"body is not JSON: {error}"
        if "body" in expected and body is not ABSENT and "json" not in self.headers.get("content-type", ""):
            return f"header Content-Type: expected application/json, saw {self.headers.get('content-type')!r}"
        return difference(expected.get("body", {"$absent": True}), body, bound, "body ")


class Sidecar:
    """The scripted sidecar of one scenario; `start` it, run the driver, `stop` it, read `problems`."""

    def __init__(self, scenario: Dict[str, Any], folder: str, socket_path: Optional[str] = None) -> None:
        self.scenario = scenario
        self.signals = Signals(folder)
        self.socket_path = socket_path
        # A scenario whose driver has another token looks at the header itself.
        self.token = None if "driver_token" in scenario else scenario.get("token")
        self.problems: List[str] = []
        self.requests: List[str] = []
        self.bound: Dict[str, Any] = {}
        self.unused: List[Dict[str, Any]] = list(scenario["sidecar"])
        self.running = 0
        self.refused = scenario.get("cut_connections", 0)
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.connections: List[socket.socket] = []
        if socket_path is None:
            self.listener = socket.socket(socket.AF_INET)
            self.listener.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.address = socket_path
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.serving: List[threading.Thread] = []

    def start(self) -> None:
        later = self.scenario.get("listen")
        if later is None:
            self._listen()
        self.thread.start()
        self._settle()

    def stop(self) -> None:
        """Ends all connections, and says what of the script was never asked for."""
        self.stopped.set()
        with self.lock:
            for each in [self.listener, *self.connections]:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.thread.join()
        # They may still write a signal into the folder, which is removed afterwards.
        for serving in self.serving:
            serving.join(WAIT_SECONDS_MAX)
        self.listener.close()
        for exchange in self.unused:
            if not exchange.get("optional"):
                self.problems.append(f"never came: {exchange['method']} {exchange['path']}")

    def report(self) -> Dict[str, Any]:
        return {"requests": self.requests, "problems": self.problems}

    def _listen(self) -> None:
        if self.socket_path is not None:
            self.listener.bind(self.socket_path)
        self.listener.listen(64)

    def _accept(self) -> None:
        later = self.scenario.get("listen")
        if later is not None:
            self._wait(later["after"])
            # Nobody can see a connection that failed, so time has to do: too little of it lets a scenario pass that
            # should not, and never fails one.
            self.stopped.wait(later.get("then_ms", 0) / 1000)
            self._listen()
        while not self.stopped.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                cut, self.refused = self.refused > 0, max(0, self.refused - 1)
                self.connections.append(connection)
            if cut:
                self.requests.append("(connection cut at once)")
                connection.close()
                continue
            serving = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self.serving.append(serving)
            serving.start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while True:
                request = _read(stream)
                if request is None or not self._answer(connection, request):
                    return
        except (Cut, OSError):
            pass
        except ValueError as error:
            self._problem(f"not HTTP: {error}")
        finally:
            stream.close()
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _answer(self, connection: socket.socket, request: Request) -> bool:
        """Whether the connection may carry another request."""
        with self.lock:
            self.requests.append(f"{request.method} {request.path}")
            exchange = self._find(request)
            if exchange is not None:
                self.running += 1
        if exchange is None:
            problem = {"title": "INVALID_MESSAGE", "status": 400, "code": 1001, "outcome": "refused", "retry": "no",
                       "detail": self.problems[-1]}
            _send(connection, 400, {"Content-Type": "application/problem+json"}, dumps(problem).encode())
            return True
        name = exchange.get("name")
        try:
            if name:
                self.signals.set(f"{name}.received")
            return self._reply(connection, exchange["reply"])
        finally:
            if name:
                self.signals.set(f"{name}.answered")
            with self.lock:
                self.running -= 1
            self._settle()

    def _find(self, request: Request) -> Optional[Dict[str, Any]]:
        """Takes the first exchange that the request fits."""
        if request.headers.get("host", "").rsplit(":", 1)[0] not in ("localhost", "127.0.0.1", "[::1]"):
            self.problems.append(f"header Host: expected a loopback name, saw {request.headers.get('host')!r}")
            return None
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            self.problems.append(f"header Authorization: expected the token, saw {request.headers.get('authorization')!r}")
            return None
        why: Optional[str] = None
        for exchange in self.unused:
            if (exchange["method"], exchange["path"]) != (request.method, request.path):
                continue
            bound = dict(self.bound)
            found = request.difference(exchange, bound)
            if found is None:
                self.bound = bound
                if not exchange.get("repeat"):
                    self.unused.remove(exchange)
                return exchange
            why = why or found
        self.problems.append(f"{request.method} {request.path}: {why or 'not expected (any more)'}")
        return None

    def _reply(self, connection: socket.socket, reply: Dict[str, Any]) -> bool:
        if "wait" in reply:
            self._wait(reply["wait"])
        if reply.get("cut") == "unanswered":
            raise Cut
        status, headers = reply.get("status", 200), dict(reply.get("headers", {}))
        if "events" in reply:
            return self._stream(connection, headers, reply)
        if "text" in reply:
            body = reply["text"].encode()
            headers.setdefault("Content-Type", "text/plain")
        elif "body" in reply:
            body = dumps(reply["body"]).encode()
            headers.setdefault("Content-Type", "application/json" if status < 400 else "application/problem+json")
        else:
            body = b""
        cut = reply.get("cut")
        if isinstance(cut, dict):
            whole = _head(status, {**headers, "Content-Length": str(len(body))}) + body
            connection.sendall(whole[:len(whole) - cut["bytes_before_end"]])
            raise Cut
        _send(connection, status, headers, body)
        return not reply.get("close")

    def _stream(self, connection: socket.socket, headers: Dict[str, str], reply: Dict[str, Any]) -> bool:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", **headers}
        connection.sendall(_head(200, {**headers, "Transfer-Encoding": "chunked"}))
        piece = reply.get("bytes_in_chunk")
        for action in reply["events"]:
            if "wait" in action:
                self._wait(action["wait"])
            elif "signal" in action:
                self.signals.set(action["signal"])
            elif "cut" in action:
                raise Cut
            elif "wait_closed" in action:
                self._wait_closed(connection)
                raise Cut
            else:
                text = _event(action).encode()
                for start in range(0, len(text), piece or len(text)):
                    part = text[start:start + (piece or len(text))]
                    connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        return True

    def _wait(self, name: str) -> None:
        if not self.signals.wait(name, self.stopped) and not self.stopped.is_set():
            self._problem(f"waited {WAIT_SECONDS_MAX:.0f} s for {name!r}, which never came")
            raise Cut

    def _wait_closed(self, connection: socket.socket) -> None:
        """Waits until the other side closes the connection."""
        connection.settimeout(WAIT_SECONDS_MAX)
        try:
            while connection.recv(1024):
                pass
        except socket.timeout:
            self._problem("the connection was not closed")

    def _settle(self) -> None:
        with self.lock:
            done = self.running == 0 and all(exchange.get("optional") for exchange in self.unused)
        if done:
            self.signals.set("done")

    def _problem(self, text: str) -> None:
        with self.lock:
            self.problems.append(text)


def _read(stream: Any) -> Optional[Request]:
    """The next request; none when the connection ends before one."""
    line = stream.readline(HEAD_BYTES_MAX)
    if not line:
        return None
    parts = line.decode("ascii").rstrip("\r\n").split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1":
        raise ValueError(f"request line {line!r}")
    headers: Dict[str, str] = {}
    for line in iter(lambda: stream.readline(HEAD_BYTES_MAX).rstrip(b"\r\n"), b""):
        name, colon, value = line.decode("utf-8").partition(":")
        if not colon:
            raise ValueError(f"header {line!r}")
        headers[name.lower()] = value.strip()
    return Request(parts[0], parts[1], headers, b"".join(_body(stream, headers)))


def _body(stream: Any, headers: Dict[str, str]) -> Iterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int(stream.readline(HEAD_BYTES_MAX), 16)
            yield _exactly(stream, size)
            stream.readline(HEAD_BYTES_MAX)
            if size == 0:
                return
    else:
        yield _exactly(stream, int(headers.get("content-length", "0")))


def _exactly(stream: Any, size: int) -> bytes:
    if size > BODY_BYTES_MAX:
        raise ValueError(f"a body of {size} bytes")
    body: bytes = stream.read(size)
    if len(body) < size:
        raise Cut
    return body


def _head(status: int, headers: Dict[str, str]) -> bytes:
    return "".join([f"HTTP/1.1 {status} Scripted\r\n", *(f"{name}: {value}\r\n" for name, value in headers.items()), "\r\n"]).encode()


def _send(connection: socket.socket, status: int, headers: Dict[str, str], body: bytes) -> None:
    length = {} if status == 204 else {"Content-Length": str(len(body))}
    connection.sendall(_head(status, {**headers, **length}) + body)


def _event(action: Dict[str, Any]) -> str:
    if "comment" in action:
        return f": {action['comment']}\n\n"
    if "text" in action:
        return str(action["text"])
    lines = [f"{name}: {action[name]}" for name in ("id", "event") if name in action]
    return "\n".join([*lines, f"data: {dumps(action['data'])}", "", ""])


def scenarios(path: str) -> List[Tuple[str, Dict[str, Any]]]:
    """The feature and the scenario, for each one of a file."""
    with open(path, encoding="utf-8") as file:
        content = loads(file.read())
    return [(content["feature"], scenario) for scenario in content["scenarios"]]


def main() -> int:
    parser = argparse.ArgumentParser(description="Plays the sidecar of one scenario until standard input ends.")
    parser.add_argument("file")
    parser.add_argument("name")
    parser.add_argument("--dir", required=True, help="the folder of signals")
    parser.add_argument("--socket", help="the unix socket to make; without it, loopback TCP")
    options = parser.parse_args()
    found = [scenario for _, scenario in scenarios(options.file) if scenario["name"] == options.name]
    if not found:
        parser.error(f"{options.file} has no scenario {options.name!r}")
    sidecar = Sidecar(found[0], options.dir, options.socket)
    sidecar.start()
    print(json.dumps({"address": sidecar.address}), flush=True)
    sys.stdin.read()
    sidecar.stop()
    print(json.dumps(sidecar.report()))
    return 1 if sidecar.problems else 0


if __name__ == "__main__":
    sys.exit(main())
