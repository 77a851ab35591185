"""The pictures of the documentation show nothing of the machine that made them."""

from __future__ import annotations

import re
import socket
import tempfile

import httpx2

from queue_db.service import Settings
from tests.patience import PATIENCE
from tests.service.conftest import serving
from tools.dashboard_pictures import PICTURES, shop


def test_pictures_name_no_folder_and_no_machine() -> None:
    with shop() as db, serving(db, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE) as client:
        for _, page, _ in PICTURES:
            text = re.sub(r"<[^>]+>", " ", client.get(page).text)
            assert "sqlite:///shop.db" in text
            for word in (tempfile.gettempdir(), f"{socket.gethostname()}:"):
                assert word not in text, (page, word)
