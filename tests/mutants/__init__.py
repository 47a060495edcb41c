"""Mutation testing: small changes of the source that some test must notice.

`by_hand` lists changes that somebody thought of, `mechanical` makes others from the syntax tree, `running`
tries each on a copy of the source with its tests, and `python -m mutants` prints the table.
"""
