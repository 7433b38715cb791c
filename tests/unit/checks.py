"""What must hold of every trace, whatever happened in it, and a few runs that many tests start from."""

import dataclasses

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.lab.table import TableModel
from specviz.settings import DRAFTS, TREES
from specviz.trace import EMITTED, Run, Step

PROMPT = "The target checks what the draft proposes"
#: Every draft type that proposes something.
SPECULATIVE = tuple(draft for draft in DRAFTS if draft != "none")
CHAINS = tuple(draft for draft in SPECULATIVE if draft not in TREES)
#: (draft, rule) of every combination that exists.
PAIRS = [(draft, rule) for draft in SPECULATIVE for rule in ("rejection", "block", "coupled")
         if not (rule == "block" and draft in TREES)]  # fmt: skip
DRAFT_FATES = {"accepted", "rejected", "discarded", "trimmed"}


def plain(engine: Engine, prompt=PROMPT, **options) -> Run:
    return engine.generate(prompt, draft="none", **options)


def cycle(period: int = 3, vocabulary: int = 8) -> TableModel:
    """Says 0 1 2 0 1 2 ...: n-grams are always right once it has come round."""
    logits = torch.full((vocabulary,) * 3, -5.0)
    for token in range(vocabulary):
        logits[:, token, (token + 1) % period] = 5.0
    return TableModel(logits)


def numbered(length: int) -> list[int]:
    """A prompt of so many ids that repeats after fifty."""
    return [(7 * i) % 50 + 3 for i in range(length)]


def comparable(run: Run) -> Run:
    """The run without what may differ between two equal runs: its id and its times."""
    timeless = [dataclasses.replace(s, t_start=0, t_end=0, draft_s=0, verify_s=0, host_s=0) for s in run.steps]
    summary = dataclasses.replace(run.summary, tokens_per_second=None)
    return dataclasses.replace(run, id="", created_at="", prefill=None, steps=timeless, summary=summary)


def check_counts(run: Run) -> None:
    """Ids, texts, positions, fates, tree and numbers of a trace agree with one another."""
    emitted = [token for step in run.steps for token in step.tokens if token.fate in EMITTED]
    assert [token.id for token in emitted] == run.output.token_ids
    assert "".join(token.text for token in emitted) == run.output.text
    length = len(run.prompt.token_ids)
    assert [token.position for token in emitted] == list(range(length, length + len(emitted)))
    assert run.summary.tokens == len(emitted)
    accepted = tested = 0
    for index, step in enumerate(run.steps):
        assert step.index == index
        assert step.cache_before == length - 1
        path = check_tree(step, length)
        check_fates(step, path, run.settings["verify"])
        check_numbers(step, path, run.settings["verify"])
        length += len(step.emitted)
        assert step.cache_after == length - 1
        assert step.t_end - step.t_start == pytest.approx(step.draft_s + step.verify_s + step.host_s)
        accepted += len(path)
        tested += len(path) + any(token.fate == "resampled" for token in step.tokens)
    assert run.summary.acceptance_rate.value == (pytest.approx(accepted / tested) if tested else None)


def check_tree(step: Step, length: int) -> list[int]:
    """Parents make a tree, positions are depths in it; the accepted nodes, a path from its root."""
    depths, children = [], set()
    for i, token in enumerate(step.tokens):
        assert -1 <= token.parent < i
        depths.append(0 if token.parent == -1 else depths[token.parent] + 1)
        assert token.position == length + depths[i]
        if i < step.gamma:
            assert token.fate in DRAFT_FATES
            assert (token.parent, token.id) not in children  # equal draws are one node
            children.add((token.parent, token.id))
    path = [i for i, token in enumerate(step.tokens) if token.fate == "accepted"]
    assert [step.tokens[i].parent for i in path] == [-1, *path][:-1]
    own = step.tokens[step.gamma :]
    assert len(own) <= 1
    for token in own:
        assert token.fate in ("resampled", "bonus", "sampled")
        assert token.parent == ([-1, *path][-1])
    assert [token.id for token in step.emitted] == [step.tokens[i].id for i in path] + [token.id for token in own]
    return path


def check_fates(step: Step, path: list[int], rule: str) -> None:
    """Each level of the path was tried in the order of its nodes, and nothing off the path was tested."""
    drafted, own = step.tokens[: step.gamma], step.tokens[step.gamma :]
    kept = [-1, *path]
    for level, parent in enumerate(kept):
        siblings = [i for i, token in enumerate(drafted) if token.parent == parent]
        fates = [drafted[i].fate for i in siblings]
        if level < len(path):
            at = siblings.index(path[level])
            assert fates == ["rejected"] * at + ["accepted"] + ["discarded"] * (len(fates) - at - 1)
        elif not own:  # the cut came before the target's own token
            assert set(fates) <= {"trimmed"}
        else:
            assert set(fates) <= {"rejected"}
            assert own[0].fate == ("resampled" if fates else "bonus" if drafted else "sampled")
    for token in drafted:
        if token.parent not in kept:
            behind_cut = not own and token.position >= step.tokens[0].position + len(path)
            assert token.fate == ("trimmed" if behind_cut else "discarded")


def check_numbers(step: Step, path: list[int], rule: str) -> None:
    """p, q, u and accept_prob explain the fates under each rule."""
    drafted, own = step.tokens[: step.gamma], step.tokens[step.gamma :]
    for token in own:
        assert (token.q, token.u, token.accept_prob, token.overlap) == (None,) * 4
    if any(token.p is None for token in step.tokens):  # not traced
        return
    for token in drafted:
        assert token.source
        assert 0 <= token.confidence <= 1
        for value in (token.p, token.q, token.accept_prob, token.overlap):
            assert 0 <= value <= 1 + 1e-6
    us = [token.u for token in drafted if token.u is not None]
    assert len(set(us)) == len(us)
    assert all(0 < u < 1 for u in us)
    if rule == "coupled":
        assert not us
    elif rule == "block":
        check_block(step, path)
    else:
        check_rejection(step)


def check_rejection(step: Step) -> None:
    left: dict[int, float | None] = {}  # behind each parent: the mass of p not yet refused; None where q was drawn
    for token in step.tokens[: step.gamma]:
        first = token.parent not in left
        rest = left.setdefault(token.parent, 1.0)
        if token.fate in ("accepted", "rejected"):
            assert (token.u < token.accept_prob) == (token.fate == "accepted")
            if first:
                assert token.accept_prob == pytest.approx(min(1.0, token.p / token.q))
            elif token.q == 1 and rest is not None and rest > 1e-3:
                assert token.accept_prob == pytest.approx(token.p / rest, rel=1e-3, abs=1e-4)
            left[token.parent] = None if rest is None or token.q != 1 else rest - token.p
        elif token.fate == "discarded":
            assert token.u is None


def check_block(step: Step, path: list[int]) -> None:
    drafted = step.tokens[: step.gamma]
    assert all(token.u is not None for token in drafted)
    longest = max((i + 1 for i, token in enumerate(drafted) if token.u < token.accept_prob), default=0)
    whole = len(step.tokens) > step.gamma
    assert longest == len(path) if whole else longest >= len(path)
    weight = 1.0
    for token in drafted:
        weight = min(1.0, weight * token.p / token.q)
        if weight in (0.0, 1.0):
            assert token.accept_prob == weight
    if drafted:
        assert drafted[-1].accept_prob == pytest.approx(weight)
