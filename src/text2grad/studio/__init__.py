"""The studio: people write critiques in a browser, and a model learns from them while they watch.

`server` answers the page and knows no torch; `worker` is a process of its own that holds the model; `store` is what
both share, so that a reload, a second tab or a kill loses nothing.
"""
