"""One thin module per command: settings → call → exit status."""
