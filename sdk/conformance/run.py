#!/usr/bin/env python3
"""Runs the conformance scenarios against the driver of an SDK; prints a table, and ends with 1 when one fails.

    run.py --driver "python -m capd_driver" --language Python [--json FILE] [NAME…]
    run.py --matrix ../../docs/sdk-matrix.md python.json typescript.json go.json

README.md says what a scenario holds and what a driver has to do.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional

from exact import dumps, loads
from matching import ABSENT, difference
from sidecar import Sidecar, scenarios

HERE = Path(__file__).resolve().parent
DRIVER_SECONDS_MAX = 40.0
# Nothing of the user's own may reach a driver.
SIDECAR_VARIABLES = ("CAPD_SOCKET", "CAPD_HTTP", "CAPD_TOKEN", "CAPD_TOKEN_FILE", "CAPD_CONTEXT")


def plain_steps(steps: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The steps as the driver reads them: without what it is expected to see."""
    return [{name: value for name, value in step.items() if name != "expect"} for step in steps]


def compare(steps: List[Dict[str, Any]], lines: List[Dict[str, Any]], bound: Dict[str, Any]) -> List[str]:
    """Where what the driver saw differs from what the steps expect."""
    seen = {line.get("step"): line for line in lines}
    problems = []
    for index, step in enumerate(steps):
        for name, pattern in step.get("expect", {}).items():
            if name == "error":
                pattern = {"$subset": pattern}
            found = difference(pattern, seen.get(index, {}).get(name, ABSENT), bound, name)
            if found:
                problems.append(f"step {index} ({step['do']}): {found}; saw {dumps(seen.get(index, {}))}")
                break
    return problems


def run_driver(command: List[str], environment: Dict[str, str], steps: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*command, steps], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, encoding="utf-8", timeout=DRIVER_SECONDS_MAX, check=False)


def run(command: List[str], feature: str, scenario: Dict[str, Any]) -> Dict[str, Any]:
    """Plays one scenario; what came of it."""
    with tempfile.TemporaryDirectory(prefix="capd-") as folder:
        signals = os.path.join(folder, "signals")
        os.mkdir(signals)
        environment = {name: value for name, value in os.environ.items() if name not in SIDECAR_VARIABLES}
        environment["CAPD_CONFORMANCE_DIR"] = signals
        if scenario.get("transport") == "tcp":
            sidecar = Sidecar(scenario, signals)
            environment["CAPD_HTTP"] = sidecar.address
            environment["CAPD_TOKEN"] = scenario.get("driver_token", scenario["token"])
        else:
            sidecar = Sidecar(scenario, signals, os.path.join(folder, "capd.sock"))
            environment["CAPD_SOCKET"] = sidecar.address
        steps = os.path.join(folder, "steps.json")
        with open(steps, "w", encoding="utf-8") as file:
            file.write(dumps(plain_steps(scenario["steps"])))
        sidecar.start()
        lines: List[Dict[str, Any]] = []
        problems: List[str] = []
        stderr = ""
        try:
            ended = run_driver(command, environment, steps)
            stderr = ended.stderr
            lines = [loads(line) for line in ended.stdout.split("\n") if line.strip()]
            if ended.returncode != 0:
                problems.append(f"the driver ended with {ended.returncode}")
        except subprocess.TimeoutExpired as error:
            problems.append(f"the driver had not ended after {DRIVER_SECONDS_MAX:.0f} s")
            stderr = (error.stderr or b"").decode("utf-8", "replace")
        except ValueError as error:
            problems.append(f"the driver's output is not JSON: {error}")
        sidecar.stop()
    missing = [line["unsupported"] for line in lines if "unsupported" in line]
    if missing:
        return {"feature": feature, "name": scenario["name"], "verdict": "missing", "problems": missing}
    problems = problems + sidecar.problems + compare(scenario["steps"], lines, sidecar.bound)
    result: Dict[str, Any] = {"feature": feature, "name": scenario["name"], "verdict": "failed" if problems else "passed"}
    if problems:
        result.update(problems=problems, requests=sidecar.requests, stderr=stderr[-4000:])
    return result


