"""Reads from a 64-bit Linux program which shared libraries, and which versions of them, it needs."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

# Constants of the ELF format.
X86_64, AARCH64 = 62, 183
SEGMENT_DYNAMIC, SEGMENT_INTERPRETER = 2, 3
SECTION_DYNAMIC, SECTION_VERSIONS_NEEDED = 6, 0x6FFFFFFE
TAG_NEEDED = 1

MACHINES = {X86_64: "x86_64", AARCH64: "aarch64"}


@dataclass
class Needs:
    """What a program needs of the system that runs it."""

    # Name of the processor architecture, as in `uname -m`.
    architecture: str
    # Path of the dynamic loader.
    interpreter: str
    libraries: list = field(default_factory=list)
    # The symbol versions that the program uses of each library, such as `GLIBC_2.34`.
    versions: dict = field(default_factory=dict)

    def newest(self, prefix):
        """Returns the newest version with this prefix that the program uses of any library, or None."""
        names = {name for names in self.versions.values() for name in names if name.startswith(prefix)}
        numbers = [tuple(int(part) for part in name[len(prefix):].split(".")) for name in names]
        return max(numbers, default=None)


def read_needs(path):
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian Linux program")
    machine = struct.unpack_from("<H", data, 18)[0]
    if machine not in MACHINES:
        raise ValueError(f"{path} is for an unknown processor architecture ({machine})")
    interpreter = ""
    for kind, offset, size in segments(data):
        if kind == SEGMENT_INTERPRETER:
            interpreter = data[offset:offset + size].rstrip(b"\0").decode()
    if not interpreter:
        raise ValueError(f"{path} is linked statically, or is a library; the packages need a dynamically linked program")
    needs = Needs(MACHINES[machine], interpreter)
    sections = list(read_sections(data))
    for kind, offset, size, link in sections:
        strings = sections[link][1]
        if kind == SECTION_DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", data[offset:offset + size]):
                if tag == TAG_NEEDED:
                    needs.libraries.append(text(data, strings + value))
        elif kind == SECTION_VERSIONS_NEEDED:
            needs.versions = dict(read_versions(data, offset, strings))
    return needs


def segments(data):
    start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, start + index * size)
        yield kind, offset, length


def read_sections(data):
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    for index in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", data, start + index * size)
        yield kind, offset, length, link


def read_versions(data, offset, strings):
    """Returns pairs of a library and the symbol versions that are needed of it."""
    while True:
        _, count, file, first, following = struct.unpack_from("<HHIII", data, offset)
        names, entry = [], offset + first
        for _ in range(count):
            _, _, _, name, next_entry = struct.unpack_from("<IHHII", data, entry)
            names.append(text(data, strings + name))
            entry += next_entry
        yield text(data, strings + file), names
        if following == 0:
            return
        offset += following


def text(data, offset):
    return data[offset:data.index(b"\0", offset)].decode()
