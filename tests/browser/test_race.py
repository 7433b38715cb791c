"""The race as a person meets it: lanes on one clock, a photo finish, verdict and why; every number the race's own."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from specviz.lab.race import Race
from specviz.lab.race import race as lab_race
from tests.browser.acts import capture_feed, feed_lines, set_slider
from tests.browser.conftest import PHONE
from tests.conftest import tiny_engine

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

PROMPT = "The target checks what the draft proposes"
HOSTILE = "<img src=x onerror='window.hit=1'> ${1+1} {{7*7}}"


@pytest.fixture(scope="module")
def four() -> dict[str, Any]:
    """A race of four lanes on tiny models; the last lane is made to part from plain decoding, with hostile text."""
    drafts = ["ngram", "model:gamma=3", {"draft": "eagle-tree", "candidates": 3}]
    race = lab_race(
        tiny_engine(draft_seed=0), PROMPT, rounds=1, drafts=drafts, max_new_tokens=40, ignore_eos=True
    ).to_dict()
    race["lanes"][3] |= {
        "same_output": False,
        "first_divergence": {
            "index": 4, "position": 30, "ids": [5, 6], "texts": [HOSTILE, "b"], "before": "before ",
            "after": [f"{HOSTILE} on", "b on"], "margin": 0.0123, "precision": "bfloat16",
            "sentence": "They part here.",
        },
    }  # fmt: skip
    race["verdict"] = f"The verdict: {HOSTILE}"
    assert Race.from_dict(race)
    return race


def show(page: Page, race: dict[str, Any]) -> None:
    """Draw `race` in a view of its own, through the view's own feed."""
    page.wait_for_selector("#sv-race-view .sv-race[data-state=recorded]")
    page.evaluate(
        """race => { const host = document.createElement('div'); host.id = 'copy';
        host.className = 'sv-stage'; const old = document.querySelector('#sv-race-view .sv-race');
        host.append(old.cloneNode(true)); old.parentElement.append(host); old.remove();
        for (const part of ['transport', 'strips', 'lanes', 'whys', 'same', 'chart-why'])
          host.querySelector(`[data-part=${part}]`).replaceChildren();
        const lines = [{type: 'page', number: 1, recorded: true}, {type: 'race', race}];
        const value = lines.map(line => JSON.stringify(line) + String.fromCharCode(10)).join('');
        window.specviz.mountRace(host, {value}, () => {}); }""",
        race,
    )
    page.wait_for_function("n => document.querySelectorAll('#copy .sv-strip-row').length === n", arg=len(race["lanes"]))


def scrub(page: Page, share: float) -> None:
    page.locator(".sv-race .sv-scrub").evaluate(
        "(bar, value) => { bar.value = value; bar.dispatchEvent(new Event('input')); }", round(1000 * share)
    )


def exact(page: Page, where: str) -> list[tuple[str, str]]:
    """(field, exact value) of every number of the JSON drawn under `where`."""
    return page.evaluate(
        "where => [...document.querySelectorAll(`${where} .sv-num[data-field]`)]"
        ".map(node => [node.dataset.field, node.dataset.exact])",
        where,
    )


def same(found: list[tuple[str, str]], expected: list[tuple[str, float | None]]) -> None:
    assert [(field, float(value)) for field, value in found] == [
        (field, value) for field, value in expected if value is not None
    ]


def test_a_race_of_three_lanes_is_measured_and_replayed(open_page, shot):
    page = open_page(motion="no-preference")
    page.fill("#sv-prompt textarea", PROMPT)
    set_slider(page, "sv-length", 24)
    page.click("#sv-also input")
    page.get_by_role("option", name="Smoothed n-gram").click()
    page.keyboard.press("Escape")
    capture_feed(page)
    page.click("#sv-race-button")
    page.wait_for_selector(".sv-race[data-state=running]")
    page.wait_for_function(
        "document.querySelector('.sv-race [data-part=state]').textContent.includes('Measuring what')"
    )
    shot(page, "running", full=False)
    page.wait_for_selector(".sv-race[data-state=done]", timeout=90_000)
    (line,) = feed_lines(page, "race")
    race = line["race"]
    assert [lane["key"] for lane in race["lanes"]] == ["none", "hybrid", "ngram-smoothed"]
    assert page.locator(".sv-race [data-part=verdict]").inner_text() == race["verdict"]
    assert "same text" in page.locator(".sv-same[data-lane=hybrid]").inner_text()
    scrub(page, 0)
    page.wait_for_function("document.querySelectorAll('.sv-lane .sv-tok').length === 0")
    page.locator(".sv-race .sv-speed").select_option("4")
    page.click(".sv-race .sv-play")
    page.wait_for_function("document.querySelectorAll('.sv-strip-row.sv-done').length === 3")
    page.wait_for_selector(".sv-photo.sv-taken")
    kept = ".sv-tok:not(.sv-rejected):not(.sv-discarded):not(.sv-trimmed)"
    for number, lane in enumerate(race["lanes"]):
        text = "".join(page.locator(f".sv-lane-{number} {kept}").all_text_contents())
        assert text == lane["runs"][0]["output"]["text"]
    page.wait_for_selector("[data-part=chart-why] .main-svg")
    shot(page)


