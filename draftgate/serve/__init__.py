"""`draftgate serve`: engines and the front before them.

`admission` says who goes to an engine now and who waits, `limits` what may be asked for,
`relay` passes one request on and its answer back, `front` puts these behind the routes of
OpenAI's API, `fleet` keeps the engines alive, `fallback` says which arm is in force,
`routing` joins the two, `metrics` counts, `lines` puts it into words, `counting` asks the
engines' counters, and `run` starts and ends it all. docs/serve.md is its page.
"""
