"""Find Chromium, or unpack it, as ``tests/servers`` does with the databases.

In this order:

1. ``QUEUE_DB_TEST_CHROMIUM``: the program. If it is set, it must work.
2. Programs on PATH.
3. On Debian its packages, unpacked into the cache by an earlier run or now.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.patience import PATIENCE
from tests.servers import folders
from tools import debian_packages

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

#: Chromium itself, and a font: without any it draws no text.
PACKAGES = ["chromium", "fonts-dejavu-core"]


class BrowserMissing(Exception):
    """There is no Chromium; the text says what brings it."""


def find() -> tuple[Path, dict[str, str]]:
    """The program, and the environment that it needs besides this process's own."""
    named = os.environ.get("QUEUE_DB_TEST_CHROMIUM")
    tried = []
    for program in [named] if named else filter(None, map(shutil.which, NAMES)):
        if trouble := _trouble(Path(program), {}):
            tried.append(f"{program}: {trouble}")
        else:
            return Path(program), {}
    if not named:
        try:
            return _from_packages()
        except debian_packages.Unavailable as error:
            tried.append(f"packages: {error}")
    reasons = "\n".join(f"  - {reason}" for reason in tried)
    raise BrowserMissing(
        f"No Chromium to test the dashboard with. Tried:\n{reasons}\nAny one of these brings it:\n"
        "  apt-get install chromium\n  export QUEUE_DB_TEST_CHROMIUM=/path/to/chromium"
    )


def _trouble(program: Path, environment: dict[str, str]) -> str:
    """Why the program does not run here; empty if it does."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, **environment}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode or "Chrom" not in done.stdout:
        return f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:500]}"
    return ""


def _from_packages() -> tuple[Path, dict[str, str]]:
    """Chromium of this machine's own suite, unpacked.

    The tree is of the same suite as the machine, so its libraries work with the machine's loader. That matters: Chromium starts
    its children from ``/proc/self/exe``, which must be itself.
    """
    system, suite = debian_packages.distribution()
    if system != "debian":
        raise debian_packages.Unavailable(f"Chromium's packages are Debian's, and this is {system}.")
    tree = folders.cache_folder() / f"chromium-{system}-{suite}"
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", PACKAGES)
    # Libraries of PulseAudio's own are in a folder below.
    libraries = [
        str(path) for pattern in ("*-linux-gnu*", "*-linux-gnu*/pulseaudio") for path in sorted(tree.glob(f"usr/lib/{pattern}"))
    ]
    fonts = tree / "fonts.conf"
    wanted = (
        f'<?xml version="1.0"?><fontconfig><dir>{tree}/usr/share/fonts</dir><cachedir>{tree}/fonts.cache</cachedir></fontconfig>'
    )
    if not fonts.exists() or fonts.read_text() != wanted:
        # In one step: a browser of another process may be reading it.
        new = fonts.with_name(f"fonts.conf-{os.getpid()}")
        new.write_text(wanted)
        new.replace(fonts)
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": str(fonts)}
    program = tree / "usr/lib/chromium/chromium"
    if trouble := _trouble(program, environment):
        raise debian_packages.Unavailable(f"{program} {trouble}")
    return program, environment
