"""The dashboard in a real browser: whole over a run that has ended, harmless over hostile text, usable by everybody."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.api_server import full_row, monitor, played
from builders.browsing import AXE, Served, browser, free_port, needs_browser, served
from builders.market import ME, small_ledger
from builders.swarm import eventually
from playwright.sync_api import BrowserContext, Page, expect

from codezero.monitor.run_types import SettingLine, write_settings
from codezero.types import REHEARSAL

pytestmark = needs_browser
HOSTILE = (
    '```python\n<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\n```',
    "def f():\n    return 'user\u202e\u2066 nothing to see \u2069\u2066'\n\x1b[2J\x00",
    "x" * (1 << 20),
)
PAGES = ("#/", "#/runs?with=old,fleet~node-1", "#/swarm/fleet", "#/account",
         *(f"#/run/old/{tab}" for tab in ("system", "settings", "log", "checkpoints", "rollouts", "leaderboard",
                                          "market")),
         "#/run/old/rollout/{group}", "#/run/bets/market", "#/run/bets/game/{game}")  # fmt: skip
PICTURES = "CODEZERO_PAGE_PICTURES"  # the variable with the folder into which every page is drawn


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run that has ended, of peers with nothing good in mind."""
    folder = tmp_path_factory.mktemp("page")
    small_ledger(folder / "runs" / "bets", games=24)
    report = {"pid": 1, "peer_id": ME, "stopped": "asked to stop"}
    (folder / "runs" / "bets" / "node.json").write_text(json.dumps(report))
    rehearsed = monitor(folder / "runs" / "rehearsed")
    rehearsed.started(0)
    unjudged: dict[str, Any] = {"attempts__count": 8, "attempts__learned_share": 0.5, "attempts__no_verdict_share": 0.5}
    unjudged["attempts__no_verdict_reason"] = HOSTILE[0]
    rehearsed.observe(1, full_row(1, problems__stand_ins=f"{REHEARSAL}: {HOSTILE[0]}", **unjudged), [])
    rehearsed.close("max_iterations reached")
    played(folder / "runs" / "fleet" / "node-1", 12).close("asked to stop")
    played(folder / "runs" / "old", 25, *HOSTILE).close("max_iterations reached")
    write_settings(folder / "runs" / "old", [SettingLine("run.name", HOSTILE[0], HOSTILE[1])])
    (folder / "logs").mkdir()
    (folder / "logs" / "swarm.log").write_text("\n".join(HOSTILE[:2]))
    with served(folder, free_port()) as server:
        yield server


@pytest.fixture(scope="module")
def context(server: Served) -> Iterator[BrowserContext]:
    with browser(server.folder / "profile", viewport={"width": 1280, "height": 900}) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    page.close()
    assert not wrong


def newest_group(page: Page, server: Served) -> int:
    return page.request.get(f"{server.url}/api/runs/old/rollouts?limit=1").json()["rollouts"][0]["id"]


def path_of(path: str, page: Page, server: Served) -> str:
    games = page.request.get(f"{server.url}/api/runs/bets/market/games?limit=2").json()["games"]
    return path.format(group=newest_group(page, server), game=games[-1]["id"])


def test_a_run_that_has_ended_is_shown_whole(page: Page, server: Served) -> None:
    page.goto(server.url)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("max_iterations reached").first).to_be_visible()
    expect(page.get_by_role("heading", name="Exams on held-out problems")).to_be_visible()
    expect(page.locator("main")).to_contain_text("codezero export")
    assert page.locator("canvas").count() >= 6


def test_a_rehearsal_is_called_one_above_all_figures(page: Page, server: Served) -> None:
    page.goto(f"{server.url}/#/run/rehearsed")
    expect(page.locator("main .notice").nth(1)).to_contain_text("50.0 % of the attempts have no verdict (")
    expect(page.locator("main")).to_contain_text("50.0 % of the attempts learned, — cut off, 50.0 % unjudged")
    notice = page.locator("main .notice").first
    expect(notice).to_contain_text(REHEARSAL)
    expect(notice).to_be_in_viewport()
    assert notice.locator("img, script").count() == 0 and page.evaluate("window.pwned") is None
    above, below = notice.bounding_box(), page.locator("#learns").bounding_box()
    assert above and below and above["y"] + above["height"] <= below["y"]
    page.goto(f"{server.url}/#/run/old")
    expect(page.get_by_role("heading", name="Exams on held-out problems")).to_be_visible()
    assert page.locator("main .notice").count() == 0


def test_hostile_attempts_are_text(page: Page, server: Served) -> None:
    page.goto(f"{server.url}/#/run/old/rollout/{newest_group(page, server)}")
    page.locator("pre").first.wait_for()
    assert page.evaluate("window.pwned") is None
    assert page.locator("pre img, pre script, main img").count() == 0
    shown = page.locator("main").inner_text()
    assert "<img src=x onerror=" in shown
    assert not any(hidden in shown for hidden in "\u202e\u2066\u2069\x1b\x00")
    assert "202E" in shown.upper(), "what was hidden is made visible"


