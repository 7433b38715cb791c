"""Device and precision by asking the machine."""

from __future__ import annotations

import pytest
import torch

from specviz.errors import SettingsError
from specviz.zoo import choose_device, choose_dtype, hardware

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_is_cuda_else_mps_else_cpu(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == expected


def test_devices_that_are_not_here_or_nowhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=r"Device 'cuda' is not on this machine.*choose auto or one of cpu"):
        choose_device("cuda")
    for name in ("gpu", "cuda:x", "", "meta"):
        with pytest.raises(SettingsError, match=f"Unknown device '{name}'"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(SettingsError, match="'cuda:1' is not on this machine"):
        choose_device("cuda:1")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"avx2", "avx512f", "avx512_bf16"}, torch.bfloat16),
        ({"amx_bf16"}, torch.bfloat16),
        ({"asimd", "bf16"}, torch.bfloat16),
        ({"avx2", "avx512f"}, torch.float32),
        (set(), torch.float32),
    ],
)
def test_a_cpu_gets_bfloat16_only_with_units_for_it(monkeypatch, flags, expected):
    monkeypatch.setattr(hardware, "cpu_flags", lambda: frozenset(flags))
    assert choose_dtype("auto", CPU) == expected


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])
def test_a_gpu_gets_bfloat16_only_when_native(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    assert choose_dtype("auto", torch.device("cuda")) == expected


def test_mps_gets_float16():
    assert choose_dtype("auto", torch.device("mps")) == torch.float16


def test_a_precision_by_name():
    assert [choose_dtype(name, CPU) for name in ("float32", "bfloat16", "float16")] == [
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ]
    with pytest.raises(SettingsError, match="Unknown precision 'float23': did you mean 'float32'"):
        choose_dtype("float23", CPU)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512_bf16 sha_ni\nbogomips: 1\n", "avx512_bf16"),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", "bf16"),
    ],
)
def test_linux_flags_of_both_families(tmp_path, text, flag):
    (tmp_path / "cpuinfo").write_text(text)
    assert flag in hardware._linux_flags(tmp_path / "cpuinfo")


def test_no_cpuinfo_is_no_flags(tmp_path):
    assert hardware._linux_flags(tmp_path / "none") == frozenset()
