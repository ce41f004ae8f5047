"""Critiques inside other people's trainers: neutral rows, and one small module per engine. Pages: docs/engines/.

`rows` is the hand-over that needs no engine at all. `scorer` judges what an engine sampled, `advantages` runs our
estimators on what comes back. The modules named after an engine import that engine, and nothing else imports them; but
for `vllm` and `servers`, which ask vLLM over HTTP and make it the sampler of our own training (docs/scaling.md).
"""
