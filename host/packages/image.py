"""The container image, as a tar archive that `skopeo` and `docker load` read. Building it needs no daemon and no network.

The image contains the program, the libraries of this machine that the program needs, the certificates of this machine,
and nothing else: no shell and no package manager. The program runs as a user without rights.
"""

import hashlib
import json
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from contents import LICENSE, SUMMARY, mode_of
from tarfiles import Tar, gzipped

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = 65532
DATA, WORK = "/var/lib/agent-host", "/work"
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nagent-host:x:{USER}:{USER}:agent-host:{DATA}:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nagent-host:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Documentation and completions are useless without a shell.
OMITTED = ("share/man", "share/bash-completion", "share/zsh", "share/fish")

LAYOUT_TYPE = "application/vnd.oci.image"


def build(contents, output):
    libraries = find_libraries(contents.needs)
    check_libraries(contents, libraries)
    layers = [base_layer(contents, libraries), program_layer(contents)]
    created = datetime.fromtimestamp(contents.modified, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    packed = [gzipped(layer, contents.level) for layer in layers]
    configuration = as_json(image_configuration(contents, layers, created))
    manifest = as_json({
        "schemaVersion": 2,
        "mediaType": f"{LAYOUT_TYPE}.manifest.v1+json",
        "config": descriptor(configuration, f"{LAYOUT_TYPE}.config.v1+json"),
        "layers": [descriptor(layer, f"{LAYOUT_TYPE}.layer.v1.tar+gzip") for layer in packed],
    })
    platform = {"architecture": ARCHITECTURES[contents.needs.architecture], "os": "linux"}
    annotations = {
        "io.containerd.image.name": f"agent-host:{contents.version}",
        "org.opencontainers.image.ref.name": contents.version,
    }
    index = {
        **descriptor(manifest, f"{LAYOUT_TYPE}.manifest.v1+json"),
        "platform": platform,
        "annotations": annotations,
    }
    path = output / f"agent-host-{contents.version}-{contents.needs.architecture}-image.tar"
    path.write_bytes(image_archive(contents, index, [configuration, manifest, *packed], configuration, packed))
    return path


def find_libraries(needs):
    """Returns the paths of the dynamic loader and of all libraries on this machine that the program needs."""
    folders = [f"/lib/{needs.architecture}-linux-gnu", f"/usr/lib/{needs.architecture}-linux-gnu",
               "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    found = [needs.interpreter]
    for library in needs.libraries:
        paths = [f"{folder}/{library}" for folder in folders if Path(folder, library).exists()]
        if not paths:
            raise ValueError(f"this machine does not have {library}, which the program needs")
        if library != PurePosixPath(needs.interpreter).name:
            found.append(paths[0])
    return found


def check_libraries(contents, libraries):
    """Starts the program with the libraries of the image only, which fails if one of them is missing or too old."""
    with tempfile.TemporaryDirectory() as folder:
        for library in libraries:
            Path(folder, PurePosixPath(library).name).write_bytes(Path(library).read_bytes())
        loader = Path(folder, PurePosixPath(libraries[0]).name)
        loader.chmod(0o755)
        command = [loader, "--inhibit-cache", "--library-path", folder, contents.root / "bin/agent-host", "--version"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def base_layer(contents, libraries):
    tar = Tar(contents.modified)
    for library in sorted(libraries):
        tar.file(library.lstrip("/"), Path(library).read_bytes(), 0o755)
    for path, text in FILES.items():
        tar.file(path, text.encode())
    certificates = [Path(path) for path in CERTIFICATES if Path(path).exists()]
    if not certificates:
        raise ValueError("this machine has no file with the certificates of authorities, such as " + CERTIFICATES[0])
    tar.file(CERTIFICATES[0].lstrip("/"), certificates[0].read_bytes())
    for folder in (DATA, WORK):
        tar.folder(folder.lstrip("/"), 0o700 if folder == DATA else 0o755, USER)
    tar.folder("tmp", 0o1777)
    return tar.finish()


def program_layer(contents):
    tar = Tar(contents.modified)
    for path in contents.files():
        if not str(path).startswith(OMITTED):
            tar.file(f"usr/{path}", contents.read(path), mode_of(path))
    return tar.finish()


def image_configuration(contents, layers, created):
    return {
        "created": created,
        "architecture": ARCHITECTURES[contents.needs.architecture],
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", f"AGENT_HOST_DATA={DATA}", f"HOME={DATA}"],
            "Entrypoint": ["/usr/bin/agent-host"],
            "WorkingDir": WORK,
            "Volumes": {DATA: {}},
            "Labels": {
                "org.opencontainers.image.title": "agent-host",
                "org.opencontainers.image.description": SUMMARY,
                "org.opencontainers.image.licenses": LICENSE,
                "org.opencontainers.image.version": contents.version,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        "history": [
            {"created": created, "created_by": "agent-host: libraries and certificates"},
            {"created": created, "created_by": "agent-host: program and plugins"},
        ],
    }


def image_archive(contents, index, blobs, configuration, layers):
    """Returns the image layout, with the file `manifest.json` for versions of Docker that do not read layouts."""
    tar = Tar(contents.modified)
    tar.file("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
    tar.file("index.json", as_json({
        "schemaVersion": 2,
        "mediaType": f"{LAYOUT_TYPE}.index.v1+json",
        "manifests": [index],
    }))
    tar.file("manifest.json", as_json([{
        "Config": blob_path(configuration),
        "RepoTags": [f"agent-host:{contents.version}"],
        "Layers": [blob_path(layer) for layer in layers],
    }]))
    for blob in sorted(set(blobs), key=digest):
        tar.file(blob_path(blob), blob)
    return tar.finish()


def descriptor(data, media_type):
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}


def digest(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def blob_path(data):
    return f"blobs/{digest(data).replace(':', '/')}"


def as_json(value):
    return (json.dumps(value, indent=2) + "\n").encode()
