"""How the environment is made: by uv where it can, else by pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import setup_environment


@pytest.mark.parametrize(
    ("configured", "uv_ends_with", "installs_by"),
    [("", 0, ["uv"]), ("", 1, ["uv", "pip"]), ("global.index-url='https://index.example/simple'", 0, ["pip"])],
)
def test_pip_stands_in_where_uv_fails_or_does_not_know_the_index(
    tmp_path: Path, configured: str, uv_ends_with: int, installs_by: list[str]
) -> None:
    """Programs that only say how they were called stand in for the environment's."""
    called = tmp_path / "called"
    for name, then in (
        ("python", f'case "$*" in *"config list") echo "{configured}";; esac'),
        ("uv", f"exit {uv_ends_with}"),
    ):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{called}"\n{then}\n')
        program.chmod(0o755)
    setup_environment.build(tmp_path)
    from_the_lock = [line for line in called.read_text().splitlines() if f"--requirement {setup_environment.LOCK}" in line]
    assert ["uv" if line.startswith("uv ") else "pip" for line in from_the_lock] == installs_by
    assert all("--no-deps" in line for line in from_the_lock)
    assert called.read_text().endswith("pip --disable-pip-version-check check\n")
