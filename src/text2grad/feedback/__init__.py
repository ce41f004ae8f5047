"""The language room: critiques, quotes and spans, in characters only. No torch here."""
