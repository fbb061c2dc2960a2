"""The files that all packages contain, in the folders in which they are installed below a prefix such as /usr."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import elf

HERE = Path(__file__).resolve().parent
SUMMARY = "Runs language-model agents whose parts are sandboxed WebAssembly plugins"
LICENSE = "Apache-2.0"

# Folders of the standard plugins and of the documentation below the prefix. The program finds the plugins beside its
# own folder.
PLUGINS = "lib/agent-host/plugins"
DOCUMENTATION = "share/doc/agent-host"

FASTEST, SMALLEST = 1, 9

COMPLETIONS = {
    "bash": "share/bash-completion/completions/agent-host",
    "zsh": "share/zsh/site-functions/_agent-host",
    "fish": "share/fish/vendor_completions.d/agent-host.fish",
}
# zsh calls the file as a function when it first completes the command. The script only registers a function, so that
# without these lines the first attempt would propose nothing.
ZSH_FIRST_CALL = """
if [[ "$funcstack[1]" = "_agent-host" ]]; then
    _clap_dynamic_completer_agent_host "$@"
fi
"""


@dataclass
class Contents:
    """The files of a package, and what the package says about them."""

    root: Path
    version: str
    needs: elf.Needs
    # Time of all files, in seconds since 1970.
    modified: int
    maintainer: str
    # Compression level, `FASTEST` or `SMALLEST`.
    level: int

    def files(self):
        """Returns the paths of all files relative to the prefix, sorted."""
        return sorted(path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())

    def read(self, path):
        return (self.root / path).read_bytes()


def mode_of(path):
    """Returns the permissions of a file that is installed with this path below the prefix."""
    return 0o755 if path.parts[0] == "bin" else 0o644


def description():
    """Returns the text about the program that package indexes show, in Markdown."""
    return (HERE / "templates/about.md").read_text()


def stage(binary, plugins, repository, root):
    """Collects the files of the packages in `root`, and returns `root`."""
    program = root / "bin/agent-host"
    program.parent.mkdir(parents=True)
    shutil.copy2(binary, program)
    program.chmod(0o755)
    components = sorted(plugins.glob("*.wasm"))
    if not components:
        raise ValueError(f"{plugins} contains no built plugins (*.wasm)")
    (root / PLUGINS).mkdir(parents=True)
    for component in components:
        shutil.copyfile(component, root / PLUGINS / component.name)
    run(program, "plugin", "index", root / PLUGINS)
    for shell, path in COMPLETIONS.items():
        script = run(program, "completions", shell) + (ZSH_FIRST_CALL if shell == "zsh" else "")
        write(root / path, script)
    run(program, "man", "--output", root / "share/man/man1")
    write(root / DOCUMENTATION / "README.md", description())
    shutil.copyfile(repository / "LICENSE", root / DOCUMENTATION / "LICENSE")
    return root


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(program, *arguments):
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
