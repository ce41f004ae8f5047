"""Metrics by name: `metrics=[rouge, bleu, f1, support, grounded, similarity:MODEL]`, and `[code]` for programs.

Enters: rollouts. Leaves: `Metric`s, as a task declares its own. ROUGE and BLEU are those of the libraries that papers
use (extra `eval`); a completion is compared with every reference that its example has: the column `references`, a list
in `reference`, or the reference itself. Length, repetition and copying are measured always, see `metrics.py`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from text2grad.errors import ConfigError, MissingExtra
from text2grad.feedback.critics.grounded import f1, passages_of
from text2grad.feedback.critics.support import Labelled, asked_of, source_of
from text2grad.feedback.critics.words import prompt_text, texts_in
from text2grad.feedback.settings import GroundedSettings
from text2grad.plugins import find_plugin
from text2grad.tasks.task import Mean, Metric, mean_of
from text2grad.types import Example, Rollout

ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
"""Our key → the library's."""


def metrics_named(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of these names. A user's own is `package.module:object`: a `Metric`, or a list of them."""
    metrics: list[Metric] = []
    for name in names:
        kind, _, option = name.partition(":")
        if kind == "similarity":
            metrics.append(similarity(option))
            continue
        made = find_plugin(name, METRICS, "metrics")
        made = made() if name in METRICS else made
        metrics += [made] if isinstance(made, Metric) else made
        if wrong := next((each for each in metrics if not isinstance(each, Metric)), None):
            raise ConfigError(f"metrics: {name} should be a text2grad.Metric, or a list of them, got {wrong!r:.60}")
    return tuple(metrics)


def references_of(example: Example) -> tuple[str, ...]:
    """Everything that the completion may be compared with."""
    several = example.columns.get("references") or example.columns.get("reference") or example.reference
    return tuple(text for text in texts_in(several, "references", 0) if text.strip())


def rouge() -> list[Metric]:
    """ROUGE-1, ROUGE-2 and ROUGE-L: F-measures with stemming, of the reference that is nearest by each."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer
    except ModuleNotFoundError as problem:
        raise MissingExtra.of(problem, "metrics=rouge") or problem from None
    # The library's own words. Stemming is most of its time, and the same references come at each evaluation.
    tokenizer = DefaultTokenizer(use_stemmer=True)
    tokenizer.tokenize = lru_cache(maxsize=16384)(tokenizer.tokenize)
    tokenizer._stemmer.stem = lru_cache(maxsize=65536)(tokenizer._stemmer.stem)
    scorer = RougeScorer(list(ROUGE.values()), tokenizer=tokenizer)

    @lru_cache(maxsize=4096)
    def scores(references: tuple[str, ...], text: str) -> dict[str, Any]:
        found: dict[str, Any] = scorer.score_multi(references, text)
        return found

    def measure(key: str, example: Example, text: str) -> float | None:
        references = references_of(example)
        return float(scores(references, text)[ROUGE[key]].fmeasure) if references else None

    help = "F-measure of the overlap with the nearest reference, by rouge-score with stemming."
    return [Metric(key, f"ROUGE-{key[-1].upper()}", help, "higher", mean_of(partial(measure, key))) for key in ROUGE]


def bleu() -> Metric:
    """Of the whole set, so it has no value for a single completion."""
    try:
        import sacrebleu
    except ModuleNotFoundError as problem:
        raise MissingExtra.of(problem, "metrics=bleu") or problem from None

    def measure(rollouts: Sequence[Rollout]) -> float | None:
        pairs = [(rollout.completion.text, references_of(rollout.example)) for rollout in rollouts]
        pairs = [(text, references) for text, references in pairs if references]
        if not pairs:
            return None
        most = max(len(references) for _, references in pairs)
        # One stream per place; None where an example has fewer references than another.
        streams = [[found[place] if place < len(found) else None for _, found in pairs] for place in range(most)]
        return float(sacrebleu.corpus_bleu([text for text, _ in pairs], streams).score) / 100

    return Metric("bleu", "BLEU", "Corpus BLEU over all references, by sacrebleu, from 0 to 1.", "higher", measure)


def similarity(model: str) -> Metric:
    """The cosine of two sentence embeddings. It is not BERTScore."""
    if not model:
        raise ConfigError("metrics: similarity should name a sentence-embedding model: similarity:FOLDER, or a hub id")
    loaded: list[Any] = []

    def each(rollouts: Sequence[Rollout]) -> list[float | None]:
        if not loaded:
            from text2grad.models.embed import Embedder

            loaded.append(Embedder(model, longest=256))
        wanted = [references_of(rollout.example) for rollout in rollouts]
        texts = dict.fromkeys([rollout.completion.text for rollout in rollouts] + [t for some in wanted for t in some])
        rows = dict(zip(texts, loaded[0](list(texts)), strict=True))
        return [
            max((float(rows[rollout.completion.text] @ rows[text]) for text in some), default=None)
            for rollout, some in zip(rollouts, wanted, strict=True)
        ]

    help = f"Cosine of the embeddings of completion and nearest reference, by {Path(model).name}."
    return Metric("similarity", "Embedding similarity", help, "higher", Mean(each))


def support() -> list[Metric]:
    """Names and numbers that the source does not have, counted as the critic `support` finds them."""

    def count(example: Example, text: str) -> tuple[int, int]:
        """(those that the source lacks, all)."""
        prompt = prompt_text(example.prompt)
        given = example.columns.get("passages") or example.columns.get("source") or prompt
        return counted(tuple(texts_in(given, "passages", 0)), prompt, text)

    @lru_cache(maxsize=16384)
    def counted(passages: tuple[str, ...], prompt: str, text: str) -> tuple[int, int]:
        # Words of the prompt are never unsupported: a question may use words that the passages do not.
        source, asked = source_of(passages), asked_of(prompt, passages)
        found = Labelled(text)
        facts = [
            found.words[index]
            for first, end in found.sentences
            for index in range(first, end)
            if found.words[index].content
            if found.words[index].start in found.numbers or found.is_name(index, first)
        ]
        return sum(not source.has(found, word) and not asked.has(found, word) for word in facts), len(facts)

    def share(example: Example, text: str) -> float:
        lacking, every = count(example, text)
        return lacking / every if every else 0.0

    absolute = "Number of names and numbers that are not in the source, per completion."
    relative = "Of a completion's names and numbers, those that are not in the source; 0 where it has none."
    return [
        Metric("unsupported", "Unsupported facts", absolute, "lower", mean_of(lambda *given: count(*given)[0])),
        Metric("unsupported_share", "Unsupported share", relative, "lower", mean_of(share)),
    ]


def grounded() -> Metric:
    """Sentences that the passages bear out, as the critic `grounded` finds them."""
    doubt = GroundedSettings().doubt

    def share(example: Example, text: str) -> float | None:
        given = example.columns.get("passages") or example.columns.get("source")
        known = passages_of(tuple(texts_in(given, "passages", 0)))
        clauses = list(known.clauses(Labelled(text)))
        if not known.words or not clauses:
            return None if not known.words else 0.0
        sentences = {clause.sentence for clause in clauses}
        return 1 - len({clause.sentence for clause in clauses if clause.doubt >= doubt}) / len(sentences)

    help = "Share of a completion's sentences without a clause that the passages do not say, by the critic grounded."
    return Metric("supported_sentences", "Supported sentences", help, "higher", mean_of(share))


def overlap() -> Metric:
    """Words in common with the nearest reference."""

    def best(example: Example, text: str) -> float | None:
        references = references_of(example)
        return max((f1(Labelled(text).words, Labelled(each).words) for each in references), default=None)

    help = "F-measure of content words, stemmed, with the nearest reference."
    return Metric("f1", "F1 against the reference", help, "higher", mean_of(best))


def code() -> list[Metric]:
    """pass@k, and what can be read from programs."""
    from text2grad.evaluation.code import metrics

    return metrics()


METRICS: dict[str, Callable[[], Metric | list[Metric]]] = {
    "rouge": rouge,
    "bleu": bleu,
    "f1": overlap,
    "support": support,
    "grounded": grounded,
    "code": code,
}
"""Name → what makes its metrics; `similarity:MODEL` names its model."""
