"""The reader as a rung: alignment as it is, with a reader where paraphrase would be. Only the study does this."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from text2grad.feedback.align import ladder
from text2grad.feedback.align.paraphrase import Prose
from text2grad.feedback.align.scorer import span_of
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import Clause
from text2grad.types import Span, Verdict

Read = Callable[[str, str], Sequence[tuple[int, int, float]]]
"""(completion, words of the critique) → places in the completion with their confidence. None: it abstains."""


@contextmanager
def reading(read: Read) -> Iterator[None]:
    """`align` asks the reader about the clauses that quotes, revisions, named lines and code leave open. Sentences that
    a clause names outright are taken at its word."""

    def spans(prose: Prose, clauses: Sequence[Clause], verdict: Verdict, *_: object) -> list[Span]:
        named = {clause: prose.named(clause.plain) for clause in clauses}
        found = [span_of(place, verdict, 0.7, clause) for clause, places in named.items() for place in places]
        left = [clause for clause in clauses if not named[clause]]
        said = [content_stems(clause.plain) for clause in left]
        for start, end, confidence in read(prose.raw, " ".join(clause.text for clause in left)) if left else ():
            stems = content_stems(prose.raw[start:end])
            cause = max(range(len(left)), key=lambda k: len(stems & said[k]))
            found.append(span_of((start, end), verdict, confidence, left[cause]))
        return found

    with mock.patch.object(ladder, "paraphrases", spans):
        yield
