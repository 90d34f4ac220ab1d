"""Reads from an ELF file what a package has to say of it: machine, loader, shared libraries, oldest versions of those."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path


class Unfit(Exception):
    """Input that no package can be made of; the text says which, why, and what to do."""


@dataclass(frozen=True)
class Machine:
    """What one processor is called where packages go."""

    debian: str
    python: str
    node: str
    oci: str
    # Debian's folder of shared libraries for it.
    triplet: str


MACHINES = {
    62: Machine(debian="amd64", python="x86_64", node="x64", oci="amd64", triplet="x86_64-linux-gnu"),
    183: Machine(debian="arm64", python="aarch64", node="arm64", oci="arm64", triplet="aarch64-linux-gnu"),
}


@dataclass(frozen=True)
class Elf:
    """A program or shared library.

    `versions` has the symbol versions that it needs, by library: `{"libc.so.6": {"GLIBC_2.34", …}, …}`.
    """

    machine: Machine
    loader: str | None
    needed: tuple[str, ...]
    versions: dict[str, frozenset[str]]
    has_symbols: bool

    def glibc(self) -> tuple[int, int]:
        """The oldest glibc that it starts with."""
        found = [(0, 0)]
        for names in self.versions.values():
            for name in names:
                words = name.removeprefix("GLIBC_").split(".")
                if name.startswith("GLIBC_") and all(word.isdigit() for word in words):
                    found.append((int(words[0]), int(words[1])))
        return max(found)


def read(path: Path) -> Elf:
    """Reads a 64-bit little-endian ELF file for a machine in `MACHINES`. Raises `Unfit` for any other."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise Unfit(f"{path} is no 64-bit little-endian ELF file; give a capd that was built for Linux")
    machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0])
    if machine is None:
        names = " or ".join(known.python for known in MACHINES.values())
        raise Unfit(f"{path} is for a processor that no package is made for; give one for {names}")
    try:
        segments = list(_segments(data))
        loader, needed, versions = _dynamic(data, segments)
        return Elf(machine, loader, needed, versions, _SYMBOLS in _section_kinds(data))
    except (struct.error, ValueError) as error:
        raise Unfit(f"{path} is damaged: {error}; build it again") from error


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    length: int


def _segments(data: bytes):
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for at in range(offset, offset + size * count, size):
        kind, _flags, start, address, _physical, length = struct.unpack_from("<IIQQQQ", data, at)
        yield _Segment(kind, start, address, length)


def _dynamic(data: bytes, segments: list[_Segment]):
    def offset(address: int) -> int:
        for segment in segments:
            if segment.kind == _LOAD and segment.address <= address < segment.address + segment.length:
                return address - segment.address + segment.offset
        raise ValueError(f"address {address:#x} is in no segment")

    def text(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode()

    loader = next((text(segment.offset) for segment in segments if segment.kind == _INTERPRETER), None)
    dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC), None)
    if dynamic is None:
        return loader, (), {}
    entries: list[tuple[int, int]] = []
    for at in range(dynamic.offset, dynamic.offset + dynamic.length, 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == 0:
            break
        entries.append((tag, value))
    one = dict(entries)
    names = offset(one[_NAMES])
    needed = tuple(text(names + value) for tag, value in entries if tag == _NEEDED)

    versions: dict[str, set[str]] = {}
    library = offset(one[_VERSIONS]) if _VERSIONS in one else 0
    for _ in range(one.get(_VERSIONS_COUNT, 0)):
        _version, count, file, first, following = struct.unpack_from("<HHIII", data, library)
        found = versions.setdefault(text(names + file), set())
        at = library + first
        for _ in range(count):
            _hash, _flags, _other, name, step = struct.unpack_from("<IHHII", data, at)
            found.add(text(names + name))
            at += step
        library += following
    return loader, needed, {file: frozenset(found) for file, found in versions.items()}


def _section_kinds(data: bytes) -> set[int]:
    offset, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return {struct.unpack_from("<I", data, offset + size * index + 4)[0] for index in range(count)}


# Kinds of segments, tags of the dynamic section, kind of the section that has all symbols: the System V ABI's numbers.
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_NEEDED, _NAMES, _VERSIONS, _VERSIONS_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF
_SYMBOLS = 2
