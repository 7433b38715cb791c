"""Model pairs and how their weights are found, fetched and loaded."""

from specviz.zoo.cache import Progress, cache_dir
from specviz.zoo.hardware import choose_device, choose_dtype, choose_precision
from specviz.zoo.loader import LoadedModel, LoadedPair, folders, load_pair, locate, prepare
from specviz.zoo.pairs import DEFAULT_PAIR, PAIRS, Pair

__all__ = [
    "DEFAULT_PAIR",
    "PAIRS",
    "LoadedModel",
    "LoadedPair",
    "Pair",
    "Progress",
    "cache_dir",
    "choose_device",
    "choose_dtype",
    "choose_precision",
    "folders",
    "load_pair",
    "locate",
    "prepare",
]
