"""What happened in a step, as `Token`s: reads the verdict and the distributions, decides nothing, draws nothing.

Held by tests/unit/test_decode.py (ids are identical with tracing on and off; counts reconcile).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specviz.drafters import Proposal
from specviz.engine.cache import ROOT
from specviz.engine.text import REPLACEMENT, TextStream
from specviz.engine.verify import Verdict, overlap
from specviz.trace import Token, TopRow

#: Most rows of `top_p`, `top_q` and `residual`.
TOP_MAX = 8


class StepRecorder:
    """Builds the tokens of each step.

    Args:
        decode: ids to text.
        trace: without it tokens carry position, id, text, fate and parent only.
        top: how many of the best tokens of p, q and residual each token lists (0 to 8).
    """

    def __init__(self, decode: Callable[[list[int]], str], trace: bool, top: int) -> None:
        self._decode, self._trace, self._top = decode, trace, top

    def tokens(
        self,
        position: int,
        logits: Tensor,
        p: Tensor,
        proposal: Proposal,
        verdict: Verdict,
        kept_ids: Sequence[int],
        kept_texts: Sequence[str],
        text: TextStream,
    ) -> list[Token]:
        """The draft tokens in order, then the target's own token unless the cut came before it.

        Args:
            position: absolute position of the first draft token.
            logits, p: (nodes + 1, vocabulary) of the target, unwarped and warped.
            kept_ids, kept_texts: what the step adds to the output.
            text: the detokeniser as it stood before the step; used up.
        """
        depths = proposal.depths()
        fates = _fates(depths, verdict, len(kept_ids))
        texts = self._texts(proposal, verdict.path[: len(kept_ids)], kept_texts, text)
        tokens = [
            Token(position + depths[i], token, texts[i], fates[i], proposal.parents[i])
            for i, token in enumerate(proposal.ids)
        ]
        accepted = len(verdict.path)
        if len(kept_ids) > accepted:
            last = verdict.path[-1] if verdict.path else ROOT
            fate = "sampled" if not proposal.ids else "resampled" if verdict.refused_last(proposal) else "bonus"
            tokens.append(Token(position + accepted, verdict.token, kept_texts[-1], fate, last))
        if self._trace:
            self._add_numbers(tokens, p, proposal, verdict)
        if self._trace and self._top:
            self._add_tops(tokens, logits, p, proposal, verdict)
        return tokens

    def _texts(self, proposal: Proposal, kept: Sequence[int], kept_texts: Sequence[str], text: TextStream) -> list[str]:
        """Text of each draft token: as shown for the kept ones, as it would have been for the others."""
        shown = dict(zip(kept, kept_texts, strict=False))
        streams: dict[int, TextStream] = {ROOT: text}
        texts = []
        for node, (token, parent) in enumerate(zip(proposal.ids, proposal.parents, strict=True)):
            # The last child may use its parent's detokeniser up; a chain copies none.
            only = parent not in proposal.parents[node + 1 :]
            stream = streams.pop(parent) if only else streams[parent].fork()
            added = stream.push(token)
            streams[node] = stream
            texts.append(shown.get(node, added))
        return texts

    def _add_numbers(self, tokens: list[Token], p: Tensor, proposal: Proposal, verdict: Verdict) -> None:
        overlaps = overlap(p, proposal, verdict)
        for i, token in enumerate(tokens[: len(proposal.ids)]):
            token.p, token.q, token.accept_prob = verdict.p[i], verdict.q[i], verdict.accept_prob[i]
            token.u = verdict.u[i]
            token.overlap, token.confidence, token.source = overlaps[i], proposal.confidence[i], proposal.source[i]
        if len(tokens) > len(proposal.ids):
            tokens[-1].p = verdict.token_p

    def _add_tops(self, tokens: list[Token], logits: Tensor, p: Tensor, proposal: Proposal, verdict: Verdict) -> None:
        raw_p = logits.float().softmax(-1)
        drafted, qs = len(proposal.ids), proposal.q
        for i, token in enumerate(tokens):
            row = token.parent + 1
            token.top_p = self._rows(p[row], raw_p[row])
            if i < drafted and qs[i] is not None:
                token.top_q = self._rows(qs[i], proposal.raw_q[i].to(p.device))
            if i == drafted and verdict.residual is not None:
                token.residual = self._rows(verdict.residual, raw_p[row])

    def _rows(self, probs: Tensor, raw: Tensor) -> list[TopRow]:
        # At temperature 0 all but one of the warped probabilities are 0: the unwarped ones decide the order.
        best = torch.topk(probs + raw * 1e-6, min(self._top, len(probs))).indices
        values, raws = probs[best].tolist(), raw[best].tolist()
        return [[token, self._alone(token), values[k], raws[k]] for k, token in enumerate(best.tolist())]

    def _alone(self, token: int) -> str:
        """Text of a token by itself; empty for a part of a character, which cannot be shown."""
        text = self._decode([token])
        return "" if REPLACEMENT in text else text


def _fates(depths: Sequence[int], verdict: Verdict, kept: int) -> list[str]:
    """Fate of each draft token, when the step keeps `kept` tokens of the accepted path and the target's own.

    Everything behind the cut is trimmed, whatever its test said; refused tokens are not behind a cut that falls on
    their own correction.
    """
    accepted, refused = set(verdict.path), set(verdict.refused)
    cut = kept if kept <= len(verdict.path) else len(depths)
    fates = []
    for node, depth in enumerate(depths):
        if depth >= cut:
            fates.append("trimmed")
        elif node in accepted:
            fates.append("accepted")
        else:
            fates.append("rejected" if node in refused else "discarded")
    return fates
