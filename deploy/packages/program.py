"""Takes the two programs as they are shipped, without symbols; gives them to each package with all that is said of them."""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import elf
from elf import Elf, Unfit


@dataclass(frozen=True)
class Program:
    """`capd` or `capctl`: its bytes, and what they need."""

    name: str
    data: bytes
    elf: Elf


@dataclass(frozen=True)
class Release:
    """What the packages are made of."""

    root: Path
    version: str
    programs: tuple[Program, ...]
    # What goes beside the programs, by path below /usr/share: completions and manual pages that they print.
    printed: dict[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> elf.Machine:
        return self.programs[0].elf.machine

    def glibc(self) -> tuple[int, int]:
        return max(program.elf.glibc() for program in self.programs)

    def read(self, path: str) -> str:
        """A file of the project."""
        return (self.root / path).read_text()


def release(root: Path, files: dict[str, Path]) -> Release:
    """Reads the programs, by name. Raises `Unfit` if they are not two programs of this version for one machine."""
    version = re.search(r'\[workspace\.package\][^\[]*?^version = "([^"]+)"', (root / "Cargo.toml").read_text(), re.M | re.S)
    if version is None:
        raise Unfit(f"{root / 'Cargo.toml'} has no version in [workspace.package]")
    for sdk, found in _sdk_versions(root).items():
        if found != version[1]:
            raise Unfit(f"{sdk} has version {found}, and Cargo.toml has {version[1]}; give both the same")
    programs = tuple(_stripped(name, path) for name, path in files.items())
    machines = {program.elf.machine.oci for program in programs}
    if len(machines) > 1:
        raise Unfit(f"the programs are for different processors: {', '.join(sorted(machines))}")
    printed: dict[str, str] = {}
    # Programs for another processor are packed unseen.
    if platform.machine() == programs[0].elf.machine.python:
        with tempfile.TemporaryDirectory() as folder:
            for program in programs:
                printed.update(_seen(program, version[1], Path(folder)))
    return Release(root, version[1], programs, printed)


def _sdk_versions(root: Path) -> dict[str, str]:
    found = {}
    for path, pattern in {"sdk/python/pyproject.toml": r'^version = "([^"]+)"', "sdk/typescript/package.json": r'^  "version": "([^"]+)"'}.items():
        version = re.search(pattern, (root / path).read_text(), re.M)
        found[path] = version[1] if version else "none"
    return found


def _stripped(name: str, path: Path) -> Program:
    if not path.is_file():
        raise Unfit(f"{path} is missing; run deploy/build.sh, or name another file with --{name}")
    found = elf.read(path)
    if not found.has_symbols:
        return Program(name, path.read_bytes(), found)
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / name
        subprocess.run(["strip", "--strip-all", "-o", bare, path], check=True)
        return Program(name, bare.read_bytes(), elf.read(bare))


def _seen(program: Program, version: str, folder: Path) -> dict[str, str]:
    """Runs a program as it will be packed: it starts, and is of this version. Returns the pages that it prints."""
    file = folder / program.name
    file.write_bytes(program.data)
    file.chmod(0o755)

    def run(*words: str) -> str | None:
        ended = subprocess.run([file, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        return ended.stdout if ended.returncode == 0 else None

    said = run("--version")
    if said != f"{program.name} {version}\n":
        raise Unfit(f"{program.name} --version says {said!r}, and Cargo.toml has {version}; build it from this tree")
    printed = {}
    for shell, path in COMPLETIONS.items():
        if text := run("completion", shell):
            printed[path.format(program.name)] = text
    pages = folder / "man"
    run("man", "--out", str(pages))
    for page in sorted(pages.glob(f"{program.name}*.1")):
        printed[f"man/man1/{page.name}"] = page.read_text()
    return printed


# Where each shell looks for completions, below /usr/share.
COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
