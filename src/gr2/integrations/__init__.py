"""GR² inside other toolkits: each file needs that toolkit, and an error names the extra that installs it.

| file | |
|---|---|
| text_search.py | a model that answers with the texts of documents; what retrievers share |
| terrier.py | a PyTerrier transformer |
| langchain.py | a LangChain retriever |
| haystack.py | a Haystack component |
| irds.py | collections as data sets of ir_datasets |
"""
