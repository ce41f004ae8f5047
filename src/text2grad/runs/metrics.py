"""The built-in metrics: what each is called, what it means, and which way is good.

A run declares its metrics in `run.json` ("metrics"); this table serves runs that do not, and the terminal. A task or a
user adds a metric by declaring a `MetricInfo` where the metric is made, not here.
"""

from typing import Literal

from text2grad.types import MetricInfo

SHOWN = {
    "loss/mean": "loss",
    "loss/joint": "loss",
    "score/mean": "score",
    "kl/reference": "KL",
    "length/mean": "length",
    "held_out/score": "held-out",
    "held_out/loss": "held-out loss",
    "held_out/watched": "held-out loss",
    "held_out/poor_ap": "poor AP",
}
"""Metrics that the terminal shows while a run works, in this order, under short names."""

_Better = Literal["higher", "lower", "neither"]
_TABLE: tuple[tuple[str, _Better, str, str], ...] = (
    ("score/mean", "higher", "Training score", "Mean score of the completions sampled in each update."),
    ("score/std", "neither", "Spread of scores", "Standard deviation of the scores in each update."),
    ("reward/mean", "higher", "Reward", "Mean sum of a completion’s token rewards, before the KL penalty."),
    (
        "reward/residual_ratio",
        "lower",
        "Residual ratio",
        "Variance of the part of the score that spans do not explain, divided by the variance of the score. "
        "Above 1, spans add noise.",
    ),
    (
        "kl/reference",
        "neither",
        "KL to the reference",
        "Distance of the policy from the reference model, mean per token. Estimated from sampled tokens, so single "
        "updates can spike.",
    ),
    ("kl/sampling", "lower", "KL to the sampler", "Distance of the updated policy from the one that sampled."),
    ("kl/coefficient", "neither", "KL coefficient", "Weight of the KL penalty."),
    ("length/mean", "neither", "Length", "Tokens per completion. Compare it with the reward: short can be a trick."),
    ("length/truncated_frac", "lower", "Truncated", "Share of completions cut off at the length limit."),
    ("length/empty_frac", "lower", "Empty", "Share of completions without text."),
    ("text/diversity", "higher", "Diversity", "Distinct pairs of neighbouring tokens, as a share of all pairs."),
    ("text/repetition", "lower", "Repetition", "Share of tokens in four-token sequences that occur again."),
    (
        "critic/unscored_frac",
        "lower",
        "Unscored",
        "Share of completions that the critic did not score. They are not trained on.",
    ),
    (
        "critic/without_baseline_frac",
        "lower",
        "Without a baseline",
        "Share of scored completions that no other completion of the same prompt can be compared with.",
    ),
    ("align/missed_frac", "lower", "Missed quotes", "Share of quotes in critiques that were not found in the text."),
    ("align/labelled_frac", "neither", "Labelled tokens", "Share of tokens inside a good or a poor span."),
    ("locality/good", "higher", "Change of good tokens", "Mean change of log-prob per update, in good spans."),
    ("locality/poor", "lower", "Change of poor tokens", "Mean change of log-prob per update, in poor spans."),
    ("locality/unlabelled", "neither", "Change of other tokens", "Mean change of log-prob per update, outside spans."),
    ("loss/mean", "lower", "Training loss", "Mean loss per trained token."),
    ("loss/joint", "lower", "Training loss", "Weighted sum of the reward model’s losses."),
    ("loss/span", "lower", "Span loss", "Loss of the verdicts per token."),
    ("loss/worth", "lower", "Score loss", "Loss of the predicted scores."),
    ("loss/language", "lower", "Critique loss", "Loss of the written critique, per token."),
    ("loss/policy", "neither", "Policy loss", "Clipped policy-gradient loss, per token."),
    ("loss/value", "lower", "Value loss", "Squared error of the value head, per token."),
    ("loss/entropy", "neither", "Entropy", "Entropy of the policy, per token."),
    ("update/clip_frac", "neither", "Clipped", "Share of tokens whose probability ratio was clipped."),
    ("update/grad_norm", "neither", "Gradient norm", "Before clipping; mean over the steps of an update."),
    ("update/steps", "neither", "Optimizer steps", "Steps taken per update."),
    ("update/stopped_early", "neither", "Stopped early", "1 where the KL limit ended the update before its last step."),
    ("update/skipped", "lower", "Skipped steps", "Steps skipped because their gradients were not finite."),
    ("update/tokens", "neither", "Tokens", "Trained tokens per update."),
    ("update/learning_rate", "neither", "Learning rate", "Of the optimizer, after the schedule."),
    ("held_out/score", "higher", "Held-out score", "Mean score on examples that are not trained on."),
    (
        "held_out/critic_score",
        "higher",
        "Held-out score by the training critic",
        "Mean score that the critic of the training gives to held-out completions.",
    ),
    ("held_out/std", "neither", "Spread of held-out scores", "Standard deviation of the held-out scores."),
    ("held_out/length", "neither", "Held-out length", "Tokens per held-out completion."),
    ("held_out/truncated_frac", "lower", "Held-out truncated", "Share of held-out completions cut off."),
    ("held_out/diversity", "higher", "Held-out diversity", "Distinct token pairs in held-out completions."),
    ("held_out/repetition", "lower", "Held-out repetition", "Repeated four-token sequences in held-out completions."),
    ("held_out/unscored_frac", "lower", "Held-out unscored", "Share of held-out completions without a score."),
    ("held_out/loss", "lower", "Held-out loss", "Mean loss per token on examples that are not trained on."),
    (
        "held_out/watched",
        "lower",
        "Held-out loss",
        "The reward model’s loss on prompts that it is not trained on. The weights with the lowest value are kept.",
    ),
    ("held_out/joint", "lower", "Held-out joint loss", "Weighted sum of the held-out losses."),
    ("held_out/span", "lower", "Held-out span loss", "Loss of the verdicts per held-out token."),
    ("held_out/worth", "lower", "Held-out score loss", "Loss of the predicted scores on held-out completions."),
    ("held_out/language", "lower", "Held-out critique loss", "Loss of the written critique, per held-out token."),
    ("held_out/accuracy", "higher", "Held-out accuracy", "Share of held-out tokens whose likeliest verdict is right."),
    (
        "held_out/poor_ap",
        "higher",
        "Average precision on poor tokens",
        "Held-out average precision; 1.0 ranks every poor token first.",
    ),
    (
        "held_out/good_ap",
        "higher",
        "Average precision on good tokens",
        "Held-out average precision; 1.0 ranks every good token first.",
    ),
    ("held_out/poor_f1", "higher", "F1 on poor tokens", "Best held-out F1 over all thresholds."),
    ("held_out/good_f1", "higher", "F1 on good tokens", "Best held-out F1 over all thresholds."),
)

METRICS = {key: MetricInfo(title, meaning, better) for key, better, title, meaning in _TABLE}
