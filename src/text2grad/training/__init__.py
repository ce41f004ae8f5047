"""The training loops: reinforcement learning, supervised start, reward model, preferences."""
