"""What the load generator gets wrong on this machine, measured against known truth.

`compare` holds records against a null engine's send log, `cell` runs both for a
few seconds, `job` runs several cells, `record` is what they find, `store` keeps
it. Knows no engine that is to be measured. Importing this package imports
nothing; take what you need from its modules.
"""
