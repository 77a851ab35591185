"""What users install: the wheel alone, away from the sources, makes the tables and does a job."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import queue_db
from queue_db import errors
from queue_db.store.schema.tables import HEAD
from queue_db.testing import suite
from queue_db.testing.suite import asserts

ROOT = Path(__file__).resolve().parents[2]

#: Programs outside the project are written against these.
PROMISED = {
    *("QueueDB", "Queue", "Job", "LeasedJob", "Verdict", "State"),
    *("Snooze", "Retry", "Cancel", "Dead", "Strategy", "QueueDBError"),
}

ROUND_TRIP = """
import queue_db, sys
from pathlib import Path

assert Path(queue_db.__file__).is_relative_to(sys.prefix), queue_db.__file__
with queue_db.QueueDB("sqlite:///wheel.db") as db:
    db.migrate()
    db.check()
    queue = db.queue("mail")
    job_id = queue.enqueue("welcome", {"user": 7})
    (job,) = queue.claim()
    assert (job.id, job.payload) == (job_id, {"user": 7})
    assert job.complete()
    assert "CREATE TABLE jobs" in db.migration_sql()
print("one job round trip")
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUEUE_DB"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built from a copy of the sources, which is gone afterwards."""
    source = tmp_path_factory.mktemp("source") / "copy"
    unwanted = shutil.ignore_patterns(".git", ".venv", "__pycache__", "demo-output", "dist", "build", ".*_cache", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=unwanted)
    out = tmp_path_factory.mktemp("dist")
    # The build tools are pinned in the environment: nothing is fetched.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    shutil.rmtree(source)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are seen where they are installed already, ours is not."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    (wheel,) = built.glob("*.whl")
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    # A path file adds the folder but does not run the editable install's path file in it.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_carries_the_migrations_and_its_types(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {path.relative_to(ROOT) for path in (ROOT / "migrations").rglob("*.py")}
    assert {f"queue_db/{script}" for script in scripts} <= names
    assert "queue_db/py.typed" in names
    assert not {name for name in names if name.startswith(("tests/", "tools/", "spark_jobs/"))}


@pytest.mark.rest("make test builds and installs the wheel")
def test_the_sdist_is_built(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "monitoring").iterdir()}
    assert len(shipped) == 4
    assert shipped <= names


def test_the_wheel_does_a_job_without_the_sources(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "-c", ROUND_TRIP, cwd=tmp_path) == "one job round trip\n"


def test_the_wheel_has_the_command(installed: Path, tmp_path: Path) -> None:
    assert queue_db.__version__ in run(installed.parent / "queue-db", "--version", cwd=tmp_path)
    assert queue_db.__version__ in run(installed, "-m", "queue_db", "--version", cwd=tmp_path)


ONLY_THE_EXTRA = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement

def brought(name, extra=""):
    found = {name}
    for needed in map(Requirement, requires(name) or ()):
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            for one in needed.extras or {""}:
                if needed.name != name or one != extra:
                    found |= brought(needed.name.lower(), one)
    return found

allowed = {name.replace("_", "-").lower() for name in brought("queue-db", "cli")}

class OnlyWhatIsBrought(PathFinder):
    owners = packages_distributions()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        owners = {owner.replace("_", "-").lower() for owner in cls.owners.get(name, ())}
        return None if owners and not owners & allowed else super().find_spec(name, path, target)

sys.meta_path = [OnlyWhatIsBrought if finder is PathFinder else finder for finder in sys.meta_path]
for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
    del sys.modules[name]
from queue_db.cli import main
main()
"""


def test_the_command_needs_only_what_its_extra_brings(installed: Path, tmp_path: Path) -> None:
    at = ["--url", f"sqlite:///{tmp_path}/queue.db"]
    for arguments in (["--help"], ["migrate", *at], ["enqueue", "mail", "welcome", *at], ["top", "--once", *at], ["doctor", *at]):
        run(installed, "-c", ONLY_THE_EXTRA, *arguments, cwd=tmp_path)
    lacking = subprocess.run(
        [installed, "-c", ONLY_THE_EXTRA, "compare", *at], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 'is not installed: pip install "queue-db[compare]"' in lacking.stderr


@pytest.mark.rest("tests/migrations/test_alembic.py migrates as plain Alembic does")
def test_the_wheel_is_migrated_by_plain_alembic(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "queue.ini").write_text("[alembic]\nscript_location = queue_db:migrations\n")
    alembic = [installed, "-m", "alembic", "-c", "queue.ini", "-x", f"url=sqlite:///{tmp_path}/wheel.db"]
    run(*alembic, "upgrade", "head", cwd=tmp_path)
    assert f"{HEAD} (head)" in run(*alembic, "current", cwd=tmp_path)
    assert "CREATE TABLE jobs" in run(*alembic, "upgrade", "head", "--sql", cwd=tmp_path)
    with queue_db.QueueDB(f"sqlite:///{tmp_path}/wheel.db") as db:
        db.check()


@pytest.mark.rest("tests/test_slices.py says what an import brings")
def test_importing_the_library_needs_only_sqlalchemy_and_the_retry_library(tmp_path: Path) -> None:
    program = (
        "import sys; before = set(sys.modules); import queue_db\n"
        "from importlib.metadata import packages_distributions as owners\n"
        "top = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(*sorted({owner for name in top for owner in owners().get(name, [])}))\n"
    )
    loaded = {name.lower() for name in run(sys.executable, "-c", program, cwd=tmp_path).split()}
    assert loaded <= {"queue-db", "sqlalchemy", "typing_extensions", "typing-extensions", "greenlet"}


def test_the_promised_names_are_there() -> None:
    assert set(queue_db.__all__) >= PROMISED
    assert all(hasattr(queue_db, name) for name in queue_db.__all__)


def test_every_exception_and_what_the_verbs_return_can_be_imported_from_the_package() -> None:
    exceptions = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, errors.QueueDBError)}
    returned = {
        "Batch",
        "Controls",
        "Counters",
        "Finished",
        "Job",
        "JobError",
        "LeasedJob",
        "QueueStats",
        "Verdict",
        "WorkerInfo",
        "Feed",
        "Cursor",
        "Message",
    }
    assert exceptions | returned <= set(queue_db.__all__)
    assert sorted(queue_db.__all__) == list(queue_db.__all__)


def test_the_asserts_of_every_module_of_the_suite_are_rewritten() -> None:
    asked = Path(asserts.__file__).read_text()
    modules = {module.name for module in pkgutil.iter_modules(suite.__path__)} - {"asserts"}
    assert {name for name in modules if f'"queue_db.testing.suite.{name}"' in asked} == modules
