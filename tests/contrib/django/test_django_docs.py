"""The page about Django can be followed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "integrations" / "django.md"


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.rest("test_django_running.py and test_django_project.py do in one process what the page does in ten")
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)

    def run(script: str) -> str:
        done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    run("django-admin startproject mysite . && python manage.py startapp shop")
    said = ""
    for language, code in blocks():
        if language == "python":
            file, text = tmp_path / code.partition("\n")[0].removeprefix("# "), code
            if not importlib.util.find_spec("django.tasks"):
                text = text.replace("from django.tasks import", "from django_tasks import")
            elif "django_tasks" in text:
                continue
            with file.open("a") as to:
                to.write(text)
        elif language == "console":
            said += run("\n".join(line.removeprefix("$ ") for line in code.splitlines()))
    assert "READY\n" in said
    assert "welcome 7\n" in said
    assert "state=SUCCESSFUL" in said
    assert "no issues" in run("python manage.py check --database default")
    assert "1 completed" in run(
        'python manage.py shell -c "from shop.tasks import welcome; welcome.enqueue(8)" && python manage.py queue_worker --batch'
    )


@pytest.mark.parametrize("word", ["max_attempts", "schedules", "result_ttl", "failed_ttl", "dashboard", "max_crashes", "database"])
def test_the_page_names_each_option(word: str) -> None:
    assert f"`{word}`" in PAGE.read_text(encoding="utf-8")


def test_the_page_has_all_options() -> None:
    from dataclasses import fields

    from queue_db.contrib.django.settings import Settings

    text = PAGE.read_text(encoding="utf-8")
    assert [each.name for each in fields(Settings) if f"`{each.name}`" not in text] == []
