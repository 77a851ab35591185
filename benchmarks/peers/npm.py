"""Install the Node peers outside the checkout: ``python -m benchmarks.peers.npm``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: The scripts and their package list.
SCRIPTS = Path(__file__).parent / "node"

#: Installation folder.
HOME = Path.home() / ".cache" / "queue-db" / "peers" / "node"

INSTALL = "python -m benchmarks.peers.npm"

_LIMIT = 600.0


def installed(package: str) -> bool:
    """Return whether a package is installed."""
    return (HOME / "node_modules" / package / "package.json").exists()


def main() -> int:
    """Install the packages with npm."""
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("npm is not here: install Node 20 or newer\n")
        return 1
    HOME.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / "package.json", HOME)
    # Without a lock file: the newest versions that the list admits. Install scripts of packages are not needed.
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    return subprocess.run(command, cwd=HOME, timeout=_LIMIT, check=False).returncode  # noqa: S603 - npm, as found on PATH


if __name__ == "__main__":
    sys.exit(main())
