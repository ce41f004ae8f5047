"""Critics: who writes the critiques. Programs, models behind a server, people, and combinations of them."""

from text2grad.feedback.critics.protocol import Critic, Critiques, Prompt, ask, ask_now

__all__ = ["Critic", "Critiques", "Prompt", "ask", "ask_now"]
