"""The one loop: draft, verify, decide, for every draft type, plain decoding included (its gamma is 0).

Prefill feeds every prompt token but the last; each step feeds the pending token and the draft in one target pass,
so no step is special and after each the target's cache holds all of the context but the last token. A step asks
for its forward passes instead of running them, so one run alone and many side by side are the same code.
Held by tests/unit/test_decode.py and tests/unit/test_batch.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from specviz.drafters import Ask, Drafter, Proposal, Start
from specviz.drafters.protocol import Passes, drive
from specviz.engine.cache import ROOT, KVCache, Pass
from specviz.engine.clock import Clock, on_host
from specviz.engine.gamma import Gamma
from specviz.engine.model import LanguageModel
from specviz.engine.noise import Noise
from specviz.engine.record import StepRecorder
from specviz.engine.sampling import Warp
from specviz.engine.text import StopTexts, TextStream
from specviz.engine.verify import Rule, Verdict
from specviz.errors import SettingsError, SpecvizError
from specviz.settings import Settings
from specviz.summary import summarise
from specviz.trace import Calibration, Run, Step


@dataclass(slots=True)
class Kept:
    """What a step adds to the output after the cuts: ids, their texts, and why the run ends here, if it does."""

    ids: list[int]
    texts: list[str]
    finish_reason: str | None


@dataclass(slots=True)
class Parts:
    """What a run is put together from.

    `drafter_of` makes a drafter by its type (for a change of draft in mid-run); `gamma_of` makes, from a calibration or
    None, what chooses gamma and the calibration it goes by, measuring it when it must; `decode` turns ids into text;
    `recorder` builds the trace of each step and draws no random numbers; `cancelled` is asked between draft and
    verify and between steps, true ends the run within the step; `claim` takes the engine's memory, for texts of so
    many rows, ending the run that had it, and gives a function that is false once another run has taken it in turn.
    """

    target: LanguageModel
    drafter: Drafter
    drafter_of: Callable[[str], Drafter]
    rule: Rule
    noise: Noise
    gamma_of: Callable[[Calibration | None], tuple[Gamma, Calibration | None]]
    decode: Callable[[list[int]], str]
    recorder: StepRecorder
    cancelled: Callable[[], bool]
    claim: Callable[[int], Callable[[], bool]]
    gamma: Gamma | None = None


class Decoding:
    """One run in progress: iterate it for `Step`s; `run` fills up as it goes and is whole at the end.

    Args:
        run: header of the run; its prompt's token ids are decoded from.
        settings: checked settings; `eos_token_id` is what ends the run (empty when nothing does).
        parts: what it is put together from.
    """

    def __init__(self, run: Run, settings: Settings, parts: Parts) -> None:
        self.run = run
        self._settings, self._parts = settings, parts
        self._drafter, self._next_drafter = parts.drafter, None
        self._begun: dict[str, Drafter] = {}  # by type: one that comes back catches up and needs no new memory
        self._said: set[str] = set()  # types whose warning is in the trace
        self._context = list(run.prompt.token_ids)
        self._warp = Warp(settings, len(self._context))
        self._text = TextStream(parts.decode)
        self._stop = StopTexts(settings.stop)
        self._eos = frozenset(settings.eos_token_id or ())
        self._cache: KVCache | None = None
        self._clock = Clock(parts.target.device)
        self._zero = 0.0
        self._was_cancelled = False
        self._steps = self._loop()

    def __iter__(self) -> Iterator[Step]:
        return self._steps

    def __next__(self) -> Step:
        return next(self._steps)

    @property
    def capacity(self) -> int:
        """The most rows a text's memory must hold."""
        longest = len(self.run.prompt.token_ids) + self._settings.max_new_tokens
        return min(self._parts.target.max_positions, longest) + self._drafter.width(self._settings.gamma) + 1

    def swap(self, draft: str) -> None:
        """Let another draft type propose from the next step on; the trace says so.

        Raises:
            SettingsError: it cannot be used here, or the run was begun as plain decoding or with adaptive gamma.
        """
        if self._settings.adaptive:
            raise SettingsError(
                "Adaptive gamma goes by the costs of one draft type, so the draft cannot be changed in mid-run: "
                "begin the run with a fixed gamma."
            )
        if not self._settings.gamma:
            raise SettingsError("This run was begun as plain decoding, with gamma 0: begin it with a draft type.")
        known = {**self._begun, self._drafter.type: self._drafter}  # before the first step nothing has begun
        self._next_drafter = known.get(str(draft)) or self._parts.drafter_of(draft)

    def close(self) -> None:
        """End the run here; what was decoded stays in `run`."""
        self._steps.close()
        self.run.output.finish_reason = self.run.output.finish_reason or "cancelled"

    # inference_mode must decorate the generator: a `with` around a yield would leak into the consumer's thread.
    @torch.inference_mode()
    def _loop(self) -> Iterator[Step]:
        with self._ending():
            self.prepare()
            is_current = self._parts.claim(self.capacity)
            self.begin()
            while self.run.output.finish_reason is None:
                if not is_current():
                    raise SpecvizError(
                        "This run has ended because the same engine began another one; use one engine per run."
                    )
                step = drive(self._step())
                if step is not None:
                    yield step

    def rest(self) -> Passes[Run]:
        """All steps to the end, for runs that go in step with others; `begin` comes first."""
        with self._ending():
            while self.run.output.finish_reason is None:
                yield from self._step()
        return self.run

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """However a run ends, it says why and is summed up."""
        output = self.run.output
        try:
            yield
        except (GeneratorExit, KeyboardInterrupt):
            output.finish_reason = output.finish_reason or "cancelled"
            raise
        except BaseException:
            output.finish_reason = "error"
            raise
        finally:
            self.run.summary = summarise(self.run.steps, self.run.calibration)

    def prepare(self) -> None:
        """Measure what has to be known before the run: it may use the memory, so it comes before the claim."""
        if self._parts.gamma is None:
            self._parts.gamma, self.run.calibration = self._parts.gamma_of(self.run.calibration)

    def begin(self) -> None:
        """Read the prompt; the memory must have been claimed."""
        parts, start = self._parts, time.perf_counter()
        self._cache = parts.target.open(self.capacity)
        self._cache.prefill(self._context[:-1], self._cancelled)
        self._clock.wait()
        middle = time.perf_counter()
        if not self._cancelled():
            self._begin_drafter()
        self._clock.wait()
        self._zero = time.perf_counter()
        self.run.prefill.target_s, self.run.prefill.draft_s = middle - start, self._zero - middle

    def _begin_drafter(self) -> None:
        self._begun[self._drafter.type] = self._drafter
        self._drafter.begin(Start(self._context, self.capacity, self._cache, self._cancelled))

    def _step(self) -> Passes[Step | None]:
        """Draft, verify, decide, record; None when the run was cancelled before the target read the draft."""
        parts, start = self._parts, time.perf_counter()
        if self._is_over():
            return None
        context, before = self._context, self._cache.length
        drafting = self._clock.now()
        proposal = yield from self._propose()
        drafted = self._clock.now()
        if self._is_over():
            return None

        parents = None if proposal.is_chain else [ROOT, *(parent + 1 for parent in proposal.parents)]
        (logits,) = yield [Pass(self._cache, [context[-1], *proposal.ids], parents)]
        verified = self._clock.now()

        p = self._warp(logits, context, [(), *proposal.paths()])
        logits, p, proposal = on_host(logits, p, proposal)
        verdict = parts.rule(p, proposal, parts.noise, len(context))
        text_before = self._text.fork()
        kept = self._cut([*(proposal.ids[node] for node in verdict.path), verdict.token])
        tokens = parts.recorder.tokens(len(context), logits, p, proposal, verdict, kept.ids, kept.texts, text_before)
        self._commit(kept, verdict, parents is None)
        self._learn(proposal, verdict, len(kept.ids))
        draft_s, verify_s = self._clock.between(drafting, drafted), self._clock.between(drafted, verified)
        end = time.perf_counter()
        step = Step(
            index=len(self.run.steps),
            t_start=start - self._zero,
            t_end=end - self._zero,
            draft_s=draft_s,
            verify_s=verify_s,
            host_s=end - start - draft_s - verify_s,
            gamma=len(proposal.ids),
            draft=self._drafter.type,
            cache_before=before,
            cache_after=self._cache.length,
            note=proposal.note,
            tokens=tokens,
        )
        self.run.steps.append(step)
        return step

    def _cancelled(self) -> bool:
        """Once true always true: what a cancelled run has read is not whole."""
        self._was_cancelled = self._was_cancelled or bool(self._parts.cancelled())
        return self._was_cancelled

    def _is_over(self) -> bool:
        if self._cancelled():
            self.run.output.finish_reason = "cancelled"
        return self.run.output.finish_reason is not None

    def _propose(self) -> Passes[Proposal]:
        """The draft of this step; nothing is asked of a drafter when gamma is 0."""
        swapped = self._change_drafter()
        room = self._parts.target.max_positions - len(self._context) - 1
        gamma, why = self._parts.gamma.choose(room)
        proposal = Proposal(note=why)
        if gamma:
            ask = Ask(self._context, gamma, self._warp, self._parts.noise, self._settings.min_confidence)
            proposal = yield from self._drafter.propose(ask)
            proposal.note = "; ".join(filter(None, [why, self._warning(), proposal.note])) or None
        proposal.note = "; ".join(filter(None, [swapped, proposal.note])) or None
        return proposal

    def _warning(self) -> str | None:
        """The drafter's own warning, the first time it drafts."""
        if self._drafter.type in self._said:
            return None
        self._said.add(self._drafter.type)
        return self._drafter.warning

    def _change_drafter(self) -> str | None:
        """Put in the drafter that `swap` left; the note for the trace."""
        if self._next_drafter in (None, self._drafter):
            return None
        note = f"draft changed from {self._drafter.type} to {self._next_drafter.type}"
        self._drafter, self._next_drafter = self._next_drafter, None
        if self._drafter.type not in self._begun:
            self._begin_drafter()
        return note

    def _learn(self, proposal: Proposal, verdict: Verdict, emitted: int) -> None:
        depth = max(proposal.depths(), default=-1) + 1
        accepted = min(len(verdict.path), emitted)
        # Behind a cut nothing was tested, as far as the run's figures go.
        tested = accepted + (emitted > len(verdict.path) and verdict.refused_last(proposal))
        self._parts.gamma.learn(depth, len(proposal.ids), tested, accepted, emitted)

    def _cut(self, ids: Sequence[int]) -> Kept:
        """Length limit, then EOS, then stop text; before anything is committed, counted or shown."""
        settings, output = self._settings, self.run.output
        total = len(self._context)
        reason = None
        if len(ids) >= settings.max_new_tokens - len(output.token_ids):
            ids, reason = ids[: settings.max_new_tokens - len(output.token_ids)], "length"
        elif total + len(ids) >= self._parts.target.max_positions:
            reason = "context"
        kept = Kept([], [], None)
        for token in ids:
            kept.ids.append(token)
            if token in self._eos:
                # A character that EOS left incomplete belongs to the token before it; where that stands in an earlier
                # step, which has been handed out, EOS carries it.
                rest = self._text.flush()
                if kept.texts:
                    kept.texts[-1] += rest
                kept.texts.append("" if kept.texts else rest)
                kept.finish_reason = "eos"
                return kept
            text = self._text.push(token)
            if reason and len(kept.ids) == len(ids):
                text += self._text.flush()
            end = self._stop.cut(text)
            kept.texts.append(text if end is None else text[:end])
            if end is not None:
                kept.finish_reason = "stop"
                return kept
        kept.finish_reason = reason
        return kept

    def _commit(self, kept: Kept, verdict: Verdict, is_chain: bool) -> None:
        output, before = self.run.output, len(self._context) - 1
        self._context += kept.ids
        output.token_ids += kept.ids
        output.text += "".join(kept.texts)
        output.finish_reason = kept.finish_reason
        if is_chain:
            self._cache.rollback(before + len(kept.ids))
        else:
            self._cache.keep([0, *(node + 1 for node in verdict.path[: len(kept.ids) - 1])])
