"""Errors meant for a person: each message is one sentence that says what was wrong and what to do.

The boundary (page, command line, Python caller) shows the message as it is; nothing else needs to know more
than the class. Held by tests/unit/test_settings.py and tests/unit/test_cli.py.
"""

from __future__ import annotations


class SpecvizError(Exception):
    """Something the user can act on; `str(error)` is the sentence to show."""


class SettingsError(SpecvizError, ValueError):
    """A decoding setting or a prompt that cannot be used; names the offending value."""


class ModelError(SpecvizError):
    """A model that cannot be found, fetched, loaded or paired."""


class NumericsError(SpecvizError, ArithmeticError):
    """A model returned logits that are not finite."""
