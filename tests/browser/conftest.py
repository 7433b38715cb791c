"""The real app in a process of its own, and chromium to look at it.

Every page made here fails its test when the console shows an error or a request leaves this machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app import ROOT, start_app, stop_app
from tests.tiny import tiny_folder

ARTIFACTS = ROOT / "artifacts"
WIDE, PHONE = (1280, 900), (390, 844)

sync_api = pytest.importorskip("playwright.sync_api")


def chromium_path() -> str | None:
    """The system's own chromium, None without one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="package")
def slow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model that is slow enough to be stopped."""
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_folder(folder, "llama", chat=True, layers=96, max_positions=2048, eos=False)


@pytest.fixture(scope="package")
def app(slow_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the page on that model."""
    process, url = start_app(tmp_path_factory.mktemp("app") / "app.log", SPECVIZ_TARGET=str(slow_folder))
    yield url
    stop_app(process)


@pytest.fixture(scope="package")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        path = chromium_path() or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("no chromium here: apt install chromium")
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


class Opener:
    """Opens pages and remembers what none of them may do."""

    def __init__(self, browser: sync_api.Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self.faults: list[str] = []
        self.contexts: list[sync_api.BrowserContext] = []

    def __call__(
        self, size: tuple[int, int] = WIDE, dark: bool = False, motion: str = "reduce", ready: bool = True
    ) -> sync_api.Page:
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion=motion,
            has_touch=size == PHONE,
        )
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: message.type == "error" and self.faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._request)
        page.goto(self.url)
        if ready:
            page.wait_for_selector(".sv-header[data-state=ready]")
        return page

    def _request(self, request: sync_api.Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"request: {request.url}")


@pytest.fixture
def open_page(browser: sync_api.Browser, app: str) -> Iterator[Opener]:
    """Makes pages; afterwards no console error and no foreign request may have been seen."""
    opener = Opener(browser, app)
    yield opener
    for context in opener.contexts:
        context.close()
    assert opener.faults == []


@pytest.fixture
def shot(request: pytest.FixtureRequest):
    """Keeps a picture of a page among the artefacts, named after the test."""

    def take(page: sync_api.Page, name: str = "", full: bool = True) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"{request.node.name}{name and f'-{name}'}.png", full_page=full)

    return take
