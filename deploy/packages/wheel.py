"""Writes the Python wheel: the SDK as a package, and both programs as its scripts, so that pip puts them on PATH."""

from __future__ import annotations

import base64
import hashlib
import tomllib
from pathlib import Path

from archive import Tree, Writer
from elf import Unfit
from program import Release


def build(release: Release, writer: Writer, out: Path):
    """Writes `capd-VERSION-py3-none-PLATFORM.whl`; yields its path and size."""
    project = tomllib.loads(release.read("sdk/python/pyproject.toml"))["project"]
    tag = f"py3-none-{_platform(release)}"
    tree = Tree()
    source = release.root / "sdk/python/src"
    for path in sorted(source.rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            tree.file(path.relative_to(source).as_posix(), path.read_bytes())
    for program in release.programs:
        tree.file(f"capd-{release.version}.data/scripts/{program.name}", program.data, 0o755)
    info = f"capd-{release.version}.dist-info"
    tree.file(f"{info}/METADATA", _metadata(project, release))
    tree.file(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: capd\nRoot-Is-Purelib: false\nTag: {tag}\n")
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        tree.file(f"{info}/licenses/{name}", release.read(name))
    tree.file(f"{info}/RECORD", _record(tree, f"{info}/RECORD"))
    path = out / f"capd-{release.version}-{tag}.whl"
    path.write_bytes(writer.zip(tree))
    yield path, path.stat().st_size


def _platform(release: Release) -> str:
    """The platform tag by PEP 600: pip installs it where glibc is at least that old. Raises `Unfit` for what it forbids."""
    for program in release.programs:
        for library in program.elf.needed:
            if library not in _EVERYWHERE and not library.startswith("ld-linux"):
                raise Unfit(f"{program.name} links {library}, which no manylinux tag allows; link it statically")
    major, minor = release.glibc()
    return f"manylinux_{major}_{minor}_{release.machine.python}"


def _metadata(project: dict, release: Release) -> str:
    if project["dependencies"]:
        raise Unfit("sdk/python has dependencies, which deploy/packages/wheel.py does not write; add Requires-Dist there")
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {release.version}",
        f"Summary: {project['description']}",
        "License-Expression: MIT OR Apache-2.0",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        *(f"Classifier: {name}" for name in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + release.read(f"sdk/python/{project['readme']}")


def _record(tree: Tree, own: str) -> str:
    lines = []
    for path, entry in tree.sorted():
        if entry.data is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(entry.data)}\n")
    return "".join(lines) + f"{own},,\n"


# Of the libraries that PEP 600 lets a wheel expect, those that Rust programs link.
_EVERYWHERE = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
