"""Writes reproducible tar archives: sorted entries, one time for all files, and numeric owners."""

import gzip
import io
import tarfile
from pathlib import PurePosixPath


class Tar:
    """A tar archive in memory. Missing folders are added before the first file that needs them."""

    def __init__(self, modified, prefix=""):
        self.modified = modified
        # Text before the path of each entry.
        self.prefix = prefix
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.GNU_FORMAT)
        self.folders = {PurePosixPath("."), PurePosixPath("")}

    def file(self, path, data, mode=0o644, owner=0):
        self.parents(path)
        entry = self.entry(path, mode, owner)
        entry.size = len(data)
        self.tar.addfile(entry, io.BytesIO(data))

    def folder(self, path, mode=0o755, owner=0):
        self.parents(path)
        if PurePosixPath(path) not in self.folders:
            self.folders.add(PurePosixPath(path))
            entry = self.entry(path, mode, owner)
            entry.type = tarfile.DIRTYPE
            self.tar.addfile(entry)

    def link(self, path, target):
        self.parents(path)
        entry = self.entry(path, 0o777, 0)
        entry.type = tarfile.SYMTYPE
        entry.linkname = target
        self.tar.addfile(entry)

    def finish(self):
        """Returns the bytes of the archive."""
        self.tar.close()
        return self.buffer.getvalue()

    def parents(self, path):
        parent = PurePosixPath(path).parent
        if parent not in self.folders:
            self.folder(parent)

    def entry(self, path, mode, owner):
        entry = tarfile.TarInfo(f"{self.prefix}{path}")
        entry.mode, entry.mtime, entry.uid, entry.gid = mode, self.modified, owner, owner
        return entry


def gzipped(data, level):
    return gzip.compress(data, compresslevel=level, mtime=0)
