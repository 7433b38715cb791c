"""The race: plain decoding against one to three drafts, each alone on the device, recorded so that it can be
replayed on one clock. Held by tests/unit/test_race.py."""

from specviz.lab.race.document import SCHEMA, Divergence, Lane, Race, RaceProgress, Spread
from specviz.lab.race.entrants import DRAFTS_MAX, PLAIN, ROUNDS_MAX, DraftSpec, entrants
from specviz.lab.race.judge import first_divergence, top2_margin
from specviz.lab.race.runner import WARMUP_TOKENS, RaceCancelled, race, stream_race, touch

__all__ = [
    "DRAFTS_MAX",
    "PLAIN",
    "ROUNDS_MAX",
    "SCHEMA",
    "WARMUP_TOKENS",
    "Divergence",
    "DraftSpec",
    "Lane",
    "Race",
    "RaceCancelled",
    "RaceProgress",
    "Spread",
    "entrants",
    "first_divergence",
    "race",
    "stream_race",
    "top2_margin",
    "touch",
]
