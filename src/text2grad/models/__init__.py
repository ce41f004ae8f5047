"""Where characters meet tensors: models and tokenizers, and the characters that sampled ids stand for."""
