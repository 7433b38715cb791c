"""The report page holds all it needs, asks nobody, and hostile names in it stay text."""

import json
import re

import pytest

from specviz.errors import SettingsError
from specviz.ui.report import render_report, report_data, write_report
from tests.unit.made_bench import made_bench


@pytest.fixture(scope="module")
def hostile():
    bench = made_bench()
    bench.target = "</script><script>alert(1)</script>/*SCRIPTS*/"
    return bench


def test_the_page_is_whole_and_fetches_nothing(hostile):
    page = render_report(hostile)
    assert "plotly.js v" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"'](?!data:)", page.split("<script>")[0])
    assert "/*STYLES*/" not in page
    assert "/*DATA*/" not in page


def test_data_cannot_end_their_element(hostile):
    page = render_report(hostile)
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    assert json.loads(text) == report_data(hostile.to_dict())
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 3


def test_the_page_carries_figures_and_no_single_results(hostile):
    data = report_data(hostile.to_dict())
    assert not {"results", "readings"} & data["bench"].keys()
    assert [one["name"] for one in data["figures"]][:2] == ["speed", "speedup"]
    assert data["bench"]["summary"] == hostile.to_dict()["summary"]


def test_a_file_that_cannot_be_written_is_refused(hostile, tmp_path):
    with pytest.raises(SettingsError, match="Cannot write"):
        write_report(hostile, tmp_path / "nowhere" / "page.html")
