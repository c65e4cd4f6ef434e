"""`draftgate serve`: an engine and the front before it.

`admission` says who goes to the engine now and who waits, `limits` what may be asked for,
`relay` passes one request on and its answer back, `front` puts these behind the routes of
OpenAI's API, `metrics` counts, `lines` puts it into words, `readings` asks the engine's
counters, and `run` starts and ends it all. docs/serve.md is its page.
"""
