"""The one loop: draft, verify, decide, for every draft type, plain decoding included (its gamma is 0).

Prefill feeds every prompt token but the last; each step feeds the pending token and the draft in one target pass,
so no step is special and after each the target's cache holds all of the context but the last token.
Held by tests/unit/test_decode.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from specviz.drafters import Drafter
from specviz.engine.model import LanguageModel
from specviz.engine.record import StepRecorder
from specviz.engine.sampling import Uniforms, Warp
from specviz.engine.text import StopTexts, TextStream
from specviz.engine.verify import RULES
from specviz.errors import SpecvizError
from specviz.settings import Settings
from specviz.summary import summarise
from specviz.trace import Run, Step


@dataclass(slots=True)
class Kept:
    """What a step adds to the output after the cuts: ids, their texts, and why the run ends here, if it does."""

    ids: list[int]
    texts: list[str]
    finish_reason: str | None


class Decoding:
    """One run in progress: iterate it for `Step`s; `run` fills up as it goes and is whole at the end.

    Args:
        run: header of the run; its prompt's token ids are decoded from.
        settings: checked settings; `eos_token_id` is what ends the run (empty when nothing does).
        target: the target model, free for this run.
        drafter: what proposes.
        decode: ids to text.
        recorder: builds the trace of each step; draws no random numbers.
        cancelled: asked between draft and verify and between steps; true ends the run within the step.
        claim: takes the engine's caches for this run, ending the one that had them; gives a function that is false
            once another run has taken them in turn.
    """

    def __init__(
        self,
        run: Run,
        settings: Settings,
        target: LanguageModel,
        drafter: Drafter,
        decode: Callable[[list[int]], str],
        recorder: StepRecorder,
        cancelled: Callable[[], bool],
        claim: Callable[[], Callable[[], bool]],
    ) -> None:
        self.run = run
        self._settings, self._target, self._drafter = settings, target, drafter
        self._recorder, self._cancelled, self._claim = recorder, cancelled, claim
        self._context = list(run.prompt.token_ids)
        self._warp = Warp(settings, len(self._context))
        self._uniforms = Uniforms(settings.seed)
        self._text = TextStream(decode)
        self._stop = StopTexts(settings.stop)
        self._eos = frozenset(settings.eos_token_id or ())
        self._rule = RULES[settings.verify]
        self._steps = self._loop()

    def __iter__(self) -> Iterator[Step]:
        return self._steps

    def __next__(self) -> Step:
        return next(self._steps)

    def close(self) -> None:
        """End the run here; what was decoded stays in `run`."""
        self._steps.close()
        self.run.output.finish_reason = self.run.output.finish_reason or "cancelled"

    # inference_mode must decorate the generator: a `with` around a yield would leak into the consumer's thread.
    @torch.inference_mode()
    def _loop(self) -> Iterator[Step]:
        run = self.run
        is_current = self._claim()
        try:
            self._prefill()
            clock_zero = time.perf_counter()
            while run.output.finish_reason is None:
                if self._cancelled():
                    run.output.finish_reason = "cancelled"
                    break
                if not is_current():
                    raise SpecvizError(
                        "This run has ended because the same engine began another one; use one engine per run."
                    )
                step = self._step(clock_zero)
                if step is not None:
                    run.steps.append(step)
                    yield step
        except (GeneratorExit, KeyboardInterrupt):
            run.output.finish_reason = run.output.finish_reason or "cancelled"
            raise
        except BaseException:
            run.output.finish_reason = "error"
            raise
        finally:
            run.summary = summarise(run.steps)

    def _prefill(self) -> None:
        capacity = min(
            self._target.max_positions, len(self._context) + self._settings.max_new_tokens + self._settings.gamma + 1
        )
        start = time.perf_counter()
        self._target.reset(capacity)
        self._target.prefill(self._context[:-1], self._cancelled)
        self._synchronise()
        middle = time.perf_counter()
        if not self._cancelled():
            self._drafter.begin(self._context, capacity, self._cancelled)
        self._synchronise()
        self.run.prefill.target_s, self.run.prefill.draft_s = middle - start, time.perf_counter() - middle

    def _step(self, clock_zero: float) -> Step | None:
        """Draft, verify, decide, record; None when the run was cancelled in between."""
        start = time.perf_counter()
        context, before = self._context, self._target.length
        gamma = min(self._settings.gamma, self._target.max_positions - len(context) - 1)
        u_draft, u_accept, u_last = self._uniforms.step(gamma)
        drafting = time.perf_counter()
        proposal = self._drafter.propose(context, gamma, u_draft, self._warp)
        self._synchronise()
        drafted = time.perf_counter()
        if self._cancelled():
            self.run.output.finish_reason = "cancelled"
            return None

        logits = self._target.forward([context[-1], *proposal.ids])
        self._synchronise()
        verified = time.perf_counter()

        p = self._warp(logits, context, proposal.ids)
        verdict = self._rule(p, proposal.q, proposal.ids, u_accept, u_last)
        text_before = self._text.fork()
        kept = self._cut([*proposal.ids[: verdict.accepted], verdict.token])
        tokens = self._recorder.tokens(
            len(context), logits, p, proposal, verdict, u_accept, kept.ids, kept.texts, text_before
        )
        self._commit(kept)
        end = time.perf_counter()
        return Step(
            index=len(self.run.steps),
            t_start=start - clock_zero,
            t_end=end - clock_zero,
            draft_s=drafted - drafting,
            verify_s=verified - drafted,
            host_s=(end - verified) + (drafting - start),
            gamma=len(proposal.ids),
            draft=self._drafter.type,
            cache_before=before,
            cache_after=self._target.length,
            note=proposal.note,
            tokens=tokens,
        )

    def _cut(self, ids: Sequence[int]) -> Kept:
        """Length limit, then EOS, then stop text; before anything is committed, counted or shown."""
        settings, output = self._settings, self.run.output
        total = len(self._context)
        reason = None
        if len(ids) >= settings.max_new_tokens - len(output.token_ids):
            ids, reason = ids[: settings.max_new_tokens - len(output.token_ids)], "length"
        elif total + len(ids) >= self._target.max_positions:
            reason = "context"
        kept = Kept([], [], None)
        for token in ids:
            kept.ids.append(token)
            if token in self._eos:
                self._flush_into(kept.texts)
                kept.texts.append("")
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

    def _flush_into(self, texts: list[str]) -> None:
        """A character that EOS left incomplete belongs to the token before it, which may stand in an earlier step."""
        rest = self._text.flush()
        if not rest:
            return
        if texts:
            texts[-1] += rest
        else:
            self.run.steps[-1].emitted[-1].text += rest
            self.run.output.text += rest

    def _commit(self, kept: Kept) -> None:
        output = self.run.output
        self._context += kept.ids
        output.token_ids += kept.ids
        output.text += "".join(kept.texts)
        output.finish_reason = kept.finish_reason
        self._target.rollback(len(self._context) - 1)

    def _synchronise(self) -> None:
        """Wait for the device, so that the time between two readings is the time of the work between them."""
        if self._target.device.type == "cuda":
            torch.cuda.synchronize(self._target.device)
        elif self._target.device.type == "mps":
            torch.mps.synchronize()
