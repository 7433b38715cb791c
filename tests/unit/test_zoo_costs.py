"""What steps cost is measured once on a machine, kept on disk for what it is about, and never trusted blindly."""

import json
import shutil
from pathlib import Path

import pytest

from specviz.engine import calibrate
from specviz.engine import engine as engine_module
from specviz.settings import Settings
from specviz.trace import Calibration
from specviz.zoo.costs import CostFiles
from tests.conftest import tiny_engine

COSTS = Calibration(c=0.3, v=[1.0, 1.1], h=0.05, h0=0.02, unit_s=0.001)
KEY = {"target": "a", "draft": "ngram", "threads": 2}


@pytest.fixture
def counted(monkeypatch):
    """How often costs were measured."""
    calls, measure = [], engine_module.calibrate

    def counting(*given):
        calls.append(given[1].draft)
        return measure(*given)

    monkeypatch.setattr(engine_module, "calibrate", counting)
    return calls


def engine_with(folder, **options):
    engine = tiny_engine(**options)
    engine.costs = CostFiles(folder)
    return engine


def test_costs_come_back_as_they_were(tmp_path):
    files = CostFiles(tmp_path / "new")
    assert files.read(KEY) is None
    files.write(KEY, COSTS)
    assert files.read(KEY) == COSTS
    assert files.read(KEY | {"threads": 3}) is None
    assert [(found.key, found.calibration) for found in files.all()] == [(KEY, COSTS)]
    assert not list((tmp_path / "new").glob(".*"))


def test_a_later_engine_does_not_measure_again(tmp_path, counted):
    settings = Settings.of(draft="ngram")
    first = engine_with(tmp_path).calibration(settings)
    assert engine_with(tmp_path).calibration(settings) == first
    assert counted == ["ngram"]


@pytest.mark.parametrize(
    "change",
    [{"candidates": 3}, {"exit_layer": 1}, {"draft": "ngram-smoothed"}],
    ids=["candidates", "exit_layer", "draft"],
)
def test_another_draft_has_other_costs(tmp_path, counted, change):
    engine = engine_with(tmp_path)
    engine.calibration(Settings.of(draft="ngram"))
    engine.calibration(Settings.of(**{"draft": "ngram", **change}))
    assert len(counted) == 2


def test_threads_device_precision_and_versions_are_in_the_key(tmp_path, counted, monkeypatch):
    settings = Settings.of(draft="ngram")
    engine_with(tmp_path).calibration(settings)
    for name, value in {"name": "another cpu", "dtype": "int4", "path": "fast-cpu"}.items():
        engine = engine_with(tmp_path)
        setattr(engine.device, name, value)
        engine.calibration(settings)
    monkeypatch.setattr("torch.get_num_threads", lambda: 7)
    engine_with(tmp_path).calibration(settings)
    monkeypatch.setattr("torch.__version__", "9.9")
    engine_with(tmp_path).calibration(settings)
    monkeypatch.setattr("specviz.__version__", "9.9")
    engine_with(tmp_path).calibration(settings)
    engine_with(tmp_path, layers=3).calibration(settings)
    assert len(counted) == 8


def test_costs_of_other_code_are_not_found(tmp_path, counted, monkeypatch):
    settings = Settings.of(draft="ngram")
    engine_with(tmp_path).calibration(settings)
    monkeypatch.setattr(engine_module, "code", lambda: "of tomorrow")
    engine_with(tmp_path).calibration(settings)
    assert len(counted) == 2


def test_the_code_is_that_of_engine_and_drafters(tmp_path):
    package = Path(calibrate.__file__).parents[1]
    for part in ("engine", "drafters", "ui"):
        shutil.copytree(package / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    assert calibrate.code_of(tmp_path) == calibrate.code()
    (tmp_path / "ui" / "build.py").write_text("")
    assert calibrate.code_of(tmp_path) == calibrate.code()
    seen = {calibrate.code()}
    for part, name in (("engine", "decode.py"), ("drafters", "ngram.py"), ("drafters", "new.py")):
        with open(tmp_path / part / name, "a") as file:
            file.write("# changed\n")
        seen.add(calibrate.code_of(tmp_path))
    assert len(seen) == 4


def test_fresh_measures_again_and_keeps_that(tmp_path, counted):
    settings = Settings.of(draft="ngram")
    engine = engine_with(tmp_path)
    engine.calibration(settings)
    renewed = engine.calibration(settings, fresh=True)
    assert engine_with(tmp_path).calibration(settings) == renewed
    assert len(counted) == 2


@pytest.mark.parametrize("damage", ["", "{", '{"schema": "other"}', "costs"])
def test_a_damaged_file_is_measured_anew_with_a_warning(tmp_path, counted, damage):
    settings = Settings.of(draft="ngram")
    engine_with(tmp_path).calibration(settings)
    (file,) = tmp_path.iterdir()
    if damage == "costs":
        data = json.loads(file.read_text())
        data["calibration"]["c"] = -1.0
        damage = json.dumps(data)
    file.write_text(damage)
    with pytest.warns(UserWarning, match=r"cannot be used .* measured anew"):
        engine_with(tmp_path).calibration(settings)
    assert len(counted) == 2
    assert CostFiles(tmp_path).all()  # and is whole again


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="measured at every start"):
        CostFiles(tmp_path / "file").write(KEY, COSTS)


def test_measuring_reports_how_far_it_is(tmp_path):
    shares = []
    engine_with(tmp_path).calibration(Settings.of(draft="ngram"), progress=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1


def test_the_cache_folder_is_where_the_weights_are(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    CostFiles().write(KEY, COSTS)
    assert len(list((tmp_path / "calibrations").glob("*.json"))) == 1
