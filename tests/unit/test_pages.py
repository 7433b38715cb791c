"""Large pages: only whole ones of anonymous memory are asked for, and what is held stays as it is."""

import torch

from specviz.engine.pages import PAGE, WORTH_IT, _ranges, use_large_pages

MAPS = """\
555500000000-555500800000 rw-p 00000000 00:00 0                          [heap]
7f0000100000-7f0000500000 rw-p 00000000 00:00 0
7f0001000000-7f0001800000 r--p 00000000 08:01 42                         /usr/lib/a file.so
7f0002000000-7f0002800000 rw-p 00000000 08:01 42                         /usr/lib/a file.so
7f0003000000-7f0003001000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0                          [stack]
7f0004000000-7f0004800000 rw-s 00000000 00:05 7                          /dev/zero (deleted)
"""


def test_only_whole_pages_of_memory_without_a_file_are_asked_for():
    assert _ranges(MAPS) == [(0x555500000000, 0x555500800000), (0x7F0000200000, 0x7F0000400000)]


def test_what_is_held_stays_as_it_is():
    numbers = torch.arange(8 * PAGE // 8)
    copy = numbers.clone()
    assert use_large_pages(WORTH_IT - 1) == 0
    assert use_large_pages(WORTH_IT) >= 0
    assert use_large_pages(WORTH_IT) % PAGE == 0  # it may be asked again
    assert torch.equal(numbers, copy)
