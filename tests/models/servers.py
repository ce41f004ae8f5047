"""Real servers on loopback for the network edge: a package index with one wheel, and a hub with one model."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers on a free port of this machine until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def make_wheel(folder: Path, name: str, version: str, member: str, content: bytes) -> Path:
    """A pure-Python wheel that holds one data file."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def package_index(wheel: Path, cut: int | None = None) -> type[BaseHTTPRequestHandler]:
    """The simple repository API (PEP 503) with one project. `cut`: the connection ends after so many bytes."""
    project = wheel.name.split("-")[0].replace("_", "-")

    class Index(Quiet):
        asked: list[str] = []  # noqa: RUF012 - one server, one class

        def do_GET(self) -> None:
            self.asked.append(self.path)
            content = wheel.read_bytes()
            if self.path == f"/simple/{project}/":
                digest = hashlib.sha256(content).hexdigest()
                page = f'<a href="/files/{wheel.name}#sha256={digest}">{wheel.name}</a>'
                self.answer(200, page.encode(), Content_Type="text/html")
            elif self.path == f"/files/{wheel.name}" and cut is None:
                self.answer(200, content)
            elif self.path == f"/files/{wheel.name}":
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:cut])
                self.close_connection = True
            else:
                self.answer(404)

    return Index


def hub(name: str, folder: Path) -> type[BaseHTTPRequestHandler]:
    """The part of the hub's API that downloads use, with one public model whose files lie in `folder`."""
    commit = "0123456789abcdef0123456789abcdef01234567"

    class Hub(Quiet):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            place = self.path.partition("?")[0]
            owner_and_name = place.removeprefix("/api/models").removeprefix("/").split("/")
            if "/".join(owner_and_name[:2]) != name:
                self.answer(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            elif "/resolve/" in place:
                file = folder / place.split("/", 5)[-1]
                if not file.is_file():
                    self.answer(
                        404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found", X_Repo_Commit=commit
                    )
                    return
                body = file.read_bytes()
                self.answer(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"', X_Repo_Commit=commit)
            elif "/tree/" in place:
                self.answer(200, b"[]", Content_Type="application/json")
            else:
                files = ",".join(f'{{"rfilename": "{path.name}"}}' for path in folder.iterdir())
                text = f'{{"id": "{name}", "sha": "{commit}", "siblings": [{files}], "tags": []}}'
                self.answer(200, text.encode(), Content_Type="application/json")

    return Hub
