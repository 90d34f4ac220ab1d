"""Writes the npm packages: the SDK, which runs the programs, and the programs of one platform, its optional dependency."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from archive import Tree, Writer
from elf import Unfit
from program import Release


def build(release: Release, writer: Writer, out: Path):
    """Writes `capd-VERSION.tgz` and `capd-linux-ARCHITECTURE-VERSION.tgz`; yields their paths and sizes."""
    platform = f"capd-linux-{release.machine.node}"
    for name, tree in ((platform, _platform(platform, release)), ("capd", _sdk(platform, release))):
        path = out / f"{name}-{release.version}.tgz"
        path.write_bytes(writer.gzip(writer.tar(tree, prefix="package/")))
        yield path, path.stat().st_size


def _platform(name: str, release: Release) -> Tree:
    tree = Tree()
    tree.file("package.json", _json({
        "name": name,
        "version": release.version,
        "description": "The programs capd and capctl for one platform; install the package capd, which chooses it.",
        "license": "MIT OR Apache-2.0",
        "os": ["linux"],
        "cpu": [release.machine.node],
        "libc": ["glibc"],
        "files": ["bin"],
        "preferUnplugged": True,
    }))
    major, minor = release.glibc()
    tree.file("README.md", f"# {name}\n\n`capd` and `capctl` for Linux with glibc {major}.{minor} or newer. Install `capd` instead, which brings this.\n")
    for program in release.programs:
        tree.file(f"bin/{program.name}", program.data, 0o755)
    return _with_licences(release, tree)


def _sdk(platform: str, release: Release) -> Tree:
    tree = Tree()
    manifest = json.loads(release.read("sdk/typescript/package.json"))
    if "dependencies" in manifest:
        raise Unfit("sdk/typescript has dependencies; it promises to need none")
    for left_out in ("scripts", "devDependencies"):
        del manifest[left_out]
    manifest["bin"] = {program.name: f"bin/{program.name}.js" for program in release.programs}
    manifest["files"] = ["bin", *manifest["files"]]
    # No package that was not made here: whoever publishes a name that is missing would be run by everybody.
    manifest["optionalDependencies"] = {platform: release.version}
    tree.file("package.json", _json(manifest))
    tree.file("README.md", release.read("sdk/typescript/README.md"))
    tree.file("bin/run.js", release.read("deploy/npm/run.js"))
    for program in release.programs:
        text = f'#!/usr/bin/env node\nimport {{ run }} from "./run.js";\n\nrun("{program.name}");\n'
        tree.file(f"bin/{program.name}.js", text, 0o755)
    for name, data in _compiled(release.root / "sdk/typescript").items():
        tree.file(f"dist/{name}", data)
    return _with_licences(release, tree)


def _compiled(source: Path) -> dict[str, bytes]:
    """The SDK as JavaScript, compiled in a copy with the compiler that its lock names."""
    if shutil.which("npm") is None:
        raise Unfit("npm is missing, which brings the compiler of TypeScript; install it, or name the other kinds")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "sdk"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("node_modules", "dist", ".test-build"))
        for words in (["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], ["run", "--silent", "build"]):
            # Its report would stand among the paths that stdout lists.
            ended = subprocess.run(["npm", *words], cwd=copy, capture_output=True, text=True)
            if ended.returncode != 0:
                raise Unfit(f"npm {words[0]} failed in sdk/typescript:\n{ended.stdout}{ended.stderr}")
        return {path.name: path.read_bytes() for path in sorted((copy / "dist").iterdir())}


def _with_licences(release: Release, tree: Tree) -> Tree:
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        tree.file(name, release.read(name))
    return tree


def _json(value: dict) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
