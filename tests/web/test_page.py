"""The page in a real browser: what it shows, that it follows, and that nothing it is told becomes markup."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from e2e.browser import browser
from tests.web.scene import P99, Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=60_000)

HOSTILE = '<img src=x onerror="document.title=1">"\'</script><b id=injected>&amp;'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as running:
        yield running


class Watched:
    """A page of which everything is noted that must not happen."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda asked: None if asked.url.startswith(url) else self.faults.append(asked.url))
        page.on("requestfailed", lambda asked: self.faults.append(f"failed: {asked.url}"))


@pytest_asyncio.fixture(loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    found = Scene()
    found.roll_out()
    found.tick()
    async with found.served():
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def watched(chromium: Browser, scene: Scene) -> AsyncIterator[Watched]:
    context = await chromium.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC", locale="en-GB")
    noted = Watched(await context.new_page(), scene.url)
    yield noted
    await context.close()
    assert noted.faults == []


def cells(page: Page, row: int) -> Any:
    return page.locator("tbody tr").nth(row).locator("th, td")


async def points(page: Page, plot: str, line: str) -> list[float]:
    """The values at the corners of a line, read back from the picture."""
    picture = page.locator(f'figure[data-plot="{plot}"] > svg')
    d = await picture.locator(f'path[data-name="{line}"]').get_attribute("d") or ""
    low, high = [float(await picture.get_attribute(f"data-{end}") or "nan") for end in ("low", "high")]
    top, bottom = 10, 170 - 24
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", d)]
    return [low + (bottom - y) / (bottom - top) * (high - low) for y in heights]


async def test_the_table_shows_all_objects_and_follows(scene: Scene, watched: Watched):
    page = watched.page
    scene.put(name="a", uid="a")
    await page.goto(scene.url)
    await expect(page.locator("tbody tr")).to_have_count(2)
    shown = ["n/m", "Progressing", "v1", "v2", "10 %", "3"]
    await expect(cells(page, 1)).to_contain_text([*shown, "Holding", re.compile("the hold of step 1 ends in")])
    await expect(page).to_have_title("ModelDeployments - Slipway")
    await expect(page.get_by_role("columnheader")).to_have_count(8)
    await page.get_by_role("link", name="m", exact=True).focus()
    while scene.rollout.step < 2:
        scene.tick()
    await expect(cells(page, 1).nth(4)).to_have_text("50 %")
    await expect(page.get_by_role("link", name="m", exact=True)).to_be_focused()
    await page.get_by_label("Filter").fill("n/a")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("#state")).to_have_text("Live")


async def test_the_pictures_show_what_was_recorded_and_follow(scene: Scene, watched: Watched):
    page = watched.page
    await page.goto(f"{scene.url}/#/n/m")
    await expect(page.locator("figure")).to_have_count(7)
    assert (await points(page, "Weights", "v2 intended"))[-1] == pytest.approx(10, abs=1)
    assert (await points(page, "Weights", "v1 intended"))[0] == pytest.approx(100, abs=1)
    slow = await points(page, "p99", "v2")
    assert slow == [pytest.approx(P99["v2"], rel=0.02)] * len(slow)
    assert slow
    assert (await points(page, "Replicas", "v2 ready"))[-1] == pytest.approx(1, abs=0.05)
    legend = page.locator('figure[data-plot="Weights"] li')
    await expect(legend).to_have_text(
        [" v1 intended 90 %", " v1 observed 90 %", " v2 intended 10 %", " v2 observed 10 %"]
    )
    bound = page.locator('figure[data-plot="Evidence of harm"] [data-bound]')
    assert float(await bound.get_attribute("data-value") or "nan") == pytest.approx(1.301)
    recorded = len(scene.record.samples)
    while scene.rollout.step < 2 or scene.rollout.stage != "Observing":
        scene.tick()
    assert len(scene.record.samples) > recorded
    await expect(legend.nth(2)).to_have_text(" v2 intended 50 %")
    assert {round(value) for value in await points(page, "Weights", "v2 intended")} >= {0, 10, 50}
    safe = scene.record.samples[-1].checks["errors"].safe
    assert (await points(page, "Evidence of safety", "errors"))[-1] == pytest.approx(safe, abs=0.05)
    await expect(page.get_by_role("region", name="Versions").locator("tbody tr")).to_have_count(2)


