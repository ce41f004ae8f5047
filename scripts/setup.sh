#!/bin/sh
# Make the virtual environment and install the package with the tested set. usage: setup.sh VENV
set -eu
venv=$1
wanted="text2grad needs Python 3.11 or newer"

find_python() {
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

python=$(find_python) || {
    echo "$wanted, and none was found. Install one, or name it: make PYTHON=/path/to/python3.12" >&2
    exit 1
}
echo "Setting up $venv with $("$python" --version) (a few minutes the first time; PyTorch is large)"

# A virtual environment of another place or another Python (a copied checkout, an upgrade) is made again.
"$venv/bin/python" -c "import sys, pip, os; sys.exit(os.path.realpath(sys.prefix) != os.path.realpath('$venv') or sys.version_info < (3, 11))" \
    2>/dev/null || {
    rm -rf "$venv"
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        echo "$python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 1
    }
}

"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' || {
    echo "The installation failed; the lines above say why. Running the same make command again continues it." >&2
    exit 1
}
