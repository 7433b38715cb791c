"""The Hub's refusals as sentences, and that a model already here makes no request. No test here uses the network."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from specviz.errors import ModelError
from specviz.zoo import hub, load_pair, locate
from tests.tiny import tiny_folder

network_error = errors.HfHubHTTPError.__mro__[1]


def answer(kind, status):
    library = __import__(network_error.__module__.split(".")[0])
    response = library.Response(status, request=library.Request("GET", "http://hub.invalid/x"))
    return kind("no", response=response)


@pytest.fixture
def fake_hub(monkeypatch, tmp_path):
    """The Hub's client, in which nothing is here and every download ends as the test sets it."""

    class Hub:
        outcome: object = None
        calls: list = []  # noqa: RUF012 - one instance

        def download(self, repo, *, local_files_only=False, allow_patterns=None, tqdm_class=None, **rest):
            self.calls.append((repo, local_files_only, tuple(allow_patterns)))
            if local_files_only:
                raise errors.LocalEntryNotFoundError("not here")
            if isinstance(self.outcome, Exception):
                raise self.outcome
            bar = tqdm_class(desc="Downloading bytes", total=0, initial=0, unit="B", unit_scale=True)
            bar.total = 1000
            bar.update(600)
            bar.set_description("x")
            bar.refresh()
            files = tqdm_class(desc="Fetching 3 files", total=3)
            files.update(1)
            return str(self.outcome)

    fake = Hub()
    fake.calls = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return fake


@pytest.mark.parametrize(
    ("outcome", "part"),
    [
        (lambda: answer(errors.GatedRepoError, 403), "is gated: accept its licence"),
        (lambda: answer(errors.RepositoryNotFoundError, 401), "There is no model 'owner/thing'"),
        (lambda: answer(errors.RevisionNotFoundError, 404), "There is no model 'owner/thing'"),
        (lambda: answer(errors.HfHubHTTPError, 503), "cannot be reached: check the network"),
        (lambda: errors.LocalEntryNotFoundError("x"), "cannot be reached: check the network"),
        (lambda: errors.OfflineModeIsEnabled("x"), "cannot be reached"),
        (lambda: network_error("x") if network_error is not OSError else OSError("x"), "cannot be reached"),
        (lambda: ConnectionResetError("x"), "cannot be reached"),
        (lambda: OSError(28, "No space left on device"), "The disk is full: owner/thing does not fit into"),
    ],
)
def test_each_refusal_is_one_sentence_that_names_the_model(fake_hub, outcome, part):
    fake_hub.outcome = outcome()
    with pytest.raises(ModelError) as caught:
        load_pair(target="owner/thing", device="cpu")
    assert part in str(caught.value)
    assert "owner/thing" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_offline_by_choice_says_so(fake_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fake_hub.outcome = errors.LocalEntryNotFoundError("x")
    with pytest.raises(ModelError, match="owner/thing is not on this machine and HF_HUB_OFFLINE is set"):
        load_pair(target="owner/thing", device="cpu")


def test_a_name_that_can_be_none():
    with pytest.raises(ModelError, match="'bad name!' is neither a folder nor a model name"):
        load_pair(target="bad name!", device="cpu")


def test_a_download_tells_its_bytes_and_loads(fake_hub, tmp_path):
    fake_hub.outcome = tiny_folder(tmp_path / "snapshot", "gpt2")
    events = []
    loaded = load_pair(target="owner/thing", device="cpu", progress=events.append)
    assert (loaded.target.name, loaded.target.source) == ("thing", "owner/thing")
    assert [(event.done, event.total) for event in events if event.stage == "Downloading thing"] == [(600, 1000)]
    assert not any("*.bin" in pattern for pattern in fake_hub.calls[-1][2])


def test_pickled_weights_only_where_there_are_no_others(fake_hub, tmp_path):
    folder = tiny_folder(tmp_path / "snapshot", "gpt2")
    (folder / "model.safetensors").unlink()
    fake_hub.outcome = folder
    with pytest.raises(ModelError, match=r"owner/thing cannot be used: its repository has no model.safetensors"):
        hub.snapshot("owner/thing")
    assert [call[2][-1] for call in fake_hub.calls[1:]] == ["*.safetensors", "pytorch_model*.bin"]


def test_a_model_that_is_here_makes_no_request(monkeypatch, tmp_path):
    cache = tmp_path / "hub" / "models--owner--thing"
    tiny_folder(cache / "snapshots" / "0123456789abcdef0123456789abcdef01234567", "gpt2")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "_download", lambda *_: pytest.fail("asked the network"))
    assert load_pair(target="owner/thing", device="cpu").target.name == "thing"


def test_locate_gives_a_hub_pairs_snapshot(fake_hub, tmp_path):
    fake_hub.outcome = tiny_folder(tmp_path / "snapshot", "gpt2")
    assert locate("gpt2-large") == (tmp_path / "snapshot", None)
    assert fake_hub.calls[0][0] == "openai-community/gpt2-large"
