"""Tokens that have no text of their own, and texts that run from right to left: what a person sees of them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

#: Draws steps of tokens [text, fate, parent] and gives what is to be measured of them.
DRAW = """rows => { const sv = window.specviz; const host = document.querySelector('.sv-run .sv-stream');
  const steps = rows.map(tokens => ({tokens: tokens.map(([text, fate, parent], i) => ({id: i, position: i, text,
    fate: fate || 'accepted', parent: parent ?? i - 1}))}));
  sv.nameSpecials(steps, {special: {1: '<|im_start|>'}});
  const stream = new sv.TokenStream(host, true); stream.show(steps, steps.length);
  const range = document.createRange();
  return [...host.querySelectorAll('.sv-tok')].map(node => { range.selectNodeContents(node);
    const box = node.getBoundingClientRect(); const style = getComputedStyle(node, '::before');
    return {text: node.textContent, left: box.left, width: box.width, name: node.getAttribute('aria-label'),
      mark: style.content, frame: style.borderTopStyle, json: JSON.stringify(steps[0].tokens[1] || null)}; }); }"""
WORD = "\u0645\u0631\u062d\u0628\u0627"  # five letters, four of which join the next


def test_a_special_token_is_shown_by_its_name(open_page, shot):
    page = open_page(ready=False)
    page.wait_for_function("window.specviz?.TokenStream && document.querySelector('.sv-run .sv-tok')")
    plain, special, part = page.evaluate(DRAW, [[["a"], ["", "rejected"], ["", "resampled", 0]]])
    assert (special["text"], special["name"]) == ("", "<|im_start|> (special token), rejected")
    assert (special["mark"], special["frame"]) == ('"<|im_start|>"', "solid")
    assert "special" not in special["json"]  # the file that is saved stays what the server sent
    assert part["mark"] == '"\u2205"'
    assert plain["mark"] == "none"
    shot(page, full=False)


def test_words_from_right_to_left_read_as_written_and_hostile_characters_turn_nothing(open_page, shot):
    page = open_page(ready=False)
    page.wait_for_function("window.specviz?.TokenStream && document.querySelector('.sv-run .sv-tok')")
    (whole,) = page.evaluate(DRAW, [[[WORD]]])
    parts = page.evaluate(DRAW, [[[WORD[:3], "bonus"]], [[WORD[3:]]]])
    assert parts[0]["left"] > parts[1]["left"]
    assert sum(part["width"] for part in parts) == pytest.approx(whole["width"], abs=0.5)  # its letters join
    assert parts[0]["left"] == pytest.approx(parts[1]["left"] + parts[1]["width"], abs=0.5)  # without a gap
    split = page.evaluate(DRAW, [[["a "], [WORD[:3]], ["x", "rejected"], [WORD[3:], "resampled", 1]]])
    assert split[0]["left"] < split[3]["left"] < split[2]["left"] < split[1]["left"]
    hostile = page.evaluate(DRAW, [[["ab"], ["\u202e"], ["cd"], [" \u2067"], ["ef"], ["\u061c."], [" gh"]]])
    lefts = [token["left"] for token in hostile]
    assert lefts == sorted(lefts)
    assert [token["text"] for token in hostile] == ["ab", "\u202e", "cd", " \u2067", "ef", "\u061c.", " gh"]
    shot(page, full=False)
