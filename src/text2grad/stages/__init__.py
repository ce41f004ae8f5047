"""One module per command: read files, call the verbs of the other rooms, write files."""
