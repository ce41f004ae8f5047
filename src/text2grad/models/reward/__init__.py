"""The reward model: one backbone, a language head that writes the critique, a span head that judges every token."""

from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.settings import LearnedSettings


def open_critic(name: str, options: LearnedSettings) -> Critic:
    """The reward model in this folder, as a critic. torch is imported when one is opened."""
    from text2grad.models.reward.critic import RewardCritic

    return RewardCritic(name, options)
