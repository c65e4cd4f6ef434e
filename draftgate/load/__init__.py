"""Sending requests and stamping what comes back.

Knows prompts, HTTP and clocks; knows no engine, metric or verdict. `requests`
builds what is sent, `client` carries one exchange, `generator` runs the closed
loop, `sse` and `parse` turn stamped bytes into records once the run is over.
"""
