"""``queue-db compare`` that is ended before its end."""

import signal

import pytest

from queue_db.compare.laboratory import _Runner


@pytest.fixture
def unimpressed():
    """A SIGTERM that the command does not handle has no effect, instead of ending the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("unimpressed")
def test_a_comparison_that_is_terminated_drops_its_schema(ask_at, tmp_path, monkeypatch):
    seen = []

    def be_terminated(*_):
        seen.extend(path.name for path in tmp_path.iterdir())
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_Runner, "run_bench", be_terminated)
    ask_at(None, "compare", "--url", f"sqlite:///{tmp_path / 'queue.db'}", "--quick", "--report", tmp_path / "report", status=130)
    assert any(name.startswith("queue_db_compare_") for name in seen)
    assert list(tmp_path.iterdir()) == []
