"""What docids are: docno ↔ docid ↔ tokens, the clash rule, codes, and the trie."""
