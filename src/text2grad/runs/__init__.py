"""Files that survive a kill, the run folder made of them, and what a person sees while a run works."""

from text2grad.runs.folder import (
    MACHINE,
    Closable,
    Jsonl,
    RunFolder,
    alive,
    aside,
    cache_folder,
    check_target,
    encode_row,
    no_space_named,
    write_atomic,
)
from text2grad.runs.jsonl import parse_object, read_jsonl, read_rows, scan

__all__ = [
    "MACHINE",
    "Closable",
    "Jsonl",
    "RunFolder",
    "alive",
    "aside",
    "cache_folder",
    "check_target",
    "encode_row",
    "no_space_named",
    "parse_object",
    "read_jsonl",
    "read_rows",
    "scan",
    "write_atomic",
]
