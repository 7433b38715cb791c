"""Trains the drafts in assets/drafts/: the target writes chats, a head learns from its features, both are measured.

`specviz.train` knows drafters and engine; neither knows it. The command line is `python -m specviz train`.
"""
