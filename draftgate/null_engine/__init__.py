"""A scripted OpenAI-compatible server whose every send time is known.

It stands in for an engine where a load generator is tested or calibrated:
`script` says what it does, `engine` does it, `sendlog` tells when it truly did.
It never stands in for an engine in a measurement of an engine. Importing this
package imports nothing; take what you need from its modules.
"""
