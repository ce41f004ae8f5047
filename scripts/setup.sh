#!/bin/sh
# Make the virtual environment and install the package with the tested set. usage: [PYTHON=…] setup.sh VENV
set -eu
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" && command -v "$PYTHON" && return
        echo "PYTHON=$PYTHON should be a Python 3.11 or newer that runs here" >&2
        exit 1
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        new_enough "$name" && command -v "$name" && return
    done
    echo "text2grad needs Python 3.11 or newer, and none was found. Install one, or name it: make demo PYTHON=/path/to/python3.12" >&2
    exit 1
}

python=$(find_python)
echo "Setting up $venv with $("$python" --version) (a few minutes the first time; PyTorch is large)"

# Made anew: one of another place (a copied checkout), of another Python than the one asked for, or without pip.
usable() {
    [ "$(cat "$venv/.place" 2>/dev/null)" = "$(pwd -P)" ] && new_enough "$venv/bin/python" &&
        "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
        { [ -z "${PYTHON:-}" ] || [ "$("$venv/bin/python" --version)" = "$("$python" --version)" ]; }
}
usable || {
    rm -rf "$venv"
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        echo "$python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 1
    }
    pwd -P >"$venv/.place"
}

"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' || {
    echo "The installation failed; the lines above say why. Running the same make command again continues it." >&2
    exit 1
}