@pytest.mark.slow
@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed; scripts/build_page.sh installs it")
def test_nobody_is_shut_out(page: Page, server: Served) -> None:
    """In light and dark, and without sideways scrolling on a phone.

    Does not show that a person who cannot see understands the page; axe finds what a program can find.
    """
    for path in PAGES:
        page.goto("about:blank")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light", reduced_motion="reduce")  # else colours are on their way
        page.goto(f"{server.url}/{path_of(path, page, server)}")
        page.get_by_role("heading", level=1).wait_for()
        page.evaluate(AXE.read_text())
        violations: list[dict[str, Any]] = page.evaluate("axe.run().then(result => result.violations)")
        page.emulate_media(color_scheme="dark")
        violations += page.evaluate("axe.run({runOnly: ['color-contrast']}).then(result => result.violations)")
        serious = [each for each in violations if each["impact"] in ("serious", "critical")]
        assert not serious, f"{path}: {[(each['id'], each['nodes'][0]['html'][:200]) for each in serious]}"
        page.set_viewport_size({"width": 360, "height": 740})
        # not wait_for_function: it evaluates a string again within the page, which the page's policy forbids
        eventually(lambda: page.evaluate("document.documentElement.scrollWidth <= 360"), 20)


@pytest.mark.skipif(PICTURES not in os.environ, reason=f"{PICTURES}=FOLDER draws every page")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_page_is_drawn(page: Page, server: Served, scheme: Any, width: int) -> None:
    folder = Path(os.environ[PICTURES])
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("#/run/rehearsed", *PAGES):
        page.goto("about:blank")
        page.goto(f"{server.url}/{path_of(path, page, server)}")
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_load_state("networkidle")
        name = re.sub(r"[^a-z0-9]+", "-", re.sub("[{}]", "", path)).strip("-") or "overview"
        file = folder / f"{name}-{scheme}-{width}.png"
        page.screenshot(path=file, full_page=True)
        assert int.from_bytes(file.read_bytes()[16:20]) == width, f"{path} scrolls sideways"


def test_runs_are_compared_in_one_chart_along_time_and_zoomed_by_keyboard_and_mouse(page: Page, server: Served) -> None:
    page.goto(f"{server.url}/#/runs")
    for run in ("fleet/node-1", "old"):
        page.get_by_label(f"Compare {run}").press("Space")
    chart = page.locator("canvas")
    expect(chart).to_have_count(1)
    expect(chart).to_have_attribute(
        "aria-label", re.compile(r"fleet/node-1: 20.+ at iteration 10.+old: 20.+ at iteration 20,")
    )
    page.get_by_label("Along").select_option("time")
    expect(chart).to_have_attribute("aria-label", re.compile("fleet/node-1: .+ at seconds 0"))
    page.get_by_label("Along").select_option("iteration")
    page.get_by_label("From", exact=True).fill("2")
    page.get_by_label("to", exact=True).fill("8")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show all").click()
    box = chart.bounding_box()
    assert box
    page.mouse.move(box["x"] + 200, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 50, steps=3)
    page.mouse.up()
    expect(page.get_by_label("From", exact=True)).to_have_value(re.compile(r"[1-9]"))
    page.get_by_label("Compare fleet/node-1").uncheck()
    assert page.url.endswith("#/runs?with=,old"), "the run that stays keeps its place, and so its colour"


def test_settings_and_log_of_strangers_are_text(page: Page, server: Served) -> None:
    for tab, words in (("settings", "run.name"), ("log", "nothing to see")):
        page.goto(f"{server.url}/#/run/old/{tab}")
        expect(page.get_by_text(words).first).to_be_visible()
        shown = page.locator("main").inner_text()
        assert page.evaluate("window.pwned") is None and page.locator("main img, main script").count() == 0
        assert "<img src=x" in shown and not any(hidden in shown for hidden in "\u202e\u2066\x1b\x00")


def test_the_market_shows_bets_prices_and_what_they_are_worth(page: Page, server: Served) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{server.url}/#/run/old/market")
    expect(page.get_by_text("this run plays no market: market.enabled=false")).to_be_visible()
    page.goto(f"{server.url}/#/run/bets/market")
    expect(page.get_by_role("region", name="Your bets").get_by_role("row")).to_have_count(26)
    expect(page.get_by_text("In 24 games the price was better than the own judge")).to_be_visible()
    expect(page.get_by_text("test by test: passes, not told, fails")).to_be_visible()
    assert page.locator("main img").count() == 0 and "\u202e" not in page.locator("main").inner_text()
    assert page.locator("canvas").count() == 1
    page.get_by_role("button", name="Show them").click()
    expect(page.get_by_role("region", name="All games").get_by_role("row")).to_have_count(26)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("region", name="Last settled").get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Reports by peer and step")).to_contain_text("86 %")
    expect(page.get_by_role("link", name="Judge")).to_have_attribute("aria-current", "page")