def every_number_is_the_race_s_own(page, four):
    drafts = four["lanes"][1:]
    for lane in drafts:
        why, where = lane["why"], f".sv-why-lane[data-lane='{lane['key']}']"
        assert page.locator(f"{where} .sv-why-line").inner_text() == why["sentence"]
        expected = [(field, factor[field]) for factor in why["factors"] for field in ("value", "raced", "break_even")]
        same(exact(page, where), [*expected, ("h0", why["h0"]), ("h0_raced", why["h0_raced"])])
        blamed = page.locator(f"{where} .sv-blamed").evaluate_all("rows => rows.map(row => row.dataset.factor)")
        assert blamed == ([why["blame"]] if why["blame"] else [])
    for lane in four["lanes"]:
        expected = [
            (f"{name}.{edge}", lane[name][edge])
            for name in ("tokens_per_second", "speedup", "prefill_s")
            if lane[name]
            for edge in ("median", "low", "high")
        ]
        same(exact(page, f"tr[data-lane='{lane['key']}']"), expected)
    best = max(lane["speedup"]["median"] for lane in drafts)
    same(exact(page, "[data-part=speedup]"), [("speedup.median", best)])
    listed = page.locator(".sv-verdict-lanes li").all_inner_texts()
    assert listed == [lane["verdict"] for lane in drafts]


def the_photo_shows_who_was_where(page, four):
    runs = {lane["key"]: lane["runs"][0] for lane in four["lanes"]}
    first = min(run["steps"][-1]["t_end"] for run in runs.values())
    rows = page.locator(".sv-photo-row").all_inner_texts()
    order = sorted(runs.values(), key=lambda run: run["steps"][-1]["t_end"])
    for row, run in zip(rows, order, strict=True):
        fates = [token["fate"] for step in run["steps"] if step["t_end"] <= first for token in step["tokens"]]
        written = sum(fate in ("accepted", "resampled", "bonus", "sampled") for fate in fates)
        assert f"{written} of {run['summary']['tokens']} tokens" in row
    scrub(page, 0)
    page.wait_for_selector(".sv-photo:not(.sv-taken)", state="attached")


def the_first_difference_is_told_and_hostile_text_stays_text(page, four):
    key = four["lanes"][3]["key"]
    box = page.locator(f"#copy .sv-same[data-lane='{key}']")
    assert "for 4 tokens; then they part" in box.inner_text()
    assert box.locator(".sv-parted").all_text_contents() == [HOSTILE, "b"]
    assert box.locator(".sv-parted-text").all_text_contents() == [f"…before {HOSTILE} on", "…before b on"]
    assert "They part here." in box.inner_text()
    assert page.locator("#copy [data-part=verdict]").text_content() == four["verdict"]
    assert page.evaluate("window.hit") is None


def test_what_is_drawn_is_the_race(open_page, four, shot):
    page = open_page()
    show(page, four)
    every_number_is_the_race_s_own(page, four)
    the_first_difference_is_told_and_hostile_text_stays_text(page, four)
    shot(page)
    the_photo_shows_who_was_where(page, four)


def test_blocks_are_drawn_once_and_a_replay_moves_only_the_clip(open_page, four):
    page = open_page()
    show(page, four)
    drawn = "() => [...document.querySelectorAll('#copy .sv-strip path')].map(path => path.getAttribute('d'))"
    whole = page.evaluate(drawn)
    assert len(whole) == 3 * len(four["lanes"])
    for number, lane in enumerate(four["lanes"]):
        steps = lane["runs"][0]["steps"]
        counts = [path.count("M") for path in whole[3 * number : 3 * number + 3]]
        assert counts == [sum(step[name] > 0 for step in steps) for name in ("draft_s", "verify_s", "host_s")]
    scrub(page, 0.5)
    page.wait_for_function(
        "() => { const clip = document.querySelector('#copy .sv-strip-row-0 svg').style.clipPath;"
        " return clip && !clip.startsWith('inset(0 0') && !clip.startsWith('inset(0px 0'); }"
    )
    boxes = "() => [...document.querySelectorAll('#copy .sv-strip svg')].map(svg => svg.getAttribute('viewBox'))"
    before = page.evaluate(boxes)
    assert len(set(before)) == 1  # one clock for all lanes
    page.locator("#copy [data-part=near]").press("Space")
    assert page.evaluate(boxes) != before
    assert len(set(page.evaluate(boxes))) == 1
    assert page.evaluate(drawn) == whole


def test_above_temperature_zero_and_without_costs_it_says_so(open_page):
    page = open_page()
    path = Race.from_dict(lab_race(tiny_engine(), PROMPT, rounds=1, temperature=1.0, max_new_tokens=12).to_dict())
    shorter = dataclasses.replace(path.lanes[1].runs[0].summary, tokens=7)
    run = dataclasses.replace(path.lanes[1].runs[0], calibration=None, summary=shorter)
    path.lanes[1].runs, path.lanes[1].why = [run], None
    show(page, json.loads(path.to_json()))
    assert "their distribution is the same" in page.locator("#copy [data-part=same]").inner_text()
    assert "not equally long (7, 12 tokens)" in page.locator("#copy .sv-photo").text_content()
    assert "temperature 1" in page.locator("#copy [data-part=what]").inner_text()
    assert "was not measured for this race" in page.locator("#copy .sv-why-line").inner_text()
    assert page.locator("#copy [data-part=why-figure]").is_hidden()


def test_race_stops(open_page):
    page = open_page()
    set_slider(page, "sv-length", 512)
    page.click("#sv-race-button")
    page.wait_for_selector(".sv-race[data-state=running]")
    page.click("#sv-stop-button")
    page.wait_for_selector(".sv-race[data-state=stopped]")
    page.wait_for_selector("#sv-race-button:not([disabled])")


def test_phone(open_page, four, shot):
    page = open_page(PHONE, dark=True)
    show(page, four)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    lefts = page.evaluate("[...document.querySelectorAll('#copy .sv-lane')].map(n => n.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1  # one below the other
    shot(page)
