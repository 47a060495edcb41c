"""Mutation testing: small changes of the source that some test must notice.

`by_hand` lists changes that somebody thought of, `mechanical` makes others from the syntax tree, `running` runs
the tests of each on a changed copy of the source, and `python -m mutants` prints the table.
"""
