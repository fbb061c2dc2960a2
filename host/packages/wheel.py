"""The Python wheel. `pip install` puts the program on the PATH of the environment, and its files below the prefix."""

import base64
import hashlib
import zipfile
from datetime import datetime, timezone

from contents import DOCUMENTATION, LICENSE, SUMMARY, description, mode_of

# Wheels cannot contain older times, because of the format of ZIP archives.
OLDEST = datetime(1980, 1, 1, tzinfo=timezone.utc)
# Scripts that no shell of the environment would read are omitted.
OMITTED = ("share/zsh", "share/fish", "share/bash-completion")


def build(contents, output):
    name = f"agent_host-{contents.version}"
    tag = f"py3-none-{platform_tag(contents.needs)}"
    files = {}
    for path in contents.files():
        if str(path).startswith(OMITTED):
            continue
        folder = f"scripts/{path.name}" if path.parts[0] == "bin" else f"data/{path}"
        files[f"{name}.data/{folder}"] = (contents.read(path), mode_of(path))
    information = f"{name}.dist-info"
    files[f"{information}/licenses/LICENSE"] = (contents.read(f"{DOCUMENTATION}/LICENSE"), 0o644)
    files[f"{information}/METADATA"] = (metadata(contents).encode(), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: agent-host ({contents.version})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{information}/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(f"{path},{digest(data)},{len(data)}\n" for path, (data, _) in files.items())
    files[f"{information}/RECORD"] = (f"{record}{information}/RECORD,,\n".encode(), 0o644)
    path = output / f"{name}-{tag}.whl"
    write_zip(path, files, contents)
    return path


def platform_tag(needs):
    """Returns the tag of the systems whose C library is new enough for the program."""
    libraries = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
    others = [name for name in needs.libraries if name not in libraries and not name.startswith("ld-linux-")]
    if others:
        raise ValueError(f"a wheel must not need {', '.join(others)}, because some systems do not have it")
    major, minor = needs.newest("GLIBC_")[:2]
    return f"manylinux_{major}_{minor}_{needs.architecture}"


def metadata(contents):
    return (
        f"Metadata-Version: 2.4\nName: agent-host\nVersion: {contents.version}\nSummary: {SUMMARY}\n"
        f"License-Expression: {LICENSE}\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
        f"Description-Content-Type: text/markdown\n\n{description()}"
    )


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_zip(path, files, contents):
    modified = max(datetime.fromtimestamp(contents.modified, timezone.utc), OLDEST).timetuple()[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=contents.level) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, modified)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, contents.level)
