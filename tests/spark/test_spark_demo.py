"""`make demo` on a folder with every kind of file name; and its check, with results tampered with."""

import hashlib
import os
import subprocess
import sys

import pytest

from queue_db import Counters, QueueDB
from queue_db.spark import read_results
from tests.spark.conftest import ROOT

JOBS = ROOT / "spark_jobs"


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(str(JOBS))
    import demo

    return demo


@pytest.fixture
def tree(tmp_path):
    """Twelve files worth a job, and things that are none."""
    folder = tmp_path / "tree"
    deep = folder / "a" / "b" / ("c" * 200) / "d"
    deep.mkdir(parents=True)
    (folder / "empty folder").mkdir()
    names = [
        b"plain.txt",
        b"new\nline",
        b"\xff not UTF-8",
        "ü — 漢字".encode(),
        b" blanks ",
        b"100%41",
        b"quote'\"s",
        b"[x]*?{y}\\",
    ]
    for number, name in enumerate(names):
        (folder / os.fsdecode(name)).write_bytes(b"line\r\n" * number)
    (folder / "a" / "empty").touch()
    (folder / "a" / "no newline at the end").write_bytes(b"one\ntwo")
    (folder / "a" / "any bytes").write_bytes(bytes(range(256)) * 5000)
    (deep / "deep").write_text("x\n" * 100)
    (folder / "a" / "loop").symlink_to(folder)
    (folder / "link").symlink_to(folder / "plain.txt")
    (folder / "broken link").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def make_demo(tmp_path, java_home):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, JOBS / "demo.py", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture
def leave(demo, tree):
    """Leave what a killed run leaves: jobs that wait, jobs that are leased, and one whose file has gone since."""

    def jobs(queue):
        for path in ("plain.txt", "a/empty", "gone"):
            uri = demo.file_uri(tree / path)
            queue.enqueue("file", {"uri": uri}, unique_key=hashlib.sha256(uri.encode()).hexdigest())
        assert len(queue.claim(2, lease=3.0)) == 2

    return jobs


def test_what_it_does_on_the_spark_of_these_tests(spark, demo, tree, leave, tmp_path):
    from drain_files import drain_files
    from enqueue_files import enqueue_files

    for script in ("enqueue_files.py", "drain_files.py"):
        spark.sparkContext.addPyFile(str(JOBS / script))
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
        leave(db.queue("files"))
        assert enqueue_files(spark, url, "files", tree, 2) == 10
        before = demo.scan(tree)
        assert drain_files(spark, url, "files", tmp_path / "out", 2, 60.0).completed == 13
    rows = read_results(spark, tmp_path / "out", demo.SCHEMA).where("error IS NULL").collect()
    results = [(row.uri, (row.size, row.lines, row.sha256)) for row in rows]
    check = demo.compare(results, before, demo.scan(tree))
    assert (check.files, check.changed, check.problems) == (12, 0, [])


@pytest.mark.rest("what it does is tested above, its check and its exit status are below")
def test_twice_and_after_an_interrupted_run(make_demo, demo, tree, leave, tmp_path):
    first = make_demo("--dir", tree, "--tasks", "2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "OK: 12 files, each exactly once" in first.stdout
    assert "one writer" in first.stdout
    assert first.stderr == ""

    with QueueDB(f"sqlite:///{tmp_path}/demo-output/queue.db") as db:
        leave(db.queue(demo.queue_name(tree)))
    second = make_demo("--dir", tree, "--tasks", "2")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "OK: 12 files" in second.stdout
    assert len(list((tmp_path / "demo-output").glob("results-*"))) == 2


def test_what_cannot_work_is_said_in_a_line(make_demo, demo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo.py", "--dir", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="2"):
        demo.main()
    assert "no such folder" in capsys.readouterr().err
    closed = make_demo("--dir", tmp_path, "--url", "postgresql+psycopg2://user:geheim@127.0.0.1:1/queue")
    assert closed.returncode == 1
    assert "geheim" not in closed.stdout + closed.stderr
    assert "Traceback" not in closed.stderr


@pytest.fixture
def truth(demo, tree):
    """What a faithful drain of the tree returns."""
    seen = demo.scan(tree)
    return [(uri, demo.facts(uri)) for uri in seen], seen


def test_the_check_passes_the_truth(demo, truth):
    results, seen = truth
    check = demo.compare(results, seen, seen)
    assert (check.files, check.changed, check.problems) == (12, 0, [])


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (lambda results: results[1:], "lost"),
        (lambda results: [*results, results[0]], "twice"),
        (lambda results: [(results[0][0], (*results[0][1][:2], "0" * 64)), *results[1:]], "wrong"),
        (lambda results: [(results[0][0], (results[0][1][0] + 1, *results[0][1][1:])), *results[1:]], "wrong"),
        (lambda results: [(results[0][0], (results[0][1][0], -1, results[0][1][2])), *results[1:]], "wrong"),
        (lambda results: [(results[0][0], (None, None, None)), *results[1:]], "wrong"),
        (lambda results: [*results, ("file:///elsewhere", (1, 0, "0" * 64))], "not in the folder"),
    ],
    ids=["lost", "twice", "digest", "size", "lines", "unread", "foreign"],
)
def test_the_check_finds(demo, truth, tamper, problem):
    results, seen = truth
    (found,) = demo.compare(tamper(results), seen, seen).problems
    assert found.startswith(problem)


def test_a_file_that_changed_meanwhile_is_not_compared(demo, tree, truth):
    results, before = truth
    (tree / "plain.txt").write_text("another text")
    (tree / "a" / "empty").unlink()
    (tree / "new").touch()
    check = demo.compare(results, before, demo.scan(tree))
    assert (check.files, check.changed, check.problems) == (10, 3, [])


def test_a_failed_check_is_the_exit_status(demo, monkeypatch, tmp_path, tree):
    failed = demo.Check(files=1, problems=["lost: no result for file:///x"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--dir", str(tree)])
    monkeypatch.setattr(demo, "run", lambda *arguments: demo.Outcome(demo.Drained(0, 0, Counters()), 1, 1.0, failed))
    assert demo.main() == 1


def test_the_model(demo):
    # Known: one racer never loses; ten on a window of one try ten times; ten on ten 1.535.
    assert demo.predicted_attempts(1, 10) == pytest.approx(1.0)
    assert demo.predicted_attempts(10, 1) == pytest.approx(10.0)
    assert demo.predicted_attempts(10, 10) == pytest.approx(1.535, abs=0.001)


@pytest.mark.parametrize("script", ["enqueue_files", "drain_files", "demo"])
def test_help(demo, script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        sys.modules[script].main()
    assert "--url" in capsys.readouterr().out
