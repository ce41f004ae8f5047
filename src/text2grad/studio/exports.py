"""What people wrote, as files for others: rows that `reward-model`, `align` and `agree` read, Label Studio, Argilla.

Enters: the store. Leaves: a file's name and its bytes. A row's spans are those that people saw and corrected; its
critique says that nothing else is to be read out of the words.
"""

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from text2grad.feedback.people import write_argilla, write_label_studio
from text2grad.runs import encode_row
from text2grad.studio import words
from text2grad.studio.store import Store

FORMATS = ("jsonl", "label_studio", "argilla")


def critique_rows(store: Store, latest: int | None = None) -> list[dict[str, Any]]:
    """One row for each critique: prompt, completion, critique, spans, annotator. Ids are COMPLETION#ANNOTATOR."""
    found = store.rows(
        "SELECT q.id, q.completion, q.author, q.version, q.time, q.body, c.body AS said, p.body AS asked, "
        "c.version AS model FROM critiques q JOIN completions c ON c.id = q.completion "
        "JOIN prompts p ON p.id = q.prompt WHERE q.deleted = 0 ORDER BY q.id DESC LIMIT ?",
        latest or 10**9,
    )
    rows = []
    for row in reversed(found):
        asked, said = (json.loads(row[name]) for name in ("asked", "said"))
        if not said["text"].strip():
            continue  # nothing was written, so there is nothing to learn from: rows want a text
        critique, alignment = words.critique_in(row)
        plain = alignment.to_json()
        rows.append(
            {
                "id": f"{row['completion']}#{row['author']}",
                "prompt": asked["prompt"],
                "completion": said["text"],
                "critique": critique.to_json(),
                **({"revision": row["revision"]} if row["revision"] else {}),
                "spans": plain["spans"],
                "missed": plain["missed"],
                "annotator": row["author"],
                **({"reference": asked["reference"]} if asked["reference"] else {}),
                "model_version": row["model"],
            }
        )
    return rows


def exported(store: Store, kind: str) -> tuple[str, bytes]:
    """(name of the file, its content). The labelling tools take two files each, so theirs is a zip archive."""
    rows = critique_rows(store)
    if kind == "jsonl":
        return "critiques.jsonl", b"".join(map(encode_row, rows))
    write = {"label_studio": write_label_studio, "argilla": write_argilla}[kind]
    # What people wrote are annotations there, no suggestions; their reviewers see who wrote what.
    with tempfile.TemporaryDirectory(prefix="text2grad-") as folder:
        write(rows, Path(folder) / f"{kind}.json", people=True)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(Path(folder).iterdir()):
                packed.write(path, path.name)
    return f"{kind}.zip", archive.getvalue()
