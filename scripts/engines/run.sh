#!/bin/sh
# Run our adapters inside the engines themselves, on a CPU. usage: [PYTHON=…] [TORCH=…] run.sh verl|skyrl|tinker|prime_rl …
# Each engine gets an environment of its own from the package index, gigabytes in a temporary folder, deleted at the end.
# docs/engines/NAME.md says what is run, and how far that goes. ENVS=/folder keeps the environments for the next time.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
torch=${TORCH:-$(sed -n 's/^torch==//p' "$root/constraints.txt")}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
envs=${ENVS:-$scratch/envs}

# Torch by an exact version first: an index may have a build without CUDA under it, and another one pulls gigabytes.
environment() {
    name=$1
    shift
    if [ -e "$envs/$name/.ready" ]; then
        # What is kept is the engine; our own code is the one that lies here now.
        "$envs/$name/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$root"
        return
    fi
    rm -rf "${envs:?}/$name"
    mkdir -p "$envs"
    "$python" -m venv "$envs/$name"
    "$envs/$name/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$torch" "$@" "$root"
    touch "$envs/$name/.ready"
}

for engine in "$@"; do
    echo "== $engine: making its environment with $("$python" --version)"
    case $engine in
    verl)
        env=verl
        environment verl verl==0.9.1 TransferQueue==0.1.11 cachetools fastapi uvicorn
        ;;
    skyrl | tinker)
        env=skyrl
        environment skyrl 'skyrl[jax,tinker]==0.3.0' skyrl-gym==0.4.0 tinker==0.24.1 ray==2.56.0 jaxtyping loguru omegaconf aiohttp torchdata
        # Before Python 3.12 pydantic refuses the TypedDict that SkyRL 0.3.0 uses.
        "$envs/skyrl/bin/python" - <<-'END'
			import pathlib, sys, sysconfig
			if sys.version_info < (3, 12):
			    line = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict\n"
			    pathlib.Path(sysconfig.get_path("purelib"), "sitecustomize.py").write_text(line)
		END
        ;;
    prime_rl)
        env=prime_rl
        environment prime_rl verifiers==0.4.0 msgspec
        ;;
    *)
        echo "there is no engine $engine; the engines are verl, skyrl, tinker, prime_rl" >&2
        exit 2
        ;;
    esac
    mkdir "$scratch/$engine"
    echo "== $engine: running"
    (cd "$scratch/$engine" && timeout 900 "$envs/$env/bin/python" "$root/scripts/engines/check_$engine.py" 2>log) || {
        tail -n 40 "$scratch/$engine/log"
        echo "== $engine: failed" >&2
        exit 1
    }
    [ -n "${ENVS:-}" ] || case $engine in skyrl) ;; *) rm -rf "${envs:?}/$env" ;; esac
done
