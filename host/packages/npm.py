"""The npm package. Its command is a link to the program itself, so that starting it does not start Node.js."""

import json

from contents import LICENSE, SUMMARY, mode_of
from tarfiles import Tar, gzipped

PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}
# npm installs no completions for shells.
OMITTED = ("share/zsh", "share/fish", "share/bash-completion")
# npm expects these files at the top of the package.
MOVED = {"share/doc/agent-host/README.md": "README.md", "share/doc/agent-host/LICENSE": "LICENSE"}


def build(contents, output):
    tar = Tar(contents.modified)
    paths = [path for path in contents.files() if not str(path).startswith(OMITTED)]
    tar.file("package/package.json", manifest(contents, paths))
    for path in paths:
        tar.file(f"package/{MOVED.get(str(path), path)}", contents.read(path), mode_of(path))
    path = output / f"agent-host-{contents.version}.tgz"
    path.write_bytes(gzipped(tar.finish(), contents.level))
    return path


def manifest(contents, paths):
    package = {
        "name": "agent-host",
        "version": contents.version,
        "description": SUMMARY,
        "license": LICENSE,
        "bin": {"agent-host": "bin/agent-host"},
        "man": [str(path) for path in paths if path.match("share/man/man1/*")],
        "os": ["linux"],
        "cpu": [PROCESSORS[contents.needs.architecture]],
        "libc": ["glibc"],
    }
    return (json.dumps(package, indent=2) + "\n").encode()
