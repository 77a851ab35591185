#!/usr/bin/env python3
"""Find a Java that Spark runs on, or install one, and print its home.

    export JAVA_HOME="$(.venv/bin/python tools/java.py)"

Looked at in this order: JAVA_HOME, `java` on PATH, the usual folders. If none is new enough, apt-get installs one where
that is allowed without a password; else the wheel `install-jdk` fetches one into the cache folder.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = 17
PREFERRED = ("17", "21")  # what Spark is tested with; a newer one serves if there is neither
FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
)


def find() -> str:
    """Return the home of a Java that is new enough, or nothing."""
    named = os.environ.get("JAVA_HOME")
    first = [Path(named) / "bin" / "java"] if named else []
    on_path = shutil.which("java")
    for launcher in first + ([Path(on_path)] if on_path else []):
        version, home = ask(launcher)
        if version >= OLDEST:
            return home
    found = [answer for answer in map(ask, sorted(_in_usual_folders())) if answer[0] >= OLDEST]
    found.sort(key=lambda answer: (str(answer[0]) not in PREFERRED, answer[0]))
    return found[0][1] if found else ""


def ask(launcher: Path) -> tuple[int, str]:
    """Run a Java and return the version and the home that it tells; (0, "") if it does not run."""
    command = [str(launcher), "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0, ""
    version = re.search(r"java\.specification\.version = (\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    return (int(version[1]), home[1].strip()) if version and home else (0, "")


def install() -> str:
    """Install a Java and return its home; raise RuntimeError with a sentence for the reader if that fails."""
    reasons = []
    for way in (_with_apt, _with_wheel):
        try:
            way()
            if home := find():
                return home
            reasons.append("what was installed does not run")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            reasons.append(str(error))
    raise RuntimeError(
        f"Spark needs Java {OLDEST} or newer and none could be installed ({'; '.join(reasons)}). "
        "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless or openjdk-21-jre-headless; "
        "Mac: brew install openjdk@17) or name one in JAVA_HOME."
    )


def cache_folder() -> Path:
    """Return the folder that a Java from the wheel lives in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queue-db" / "java"


def _in_usual_folders() -> Iterator[Path]:
    for pattern in FOLDERS:
        yield from Path("/").glob(f"{pattern.lstrip('/')}/bin/java")
    for folder in (cache_folder(), Path.home() / ".jdk", Path.home() / ".sdkman/candidates/java"):
        yield from folder.glob("*/bin/java")
        yield from folder.glob("*/Contents/Home/bin/java")


def _with_apt() -> None:
    apt = shutil.which("apt-get")
    if apt is None:
        raise RuntimeError("there is no apt-get")
    prefix: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None or subprocess.run(["sudo", "-n", "true"], check=False, capture_output=True).returncode != 0:
            raise RuntimeError("apt-get needs root, and sudo is missing or asks for a password")
        prefix = ["sudo", "-n"]
    prefix += ["env", "DEBIAN_FRONTEND=noninteractive", apt, "-q", "-y"]
    print("==> Installing Java with apt-get", file=sys.stderr, flush=True)
    # A stale package list names files that the mirror no longer has; a failed update may still leave a usable one.
    subprocess.run([*prefix, "update"], stdout=sys.stderr, check=False)
    for version in PREFERRED:
        command = [*prefix, "install", "--no-install-recommends", f"openjdk-{version}-jre-headless"]
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0:
            return
    raise RuntimeError("apt-get could not install it")


def _with_wheel() -> None:
    try:
        jdk = importlib.import_module("jdk")
    except ImportError as error:
        raise RuntimeError("the wheel install-jdk is not installed in this Python") from error
    print(f"==> Fetching Java into {cache_folder()}", file=sys.stderr, flush=True)
    cache_folder().mkdir(parents=True, exist_ok=True)
    try:
        jdk.install(PREFERRED[0], jre=True, path=str(cache_folder()))
    except Exception as error:  # the wheel lets through whatever the network and the archive raise
        raise RuntimeError(f"install-jdk could not fetch it: {error}") from error


def main() -> int:
    """Print the home of a Java for Spark."""
    try:
        print(find() or install())
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
