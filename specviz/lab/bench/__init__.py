"""The benchmark: drafts, precisions and other engines on many prompts, interleaved, each alone on the device.

`plan` says what runs, `runner` runs it, `document` is what comes out, `figures` what is computed from it, `peers`
are the other engines. Importing this imports no torch, so that the command line starts at once.
"""
