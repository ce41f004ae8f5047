#!/bin/sh
# Write constraints.txt anew: the newest set that pyproject.toml's ranges allow, in an environment of its own. usage: pins.sh [torch version]
# Torch is asked for by an exact version first, since the builds that an index offers differ by version.
set -eu
torch=${1:-$(sed -n 's/^torch==//p' constraints.txt)}
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet "torch==$torch"
"$venv/bin/python" -m pip install --quiet --editable '.[dev]'
{
    echo "# The tested set: \`make pins\` writes this file. Torch without a local version, so that any build of it will do."
    "$venv/bin/python" -m pip freeze --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/'
} >constraints.txt
echo "wrote $(grep -c == constraints.txt) pins"
