"""Where the models run and in which precision, decided by asking the machine.

Invariant: `auto` never picks a precision the hardware only emulates. Held by tests/unit/test_zoo_hardware.py.
"""

from __future__ import annotations

import difflib
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.errors import SettingsError

if TYPE_CHECKING:
    import torch

DTYPES = ("auto", "float32", "bfloat16", "float16")
#: Weights only, on the CPU's fast path.
QUANTISED = ("int8", "int4")
DEVICES = ("auto", "cpu", "cuda", "mps")
_FAST_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is Arm's name for it


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` is cuda, else mps, else cpu.

    Raises:
        SettingsError: an unknown device, or one this machine does not have.
    """
    import torch

    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    text = str(name)
    if text == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if have[kind]))
    kind, _, index = text.partition(":")
    if kind not in have or (index and not index.isdigit()):
        raise SettingsError(_unknown("device", text, DEVICES))
    count = (torch.cuda.device_count() if kind == "cuda" else 1) if have[kind] else 0
    if int(index or 0) >= count:
        here = ", ".join(kind for kind in have if have[kind])
        raise SettingsError(
            f"Device {text!r} is not on this machine, as PyTorch sees it: choose auto or one of {here}."
        )
    return torch.device(text)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The precision called `name`; `auto` is bfloat16 where `device` is fast at it, else float16 (GPU), float32 (CPU).

    Raises:
        SettingsError: an unknown precision.
    """
    import torch

    text = str(name).removeprefix("torch.")
    if text not in DTYPES:
        raise SettingsError(_unknown("precision", text, DTYPES))
    if text != "auto":
        return getattr(torch, text)
    if device.type == "cuda":
        native = torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= 8
        return torch.bfloat16 if native else torch.float16
    if device.type == "mps":
        return torch.float16
    return torch.bfloat16 if _FAST_BF16 & cpu_flags() else torch.float32


def choose_precision(name: str, device: torch.device) -> str:
    """The precision called `name`, such as bfloat16 or int4; `auto` as for `choose_dtype`.

    Raises:
        SettingsError: an unknown precision, or one that `device` cannot compute in.
    """
    text = str(name).removeprefix("torch.")
    if text in QUANTISED:
        if device.type != "cpu":
            raise SettingsError(f"Precision {text} is for the CPU: on {device.type} choose one of {', '.join(DTYPES)}.")
        return text
    if text not in DTYPES:
        raise SettingsError(_unknown("precision", text, (*DTYPES, *QUANTISED)))
    return str(choose_dtype(text, device)).removeprefix("torch.")


@cache
def cpu_flags() -> frozenset[str]:
    """The processor's instruction sets that matter here, by the names Linux gives them; empty where nobody can tell."""
    if sys.platform.startswith("linux"):
        return _linux_flags(Path("/proc/cpuinfo"))
    if sys.platform == "darwin" and platform.machine() == "arm64":
        asked = subprocess.run(
            ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"], capture_output=True, text=True, check=False
        )
        return frozenset({"bf16"} if asked.stdout.strip() == "1" else ())
    import torch

    # Windows: only PyTorch knows, under names that are not public and may go.
    probes = {"avx512_bf16": "_is_avx512_bf16_supported", "amx_bf16": "_is_amx_tile_supported"}
    return frozenset(flag for flag, probe in probes.items() if getattr(torch.cpu, probe, bool)())


def _linux_flags(cpuinfo: Path) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2] for line in lines if line.lower().startswith(("flags", "features")))
    return frozenset(next(found, "").split())


def _unknown(what: str, value: str, choices: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(value, choices, 1)
    hint = f"did you mean {near[0]!r}? The choices are" if near else "choose one of"
    return f"Unknown {what} {value!r}: {hint} {', '.join(choices)}."
