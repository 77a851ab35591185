"""mysqlclient, which has no wheels for Linux: it is built once, with the headers of an unpacked package, into the cache."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers import folders
from tools import debian_packages

VERSION = "2.3.2"


@cache
def module() -> Any:
    """The module ``MySQLdb``."""
    folder = _built()
    (plugins,) = _tree().glob("usr/lib/*/libmariadb3/plugin")
    os.environ["MARIADB_PLUGIN_DIR"] = str(plugins)  # how to log in to MySQL
    sys.path.append(str(folder))
    if getattr(sys.modules.get("MySQLdb"), "__name__", "") == "pymysql":  # it stands in for mysqlclient in the tests of Django
        for name in [each for each in sys.modules if each in {"MySQLdb", "_mysql"} or each.startswith("MySQLdb.")]:
            del sys.modules[name]
    return importlib.import_module("MySQLdb")


def _tree() -> Path:
    """The folder with the unpacked package of MariaDB's client."""
    tree = folders.cache_folder() / "-".join(["libmariadb", *debian_packages.distribution()])
    if not tree.is_dir():
        debian_packages.unpack(tree, "own", ["libmariadb-dev"])
    return tree


def _built() -> Path:
    """The folder with the package; build it at the first use."""
    of = "-".join([str(sys.implementation.cache_tag), *debian_packages.distribution()])
    place = folders.cache_folder() / f"mysqlclient-{VERSION}-{of}"
    if place.is_dir():
        return place
    tree = _tree()
    (library,) = tree.glob("usr/lib/*/libmariadb.so")
    environment = os.environ | {
        "MYSQLCLIENT_CFLAGS": f"-I{tree}/usr/include/mariadb",
        "MYSQLCLIENT_LDFLAGS": f"-L{library.parent} -lmariadb -Wl,-rpath,{library.parent}",
    }
    with tempfile.TemporaryDirectory(prefix=f"{place.name}.", dir=place.parent) as work:
        install = ["install", "--no-deps", "--no-binary", "mysqlclient", "--target", f"{work}/built", f"mysqlclient=={VERSION}"]
        subprocess.run([sys.executable, "-m", "pip", "--quiet", *install], env=environment, check=True, timeout=600)
        if not place.is_dir():
            Path(work, "built").rename(place)
    return place
