"""Any critic by its name, reward models included. torch is imported when a reward model is opened."""

from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.settings import CriticSettings
from text2grad.models.reward import open_critic


def critic(name: str, settings: CriticSettings | None = None) -> Critic:
    """A critic by its name, as `text2grad annotate --critic` takes it: `reference`, `support`, `code`, `openai:MODEL`,
    `module:object`, the folder of a reward model, or `first(…)`, `merge(…)`, `weighted(…)` of these.

    >>> critic("reference")(["Name it."], ["The crane."], reference=["The crane."])[0].score
    1.0
    """
    return critic_named(name, settings or CriticSettings(), open_critic)
