"""`text2grad push`: a run's model, with its card, to a model hub.

The card was written with the model: data, critic, settings, results. The token is the one that `hf auth login` keeps,
or HF_TOKEN; HF_ENDPOINT names another hub than huggingface.co.
"""

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path

from text2grad.errors import RunError, UsageError, first_line
from text2grad.models.checks import HUB_NAME
from text2grad.secrets import found_in, hidden, remember

PARTS = ("model", "best", "adapter")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad push RUN user/name [--part model|best|adapter] [--private] [--dry-run]"
    parser.add_argument("words", nargs="*", metavar="RUN user/name", help="a finished run, and the hub's repository")
    parser.add_argument("--part", choices=PARTS, default="model", help="which folder of the run; default: model")
    parser.add_argument("--private", action="store_true", help="make the repository private, if it is new")
    parser.add_argument("--dry-run", action="store_true", help="show the card and the files, and send nothing")


def run(args: argparse.Namespace) -> int:
    if len(args.words) != 2 or "/" not in args.words[1] or not HUB_NAME.fullmatch(args.words[1]):
        raise UsageError(f"wants a run folder and a repository as user/name, got {' '.join(args.words) or 'nothing'}")
    folder = Path(args.words[0]).expanduser() / args.part
    if not folder.is_dir():
        raise RunError(
            f"{folder}: is not there. A run writes it when it is over; a stopped one: text2grad export RUN FOLDER. "
            f"best/ is there if another update was better than the last, adapter/ with save=both"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        if (found := key_in(path)) is not None:
            remember(found)
            raise RunError(f"{path}: holds what looks like a key; take it out before others can read it")
    check_base(folder / "adapter_config.json")
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} files, {size / 1e9:.2f} GB, from {folder} to {args.words[1]}", file=sys.stderr)
    if args.dry_run:
        print((folder / "README.md").read_text() if (folder / "README.md").exists() else "no card")
        return 0
    print(send(folder, args.words[1], private=args.private))
    return 0


def key_in(path: Path) -> str | None:
    """What looks like a key in a file, whatever its name; None for one that is no text: those have zero bytes."""
    with path.open("rb") as file:
        start = file.read(8192)
    utf16 = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in start and not utf16:
        return None
    return found_in(path.read_text(encoding="utf-16" if utf16 else "utf-8", errors="replace"))


def check_base(config: Path) -> None:
    """Refuse an adapter whose base others do not have."""
    if not config.is_file():
        return
    base = None
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        base = json.loads(config.read_bytes())["base_model_name_or_path"]
    if not isinstance(base, str):
        raise RunError(
            f"{config}: should be a JSON object with the name of the adapter's base as base_model_name_or_path; "
            f"write the hub's name of the base there"
        )
    if not HUB_NAME.fullmatch(base) or Path(base).exists():
        raise RunError(
            f"{config}: the adapter's base is {base}, a folder of this machine, so nobody else could load it. Push the "
            f"merged model (save=merged, or text2grad export), or write the hub's name of the base there"
        )


def send(folder: Path, repository: str, *, private: bool) -> str:
    """Upload in one commit; the address of it."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    # The base classes of the hub's HTTP error are its network library's, whichever one that is, and OSError.
    refused: tuple[type[BaseException], ...] = (*HfHubHTTPError.__bases__, LocalTokenNotFoundError, OSError, ValueError)
    remember(get_token())
    api = HfApi()
    try:
        api.create_repo(repository, private=private or None, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"text2grad: {folder.resolve().parent.name}"
        )
    except refused as problem:
        said = hidden(first_line(problem, named=True), message=True)
        raise RunError(
            f"{api.endpoint} did not take {repository} ({said}). Check the name, the network, and the token: hf auth "
            f"login, or HF_TOKEN, with the right to write"
        ) from None
    return str(done.commit_url)
