"""How documents get docids: the schemes by name (`registry`) and the quality of what they make (`health`)."""
