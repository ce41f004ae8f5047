"""The tensor room: batches, rewards, advantages, losses and the update. No strings, no models by name, no files.

Tensors carry their shape in their names: B completions, T tokens of a completion, S tokens of prompt and completion
together, N the completion tokens of a batch laid end to end (no padding), H hidden size, V vocabulary.
"""
