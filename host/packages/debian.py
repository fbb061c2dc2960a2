"""The Debian package. It needs no Debian tools: a package is an `ar` archive of two tar archives."""

import hashlib
import lzma
import time
from pathlib import PurePosixPath

from contents import DOCUMENTATION, FASTEST, HERE, SUMMARY, mode_of
from tarfiles import Tar, gzipped

TEMPLATES = HERE / "templates/debian"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Number of this packaging of a version.
REVISION = 1

LIBC = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "ld-linux-")
# zsh of Debian reads completions of packages from another folder.
RENAMED = {"share/zsh/site-functions": "share/zsh/vendor-completions"}


def build(contents, output):
    version = f"{contents.version}-{REVISION}"
    architecture = ARCHITECTURES[contents.needs.architecture]
    files = installed_files(contents, version)
    data, control = Tar(contents.modified, "./"), Tar(contents.modified, "./")
    for path, (content, mode) in sorted(files.items()):
        data.file(path, content, mode)
    for name, (content, mode) in control_files(contents, version, architecture, files).items():
        control.file(name, content, mode)
    path = output / f"agent-host_{version}_{architecture}.deb"
    members = {"debian-binary": b"2.0\n", "control.tar.gz": gzipped(control.finish(), contents.level)}
    if contents.level == FASTEST:
        members["data.tar.gz"] = gzipped(data.finish(), contents.level)
    else:
        members["data.tar.xz"] = lzma.compress(data.finish())
    path.write_bytes(ar(members, contents.modified))
    return path


def installed_files(contents, version):
    """Returns the content and the permissions of each file below /."""
    files = {}
    for path in contents.files():
        folder, mode = str(path.parent), mode_of(path)
        path = PurePosixPath("usr", RENAMED.get(folder, folder), path.name)
        content = contents.read(path_in(contents, path))
        if path.name == "LICENSE":
            # Debian has the license once for all packages, and `copyright` refers to it.
            continue
        if path.match("share/man/man1/*"):
            path, content = path.with_name(f"{path.name}.gz"), gzipped(content, 9)
        files[path] = (content, mode)
    documentation = PurePosixPath("usr", DOCUMENTATION)
    changelog = template("changelog", version=version, maintainer=contents.maintainer, date=date(contents.modified))
    files[documentation / "changelog.Debian.gz"] = (gzipped(changelog, 9), 0o644)
    files[documentation / "copyright"] = (template("copyright", year=date(contents.modified).split()[3]), 0o644)
    files[PurePosixPath("usr/share/lintian/overrides/agent-host")] = (template("lintian-overrides"), 0o644)
    return files


def path_in(contents, path):
    """Returns the path in `contents` of a file that is installed with this path below /."""
    path = path.relative_to("usr")
    folders = {new: old for old, new in RENAMED.items()}
    return PurePosixPath(folders.get(str(path.parent), str(path.parent)), path.name)


def control_files(contents, version, architecture, files):
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {path}\n" for path, (content, _) in sorted(files.items()))
    control = template(
        "control",
        version=version,
        architecture=architecture,
        maintainer=contents.maintainer,
        depends=", ".join(dependencies(contents.needs)),
        size=str(sum(len(content) + 1023 for content, _ in files.values()) // 1024),
        summary=SUMMARY[0].lower() + SUMMARY[1:],
    )
    scripts = {name: (template(name), 0o755) for name in ("postinst", "prerm")}
    return {"control": (control, 0o644), "md5sums": (sums.encode(), 0o644), **scripts}


def dependencies(needs):
    """Returns the Debian packages that contain the program's libraries, in the versions that the program needs."""
    found = set()
    for library in needs.libraries:
        if library.startswith(LIBC):
            found.add(f"libc6 (>= {dotted(needs.newest('GLIBC_'))})")
        elif library.startswith("libgcc_s.so."):
            found.add(f"libgcc-s1 (>= {dotted(needs.newest('GCC_')[:2])})")
        else:
            raise ValueError(f"the program needs {library}, and it is unknown which Debian package contains it")
    return sorted(found)


def dotted(version):
    return ".".join(map(str, version))


def template(name, **values):
    text = (TEMPLATES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()


def date(seconds):
    return time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))


def ar(members, modified):
    """Returns an `ar` archive with these members, in this order."""
    archive = b"!<arch>\n"
    for name, content in members.items():
        archive += f"{name:<16}{modified:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        archive += content + b"\n" * (len(content) % 2)
    return archive
