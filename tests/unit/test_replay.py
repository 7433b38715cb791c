"""Runs as replay files: what is let in, what stands in the file, and the command that writes it."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from specviz.cli import app
from specviz.replay import PLACE, VIEWS, embed, open_file, replay_html, shell
from specviz.ui.recorded import ASSETS
from tests.unit.test_ui import make_run

RACE = ASSETS / "recorded" / "race.json"
HOSTILE = "</script><!--<script> \u2028\u2029 `${1+1}` \u202e \u0000 \ud800 ]]> \U0001f389"


def embedded(page: str) -> str:
    """What a browser takes for the script element's text: everything up to the first end tag."""
    return re.search(r'<script type="application/json" id="specviz-run">(.*?)</script', page, re.DOTALL | re.I)[1]


def test_the_run_comes_back_from_the_file_whatever_is_in_it():
    run = make_run(HOSTILE)
    page = replay_html(run)
    data = embedded(page)
    assert data.isascii()
    assert "<" not in data
    assert json.loads(data) == json.loads(json.dumps(run.to_dict()))
    page.encode("utf-8")


@pytest.mark.parametrize("kind", VIEWS)
def test_the_shell_asks_for_nothing_and_closes_no_element_early(kind):
    text = shell(kind)
    assert text.count(PLACE) == 1
    assert not re.search(r"""(src|href)=["']|@import|url\((?!["']?data:)""", text)
    assert "default-src 'none'" in text
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text))
    assert len(re.findall(r"<style\b", text)) == len(re.findall(r"</style>", text)) == 1


def test_embed_refuses_what_json_does_not_have():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed({"p": float("nan")})


def changed(**step) -> str:
    data = make_run().to_dict()
    data["steps"][0] |= step
    return json.dumps(data)


def raced(lanes: list | None = None, shown: int | None = None, parent: int | None = None) -> str:
    """The recorded race, changed in one place."""
    data = json.loads(RACE.read_text(encoding="utf-8"))
    lane = data["lanes"][1]
    lane["shown"] = lane["shown"] if shown is None else shown
    if parent is not None:
        lane["runs"][0]["steps"][0]["tokens"][0]["parent"] = parent
    return json.dumps(data if lanes is None else data | {"lanes": lanes})


def test_a_race_comes_back_from_its_file():
    race = open_file(RACE.read_text(encoding="utf-8"))
    page = replay_html(race)
    assert json.loads(embedded(page)) == json.loads(json.dumps(race.to_dict()))
    assert '<section class="sv-race"' in page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a run of schema"),
        ('{"schema": "specviz.race/1"}', "race lacks created_at"),
        (raced(lanes=[]), "race.lanes must be plain decoding and"),
        (raced(shown=7), r"race.lanes\[1\].shown is 7, and it has 1 runs"),
        (raced(parent=5), r"race.lanes\[1\].runs\[0\].steps\[0\].tokens\[0\].parent is 5"),
        (changed(t_end="soon"), r"steps\[0\].t_end"),
        (changed(t_start=2.0), r"run.steps\[0\] ends before it begins"),
        (changed(tokens=[make_run().to_dict()["steps"][0]["tokens"][0] | {"parent": 0}]), "parent is 0"),
        (changed(tokens=[make_run().to_dict()["steps"][0]["tokens"][0] | {"fate": "kept"}]), "fate is 'kept'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_its_place(text, words):
    with pytest.raises(ValueError, match=words):
        open_file(text)


def test_the_command_writes_beside_the_run_and_refuses_in_a_sentence(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(make_run().to_json())
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert json.loads(embedded(page)) == make_run().to_dict()
    for arguments, words in [
        ([str(tmp_path / "none.json")], "No such file"),
        ([str(tmp_path / "run.html")], "is the file itself"),
        ([str(tmp_path / "run.html"), "-o", str(tmp_path / "other.html")], "Cannot replay"),
        ([str(file), "-o", str(tmp_path / "no" / "where.html")], "No such file"),
    ]:
        result = CliRunner().invoke(app, ["replay", *arguments])
        assert result.exit_code == 2
        assert words in result.output
        assert result.output.startswith("specviz: ")