async def test_a_plot_is_read_by_keyboard_and_by_screen_readers(scene: Scene, watched: Watched):
    page = watched.page
    await page.goto(f"{scene.url}/#/n/m")
    weights = page.get_by_role("img", name=re.compile("^Weights: v1 intended 90 %"))
    await weights.focus()
    for _ in range(len(scene.record.samples)):
        await page.keyboard.press("ArrowLeft")
    await expect(page.locator('figure[data-plot="Weights"] li').first).to_have_text(" v1 intended 100 %")
    await expect(page.locator('figure[data-plot="Weights"] .when')).to_contain_text("at ")
    await page.keyboard.press("Escape")
    await expect(page.locator('figure[data-plot="Weights"] li').first).to_have_text(" v1 intended 90 %")
    for role in ("banner", "main", "heading", "status"):
        await expect(page.get_by_role(role).first).to_be_attached()
    await page.keyboard.press("Tab")
    unnamed = await page.eval_on_selector_all("svg[role=img]", "all => all.filter(one => !one.ariaLabel).length")
    assert unnamed == 0


async def test_hostile_texts_stay_texts(scene: Scene, watched: Watched):
    status = scene.world.status
    assert status.rollout is not None
    scene.world.status = status.model_copy(
        update={
            "candidate": HOSTILE,
            "url": HOSTILE,
            "rollout": status.rollout.model_copy(update={"to": HOSTILE, "message": HOSTILE}),
            "versions": tuple(
                entry.model_copy(update={"name": HOSTILE, "reason": "Odd", "message": HOSTILE})
                for entry in status.versions
            ),
            "analysis": tuple(check.model_copy(update={"name": HOSTILE}) for check in status.analysis),
            "conditions": tuple(
                condition.model_copy(update={"message": HOSTILE, "reason": HOSTILE}) for condition in status.conditions
            ),
        }
    )
    scene.put()
    scene.world.now += 5.0
    scene.records.measured()
    page = watched.page
    await page.goto(scene.url)
    await expect(cells(page, 0).nth(3)).to_have_text(HOSTILE)
    await page.goto(f"{scene.url}/#/n/m")
    await expect(page.locator(".reason")).to_have_text(HOSTILE)
    await expect(page.locator(".message")).to_have_text(HOSTILE)
    await expect(page.locator('figure[data-plot="Evidence of harm"] li').last).to_contain_text(HOSTILE)
    assert await page.locator("img, #injected").count() == 0
    assert await page.title() == "m in n - Slipway"


async def test_an_object_that_is_gone_and_an_operator_that_is_away_are_told(scene: Scene, watched: Watched):
    page = watched.page
    await page.goto(f"{scene.url}/#/n/gone")
    await expect(page.locator("#state")).to_have_text("there is no such ModelDeployment")
    watched.faults = [fault for fault in watched.faults if "404" not in fault]
    await page.goto(f"{scene.url}/#/n/m")
    await expect(page.locator("#state")).to_have_text("Live")
    await page.context.set_offline(True)
    await expect(page.locator("#state")).to_contain_text("what is shown is old")
    await expect(page.locator("h1")).to_have_text("n/m")
    await page.context.set_offline(False)
    await expect(page.locator("#state")).to_have_text("Live")
    watched.faults = [fault for fault in watched.faults if "failed" not in fault.lower() and "404" not in fault]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_narrow_screen_in_both_schemes(scene: Scene, watched: Watched, scheme: Any):
    page = watched.page
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": 360, "height": 640})
    for path, there in (("/", "tbody tr"), ("/#/n/m", "figure path.line")):
        await page.goto(scene.url + path)
        await expect(page.locator(there).first).to_be_attached()
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
    paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}[scheme]
