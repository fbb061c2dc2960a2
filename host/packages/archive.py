"""The archive, which can be unpacked below any prefix, such as /usr/local."""

from contents import DOCUMENTATION, HERE, mode_of
from tarfiles import Tar, gzipped


def build(contents, output):
    name = f"agent-host-{contents.version}-{contents.needs.architecture}-linux"
    tar = Tar(contents.modified)
    for path in contents.files():
        tar.file(f"{name}/{path}", contents.read(path), mode_of(path))
    tar.file(f"{name}/{DOCUMENTATION}/INSTALL.md", (HERE / "templates/install.md").read_bytes(), 0o644)
    path = output / f"{name}.tar.gz"
    path.write_bytes(gzipped(tar.finish(), contents.level))
    return path
