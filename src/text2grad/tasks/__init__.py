"""Tasks: a data set's examples, the critic that judges them and the measure that a verdict is given in.

One family of modules a data set. Characters only: no tokenizer, no tensor.
"""
