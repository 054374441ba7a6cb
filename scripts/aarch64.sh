#!/usr/bin/env bash
# Cross-compile lunette for aarch64 and run a command with it under qemu: aarch64.sh VENV COMMAND...
# Needs no root and changes nothing outside build/aarch64: Debian's Python for arm64 is unpacked there, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(realpath "$1")
shift
where=$PWD/build/aarch64
root=$where/root site=$where/site
mkdir -p "$root" "$site" "$where"/apt/{state/lists/partial,cache/archives/partial}

# ---- Debian's Python and its libraries, through an apt of our own that knows only arm64
if [ ! -e "$root/done" ]; then
    touch "$where/apt/status"
    cat > "$where/apt/sources.list" <<END
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
END
    cat > "$where/apt/apt.conf" <<END
APT { Architecture "arm64"; Architectures { "arm64"; }; Sandbox::User "$(id -un)"; Install-Recommends "false"; };
Dir { State "$where/apt/state"; State::status "$where/apt/status"; Cache "$where/apt/cache";
      Etc::sourcelist "$where/apt/sources.list"; Etc::sourceparts "-"; };
END
    export APT_CONFIG=$where/apt/apt.conf
    apt-get -qq update
    apt-get -qq --download-only --yes install python3.11-minimal libpython3.11-stdlib libstdc++6 zlib1g
    (cd "$where/apt/cache/archives" && apt-get -qq download libpython3.11-dev) # for its headers alone
    for package in "$where"/apt/cache/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
    touch "$root/done"
    unset APT_CONFIG
fi

# ---- wheels
if [ ! -e "$site/done" ]; then
    "$venv/bin/python" -m pip install --quiet --target "$site" --upgrade --only-binary :all: --python-version 3.11 \
        --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 \
        numpy ml_dtypes python-flint optree typer rich pytest hypothesis
    touch "$site/done"
fi

# ---- lunette: the kernels by cmake, the rest as it is
PATH=$venv/bin:$PATH
cmake -S . -B "$where/cmake" -G Ninja --log-level=WARNING \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DCMAKE_CXX_FLAGS="-I$root/usr/include/python3.11 -idirafter $root/usr/include" \
    -Dnanobind_DIR="$("$venv/bin/python" -m nanobind --cmake_dir)" -DPython_EXECUTABLE="$venv/bin/python" \
    -DPython_INCLUDE_DIR="$root/usr/include/python3.11" > "$where/cmake.log"
cmake --build "$where/cmake" --target _native >> "$where/cmake.log" || { tail -40 "$where/cmake.log"; exit 1; }
rm -rf "$site/lunette" "$site"/lunette-*.dist-info
cp -r src/lunette "$site/lunette"
rm -f "$site"/lunette/_native*.so
cp "$where"/cmake/_native*.so "$site/lunette/_native.so"
mkdir "$site/lunette-0.dist-info"
printf 'Metadata-Version: 2.1\nName: lunette\nVersion: %s\n' "$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" \
    > "$site/lunette-0.dist-info/METADATA"

# Python finds its library from where it thinks it is; qemu takes the loader and the libraries from -L.
export PYTHONPATH=$site PYTHONHOME=$root/usr PYTHONDONTWRITEBYTECODE=1
exec qemu-aarch64 -L "$root" "$root/usr/bin/python3.11" "$@"
