"""Writes tar, zip and ar archives whose bytes depend on the files alone: entries sorted, owners and times fixed."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import time
import zipfile
from dataclasses import dataclass, field

from elf import Unfit


@dataclass(frozen=True)
class Entry:
    """A file, a folder (`data` is None), or a symbolic link (`link`), with its mode and owner."""

    data: bytes | None
    mode: int
    owner: int = 0
    link: str | None = None


@dataclass
class Tree:
    """Files by path, without a leading slash; the folders that contain them are added with mode 0755."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        self.entries[path] = Entry(data.encode() if isinstance(data, str) else data, mode)

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        self.entries[path] = Entry(None, mode, owner)

    def link(self, path: str, to: str) -> None:
        self.entries[path] = Entry(None, 0o777, link=to)

    def sorted(self) -> list[tuple[str, Entry]]:
        """All entries, each folder before what it contains."""
        whole = dict(self.entries)
        for path in self.entries:
            words = path.split("/")[:-1]
            for count in range(1, len(words) + 1):
                whole.setdefault("/".join(words[:count]), Entry(None, 0o755))
        return sorted(whole.items(), key=lambda item: item[0].split("/"))


@dataclass(frozen=True)
class Writer:
    """How archives are written: the time of every entry in seconds since 1970, and whether to compress little, but fast."""

    epoch: int
    fast: bool = False

    def tar(self, tree: Tree, prefix: str = "") -> bytes:
        """An uncompressed tar in GNU format, which all of dpkg, npm and OCI runtimes read."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, entry in tree.sorted():
                info = tarfile.TarInfo(prefix + path)
                info.mode, info.mtime, info.uid, info.gid = entry.mode, self.epoch, entry.owner, entry.owner
                if entry.link is not None:
                    info.type, info.linkname = tarfile.SYMTYPE, entry.link
                elif entry.data is None:
                    info.type = tarfile.DIRTYPE
                else:
                    info.size = len(entry.data)
                tar.addfile(info, io.BytesIO(entry.data or b""))
        return out.getvalue()

    def gzip(self, data: bytes) -> bytes:
        return gzip.compress(data, 1 if self.fast else 9, mtime=self.epoch)

    def xz(self, data: bytes) -> bytes:
        return lzma.compress(data, check=lzma.CHECK_CRC64, preset=0 if self.fast else 6)

    def zip(self, tree: Tree) -> bytes:
        """A zip of the files alone, which is what a wheel is."""
        when = time.gmtime(self.epoch)[:6]
        if when[0] < 1980:
            raise Unfit(f"a zip has no time before 1980, and SOURCE_DATE_EPOCH is {self.epoch}; give a later one")
        out = io.BytesIO()
        level = 1 if self.fast else 9
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
            for path, entry in tree.sorted():
                if entry.data is not None:
                    info = zipfile.ZipInfo(path, when)
                    info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, _UNIX
                    info.external_attr = (_REGULAR_FILE | entry.mode) << 16
                    archive.writestr(info, entry.data, compresslevel=level)
        return out.getvalue()

    def ar(self, members: list[tuple[str, bytes]]) -> bytes:
        """An ar archive of short names, in this order, as deb(5) has it."""
        out = io.BytesIO(b"!<arch>\n")
        out.seek(0, io.SEEK_END)
        for name, data in members:
            out.write(f"{name:<16}{self.epoch:<12}{0:<6}{0:<6}{0o100644:<8o}{len(data):<10}`\n".encode())
            out.write(data + b"\n" * (len(data) % 2))
        return out.getvalue()


_UNIX = 3
_REGULAR_FILE = 0o100000
