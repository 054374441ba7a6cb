#!/usr/bin/env bash
# Build lunette under a sanitizer and run a command with it: sanitize.sh address|thread VENV COMMAND...
# Everything is under build/sanitize-<kind>; a second run compiles only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1 venv=$(realpath "$2")
shift 2
where=$PWD/build/sanitize-$kind
python=$where/venv/bin/python
packages='import sysconfig; print(sysconfig.get_path("purelib"))'

# A second environment reads the packages of the first through a path file. Path files there are not read in turn, so
# that the first one's editable lunette stays out.
[ -x "$python" ] || "$venv/bin/python" -m venv --without-pip "$where/venv"
"$venv/bin/python" -c "$packages" > "$("$python" -c "$packages")/packages.pth"
"$venv/bin/python" -m pip --python "$python" install --quiet --no-build-isolation --no-deps --force-reinstall \
    -Cbuild-dir="$where/cmake" -Ccmake.define.LUNETTE_SANITIZE="$kind" -Cinstall.strip=false .

# Python is not built with the sanitizer, so its runtime has to be there first; and libstdc++ with it, or the runtime
# does not find the function that throws.
runtime=$(g++ -print-file-name="lib${kind:0:1}san.so")
export LD_PRELOAD="$runtime $(g++ -print-file-name=libstdc++.so.6)"
# Python keeps what it allocates at its start; an allocation that cannot be is an exception, as without a sanitizer.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
# It must exit, not abort: the handler with which pytest prints a traceback hangs in the thread sanitizer.
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/scripts/tsan.supp
export PYTHONMALLOC=malloc  # every object its own block, so that reading beyond one is seen
exec "$python" "$@"
