"""Collections (documents, queries and graded judgements) and the runs that answer their queries.

`formats` reads and writes files; `pydocs` is the collection that comes with the package; `links` and
`wikipedia` build collections from links between documents; `prepare` builds the paper's collections.
"""
