"""Acceptance by kind of traffic, against history.

`judge` turns two measurements into a verdict, `baseline` keeps the accepted
ones. Measuring is in `draftgate.measure`; neither knows pytest or a server.
"""