def suite(names: List[str]) -> List[Any]:
    """All scenarios, or those whose names begin with one of `names`."""
    every = [pair for path in sorted((HERE / "scenarios").glob("*.json")) for pair in scenarios(str(path))]
    every.sort(key=lambda pair: FEATURES.index(pair[0]))
    return [pair for pair in every if not names or any(pair[1]["name"].startswith(name) for name in names)]


FEATURES = ["Call", "Errors by outcome", "One key, one execution", "Start in any order", "Stream", "Cancel", "Call without waiting",
            "Discover", "Tools for language models", "Built against", "Digits and code points", "Provide", "TCP and token"]


def table(results: List[Dict[str, Any]]) -> None:
    for result in results:
        print(f"{result['verdict']:8} {result['feature']:26} {result['name']}")
        for problem in result.get("problems", []):
            print(f"         {problem}")
        if result["verdict"] == "failed":
            print(f"         requests: {', '.join(result['requests']) or 'none'}")
            for line in result["stderr"].splitlines():
                print(f"         | {line}")
    count = {verdict: sum(result["verdict"] == verdict for result in results) for verdict in ("passed", "failed", "missing")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['missing']} skipped")


def cell(verdicts: List[str]) -> str:
    """How many scenarios of a feature pass; those that are about a link of another kind are counted apart."""
    passed, elsewhere = verdicts.count("passed"), verdicts.count("elsewhere")
    asked = len(verdicts) - elsewhere
    if not asked or verdicts.count("missing") == asked:
        return "–"
    return (f"✓ {passed}" if passed == asked else f"{passed} of {asked}") + (f", {elsewhere} of HTTP alone" if elsewhere else "")


def matrix(reports: List[Dict[str, Any]]) -> str:
    """Feature × language, as a page."""
    lines = ["# What each SDK can do", "",
             "`sdk/conformance/run.py --matrix` writes this page from runs of the conformance scenarios. A cell says how many scenarios",
             "of the feature pass. A dash marks a feature that the SDK does not have. Rust speaks the binary link: scenarios about HTTP",
             "alone have no counterpart there and are counted apart, each with its reason in `client/tests/conformance/scenario.rs`.", "",
             "| feature | " + " | ".join(report["language"] for report in reports) + " |",
             "| --- |" + " --- |" * len(reports)]
    for feature in FEATURES:
        cells = []
        for report in reports:
            verdicts = [result["verdict"] for result in report["results"] if result["feature"] == feature]
            cells.append(cell(verdicts))
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Runs the conformance scenarios against the driver of an SDK.")
    parser.add_argument("--driver", help="the command that performs the steps of the file it is given")
    parser.add_argument("--language", default="driver", help="the column's title in the matrix")
    parser.add_argument("--json", metavar="FILE", help="writes the results there")
    parser.add_argument("--jobs", type=int, default=2, help="how many scenarios run at once")
    parser.add_argument("--list", action="store_true", help="prints the scenarios and ends")
    parser.add_argument("--matrix", metavar="PAGE", help="writes the page from the result files that follow, runs nothing")
    parser.add_argument("names", nargs="*", help="only scenarios whose names begin so; with --matrix, the result files")
    options = parser.parse_args(arguments)
    if options.matrix:
        reports = [loads(Path(name).read_text(encoding="utf-8")) for name in options.names]
        Path(options.matrix).write_text(matrix(reports), encoding="utf-8")
        return 0
    chosen = suite(options.names)
    if options.list:
        for feature, scenario in chosen:
            print(f"{feature:26} {scenario['name']:44} {scenario['about']}")
        return 0
    if not options.driver:
        parser.error("--driver COMMAND, --list or --matrix PAGE is needed")
    if not chosen:
        parser.error(f"no scenario begins with any of {options.names}")
    command = shlex.split(options.driver)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda pair: run(command, *pair), chosen))
    if options.json:
        Path(options.json).write_text(dumps({"language": options.language, "results": results}) + "\n", encoding="utf-8")
    table(results)
    return 1 if any(result["verdict"] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
