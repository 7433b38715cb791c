"""What a person does on the page, for the tests in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

ENDED = ".sv-run[data-state=done]"
PROMPT = "The target checks what the draft proposes"


def set_slider(page: Page, name: str, value: float) -> None:
    box = page.locator(f"#{name} input[type=number]")
    box.fill(str(value))
    box.press("Enter")


def start(page: Page, prompt: str | None = PROMPT, length: int = 48) -> None:
    if prompt is not None:
        page.fill("#sv-prompt textarea", prompt)
    set_slider(page, "sv-length", length)
    page.click("#sv-run-button")


def run(page: Page, **options) -> None:
    start(page, **options)
    page.wait_for_selector(ENDED)
    page.wait_for_selector("#sv-run-button:not([disabled])")


def capture_feed(page: Page) -> None:
    """Keep what the server sent to the run view, so that the drawing can be held against it."""
    page.evaluate(
        """() => { const read = window.specviz.feedReader; window.lines = [];
        const view = JSON.parse; JSON.parse = (text, ...rest) => { const value = view(text, ...rest);
          if (value && value.type && typeof text === 'string') window.lines.push(value); return value; }; }"""
    )


def choose(page: Page, draft: str | None = None, rule: str | None = None) -> None:
    """Choose a draft type and a rule."""
    for picker, value in (("draft", draft), ("rule", rule)):
        if value is not None:
            page.check(f"#sv-{picker}-picker input[value={value}]")


def pick(page: Page, name: str, option: str) -> None:
    """Choose from a dropdown by what it shows."""
    page.click(f"#{name} input")
    page.get_by_role("option", name=option, exact=True).click()


def feed_lines(page: Page, kind: str) -> list[dict]:
    """What `capture_feed` kept of one type of event."""
    return [line for line in page.evaluate("window.lines") if line["type"] == kind]
