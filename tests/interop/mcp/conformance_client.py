"""Plays the client of the MCP conformance suite's client scenarios: `capd-mcp import --url` with a sidecar of its own, and a caller that
calls what the scenario's server offers. The suite runs it with the server's URL as its argument."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

CAPD = pathlib.Path(os.environ["CAPD_BIN"]).resolve()
CAPCTL, BRIDGE = CAPD.with_name("capctl"), CAPD.with_name("capd-mcp")
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
PATIENCE_S = 20


def main():
    if SCENARIO.startswith("auth/"):
        sys.exit("capd-mcp import speaks no OAuth: its token comes from a file or the environment")
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        (home / "capd.toml").write_text(f'[agent]\ndir = "{home}/state"\n')
        capd = subprocess.Popen(
            [CAPD, "run", "--announce", "--stop-with-stdin", "--config", home / "capd.toml"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(home / "capd.log", "w"), text=True, env={"HOME": str(home)})
        socket = json.loads(capd.stdout.readline())["socket"]
        bridge = subprocess.Popen(
            [BRIDGE, "import", "--socket", socket, "--namespace", "com.example.suite", "--url", sys.argv[1], "--lock", home / "mcp.lock"],
            stdin=subprocess.DEVNULL, stderr=open(home / "log", "w"))
        try:
            served = wait_until(lambda: "tools are served" in (home / "log").read_text())
            for tool, arguments in calls(home) if served else []:
                call(socket, tool, arguments)
        finally:
            bridge.terminate()
            bridge.wait()
            capd.stdin.close()
            capd.wait()
            sys.stderr.write((home / "log").read_text())
        sys.exit(0 if served else 1)


def wait_until(ready):
    end = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def tools(home):
    """What is served, as the lock file has it."""
    import tomllib

    return [json.loads(tool["definition"]) for tool in tomllib.loads((home / "mcp.lock").read_text()).get("tool", [])]


def calls(home):
    """What the scenario wants called."""
    if SCENARIO == "tools_call":
        return [("add_numbers", {"a": 2, "b": 3})]
    if SCENARIO == "http-custom-headers":
        # No schema here takes null, so a caller leaves such an argument out.
        present = lambda arguments: {key: value for key, value in arguments.items() if value is not None}
        return [(call["name"], present(call["arguments"])) for call in CONTEXT["toolCalls"]]
    if SCENARIO == "json-schema-2020-12-preservation":
        schema = next(tool["inputSchema"] for tool in tools(home) if tool["name"] != "json_schema_echo")
        return [("json_schema_echo", {"schema": schema})]
    if SCENARIO == "http-invalid-tool-headers":
        return [(tool["name"], {"region": "here"}) for tool in tools(home)]
    if SCENARIO in ("initialize", "request-metadata", "json-schema-ref-no-deref"):
        return []
    return [(tool["name"], {}) for tool in tools(home)]


def call(socket, tool, arguments):
    name = "com.example.suite." + tool.replace("_", "-")
    done = subprocess.run(
        [CAPCTL, "--socket", socket, "call", name, "--params", json.dumps(arguments)], capture_output=True, text=True)
    print(name, done.returncode, done.stdout, done.stderr)


main()
