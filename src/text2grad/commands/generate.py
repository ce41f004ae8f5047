"""`text2grad generate`: a first look at what a model writes. One prompt is streamed; many are completed in batches."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from text2grad.commands import launching, parsing
from text2grad.errors import InvalidData, UsageError
from text2grad.evaluation.settings import GenerateSettings
from text2grad.runs import check_target, encode_row, write_atomic
from text2grad.types import Example

USUAL = 256
"""Tokens per completion where nothing is said, and the model has room for them."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad generate MODEL [PROMPT …] [--file FILE] [--out FILE] [key=value …]"
    words = "alias, model or run folder, .gguf file or hub id; the words of the prompt, else standard input; settings"
    parser.add_argument("words", nargs="*", metavar="MODEL PROMPT key=value", help=words)
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt, where it has = in it or begins with -")
    many = "many prompts: one per line of a text, or the rows of a .jsonl, .json, .csv or .parquet file"
    parser.add_argument("--file", metavar="FILE", help=many)
    parser.add_argument("--out", metavar="FILE", help="write rows of id, prompt and completion here as JSONL")
    parsing.add_settings(parser, GenerateSettings)


def run(args: argparse.Namespace) -> int:
    words, overrides = parsing.split_overrides(args.words)
    settings = parsing.resolve(args, GenerateSettings, overrides)
    if settings is None:
        return 0
    if not words:
        raise UsageError("wants a model; see text2grad generate --help")
    examples = prompts_of(args, words[1:], settings.columns)
    if args.out:
        check_target(args.out)
    from text2grad.models.sampling import SamplingSettings, Seed
    from text2grad.models.writer import Writer

    launching.set_threads()
    # Greedy decoding reads no temperature.
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens or USUAL, temperature=settings.temperature or 1.0, batch=settings.batch
    )
    how = settings.format, settings.device, settings.dtype
    writer = Writer.load(words[0], sampling, *how, limit_key="max_new_tokens")
    if settings.max_new_tokens is None:
        writer = writer.fitted(examples)
        if len(examples) > 1 and (limit := writer.settings.max_new_tokens) < USUAL:
            tell(f"completions have {limit} tokens at most: behind the longest prompt the model has room for no more")
    seed = Seed(settings.seed, 0, range(len(examples))) if settings.temperature else None
    if args.file is None:
        texts = [stream(writer.stream(examples[0].prompt, seed))]
    else:
        texts = [rollout.completion.text for rollout in writer(examples, seed)]
        for example, text in zip(examples, texts, strict=True):
            print(f"{example.id}: {text}\n")
    if empty := [example.id for example, text in zip(examples, texts, strict=True) if not text.strip()]:
        who = "the completion is" if args.file is None else f"{len(empty)} of {len(texts)} completions are"
        tell(f"{who} empty: the model ended its text at once. Try temperature=1, or another format (chat or plain)")
    if args.out:
        prompts = [{key: example.to_json()[key] for key in ("id", "prompt")} for example in examples]
        rows = [row | {"completion": text} for row, text in zip(prompts, texts, strict=True)]
        write_atomic(args.out, map(encode_row, rows))
    return 0


def tell(message: str) -> None:
    print(f"text2grad: {message}", file=sys.stderr)


def stream(pieces: Iterator[str]) -> str:
    """Show the pieces as they come; the line is ended whatever happens."""
    shown = ""
    try:
        for piece in pieces:
            shown += piece
            print(piece, end="", flush=True)
    finally:
        print(flush=True)
    return shown


def prompts_of(args: argparse.Namespace, words: list[str], columns: Mapping[str, str]) -> list[Example]:
    """From the words, --prompt, --file or standard input: one of them."""
    given = [name for name, there in (("words", words), ("--prompt", args.prompt), ("--file", args.file)) if there]
    if len(given) > 1:
        raise UsageError(f"the prompt is given twice, by {' and by '.join(given)}")
    if args.file:
        return prompts_in(Path(args.file).expanduser(), columns)
    text = args.prompt or " ".join(words)
    if not text:
        if sys.stdin.isatty():
            raise UsageError("wants a prompt: words after the model, --prompt, --file, or standard input")
        text = sys.stdin.read().strip("\n")
    if not text.strip():
        raise UsageError("wants a prompt, and got an empty one")
    return [Example("prompt", text)]


def prompts_in(path: Path, columns: Mapping[str, str]) -> list[Example]:
    """The prompts of a file: the lines of a text, or rows."""
    if columns or path.name.endswith((".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz")):
        from text2grad.tasks.examples import load_examples

        return load_examples(path, columns)
    try:
        # Only line ends cut: a prompt may hold form feeds and U+2028, where `splitlines` would cut, too.
        lines = [line.removesuffix("\r") for line in path.read_bytes().decode().split("\n")]
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidData(f"{path}: should be a readable file of prompts in UTF-8: {problem}") from None
    prompts = [Example(f"line-{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise InvalidData(f"{path}: should hold at least one prompt, got an empty file")
    return prompts
