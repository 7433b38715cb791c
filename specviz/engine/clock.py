"""Where the host and the device meet in a step: when its parts began, and the one reading of what the device computed.

On a GPU the host runs ahead of the device. Nothing in a step waits for it but that one reading; times are taken by
events on the device and looked at behind it. Held by tests/unit/test_graphs.py.
"""

from __future__ import annotations

import dataclasses
import time

import torch
from torch import Tensor

from specviz.drafters.protocol import Draw, Proposal

#: A moment: seconds, or an event in the device's own order.
Moment = "float | torch.cuda.Event"


class Clock:
    """Time of a device's work, in seconds."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> Moment:
        """This moment in the order of the work; a GPU is not waited for."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            return event
        self.wait()
        return time.perf_counter()

    def between(self, earlier: Moment, later: Moment) -> float:
        """Seconds from one moment to another; both must be over, as they are behind `on_host`."""
        if self._device.type == "cuda":
            later.synchronize()
            return earlier.elapsed_time(later) / 1000
        return later - earlier

    def wait(self) -> None:
        """Until the device has done all its work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()


def on_host(logits: Tensor, p: Tensor, proposal: Proposal) -> tuple[Tensor, Tensor, Proposal]:
    """What rule and trace look at, brought from a GPU in one copy; on other devices as it is.

    Args:
        logits, p: (nodes + 1, vocabulary) of the target. The proposal's distributions are (vocabulary,) each.
    """
    return in_one_copy(logits, p, proposal) if p.device.type == "cuda" else (logits, p, proposal)


def in_one_copy(logits: Tensor, p: Tensor, proposal: Proposal) -> tuple[Tensor, Tensor, Proposal]:
    """As `on_host`, from whatever device."""
    places: dict[int, int] = {}  # a node's first draw shares its q with others drawn from the same
    rows: list[Tensor] = []
    for tensor in (*(draw.q for draw in proposal.draws), *proposal.raw_q):
        if tensor is not None and id(tensor) not in places:
            places[id(tensor)] = len(rows)
            rows.append(tensor.to(p.device, p.dtype))
    parts = [logits.to(p.dtype), p, *([torch.stack(rows)] if rows else [])]
    host = torch.cat(parts).cpu()
    count = len(p)

    def held(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else host[2 * count + places[id(tensor)]]

    moved = dataclasses.replace(
        proposal,
        draws=[Draw(draw.node, held(draw.q)) for draw in proposal.draws],
        raw_q=[held(tensor) for tensor in proposal.raw_q],
    )
    return host[:count], host[count : 2 * count], moved
