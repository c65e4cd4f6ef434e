"""Which arm new requests go to: down a ladder of arms while drafts do not pay, and back up.

`breakeven` knows from which tokens per step an arm pays at a batch size, `evidence` holds
windows of one arm against that, `controller` decides for one class of traffic, and
`classes` keeps one controller for each. No I/O in any of them but the reading of a stored
result. What they are fed with comes from `draftgate.serve.routing`.
"""
