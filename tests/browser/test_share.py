"""The link: what is set stands in the address, opening it sets it again and runs nothing, bad values get a sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.browser.acts import choose, set_slider
from tests.browser.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

HOSTILE = "A 100 % “prompt”\n& more = ${1+1} </script> \u202e #1? \U0001f389"


def query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment, keep_blank_values=True).items()}


def wait_for(page: Page, **expected: str) -> None:
    page.wait_for_function(
        """expected => { const found = new URLSearchParams(location.hash.slice(1));
        return Object.entries(expected).every(([name, value]) => found.get(name) === value); }""",
        arg=expected,
    )


def number(page: Page, name: str) -> float:
    return float(page.locator(f"#{name} input[type=number]").input_value())


def words(page: Page) -> str:
    return page.locator(".sv-share-words").inner_text()


def go(page: Page, address: str) -> None:
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".sv-header[data-state=ready]")


def test_a_link_sets_up_another_page_and_runs_nothing(open_page, shot):
    page = open_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.fill("#sv-prompt textarea", HOSTILE)
    choose(page, draft="tree", rule="coupled")
    set_slider(page, "sv-gamma", 7)
    set_slider(page, "sv-temperature", 0.85)
    page.check("#sv-adaptive input")
    page.click("#sv-more button")
    page.fill("#sv-seed input", "12345")
    page.locator("#sv-seed input").press("Enter")
    wait_for(page, draft="tree", verify="coupled", gamma="7", temperature="0.85", seed="12345", prompt=HOSTILE)
    assert not [url for url in requests if "/queue/join" in url]
    assert {*query(page)} == {"prompt", "draft", "verify", "gamma", "temperature", "adaptive", "seed"}
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("document.querySelector('.sv-share-words').textContent === 'Link copied.'")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url

    other = open_page()
    go(other, link)
    wait_for(other, gamma="7")
    other.wait_for_function("text => document.querySelector('#sv-prompt textarea').value === text", arg=HOSTILE)
    other.wait_for_function("document.querySelector('#sv-draft-picker input:checked').value === 'tree'")
    assert other.locator("#sv-rule-picker input:checked").get_attribute("value") == "coupled"
    assert (number(other, "sv-gamma"), number(other, "sv-temperature")) == (7, 0.85)
    assert other.locator("#sv-adaptive input").is_checked()
    other.click("#sv-more button")
    other.wait_for_selector("#sv-seed input")
    assert other.input_value("#sv-seed input") == "12345"
    assert words(other) == ""
    other.wait_for_timeout(500)
    assert other.locator(".sv-run .sv-origin").inner_text().startswith("Recorded")  # nothing was run
    assert other.url == link
    shot(other)


def test_bad_values_get_a_sentence_and_the_good_ones_stay(open_page):
    page = open_page()
    go(
        page,
        f"{page.url.split('#')[0]}?talk=no&gamma=99#temperature=hot&draft=%3Cb%3E&seed=3&verify=block&max_new_tokens=2.5",
    )
    page.wait_for_function("document.querySelector('.sv-share-words').textContent !== ''")
    said = words(page)
    assert "gamma goes from 1 to 16: 16 is used" in said
    for part in (
        "temperature is a number, not “hot”",
        "draft “<b>” does not exist",
        "max new tokens is a whole number",
    ):
        assert part in said
    page.wait_for_function("document.querySelector('#sv-rule-picker input:checked').value === 'block'")
    assert number(page, "sv-gamma") == 16
    assert page.locator("#sv-draft-picker input:checked").get_attribute("value") == "hybrid"
    page.wait_for_timeout(600)
    assert words(page) == said  # it stays until something is changed
    set_slider(page, "sv-temperature", 1)
    wait_for(page, temperature="1", gamma="16", seed="3")
    assert urlsplit(page.url).query == "talk=no"
    assert words(page) == ""
    assert "draft" not in query(page)


def test_a_tree_and_rule_block_do_not_come_together(open_page):
    page = open_page()
    page.goto(f"{page.url.split('#')[0]}#draft=tree&verify=block")  # in the same tab
    page.wait_for_function("document.querySelector('.sv-share-words')?.textContent.includes('the rule was left out')")
    assert page.locator("#sv-rule-picker input:checked").get_attribute("value") == "rejection"


def test_too_long_a_prompt_is_left_out_and_said(open_page):
    page = open_page()
    page.fill("#sv-prompt textarea", "long " * 2000)
    page.wait_for_function("document.querySelector('.sv-share-words').textContent.includes('too long for a link')")
    assert "prompt" not in query(page)
    set_slider(page, "sv-gamma", 5)
    wait_for(page, gamma="5")
    page.reload()  # kept all the same
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value.length === 10000")
    page.fill("#sv-prompt textarea", "short")
    wait_for(page, prompt="short", gamma="5")


def test_a_preset_is_in_the_link(open_page):
    page = open_page()
    preset = json.loads((ROOT / "assets" / "prompts.json").read_text())[-1]
    page.get_by_role("button", name=preset["title"]).click()
    wait_for(page, prompt=preset["prompt"], draft=preset["draft"], gamma=str(preset["gamma"]))
    assert quote("lighthouse") in page.url
