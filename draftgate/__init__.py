"""Statistical regression gates for language-model servers with speculative decoding.

Importing this package does nothing but define its version; start with
`draftgate.specs` (what to run) and `draftgate.records` (what was observed).
"""

__version__ = "0.1.0"
