#!/usr/bin/env bash
# Name every missing system tool, with the Debian package that has it: need.sh [browser] [sanitize] [aarch64]
set -uo pipefail
missing=()
tool() { command -v "$1" > /dev/null || missing+=("$1|$2"); }
runtime() { # g++ answers with the bare name if it does not have the file
    [ -e "$(g++ -print-file-name="$1" 2> /dev/null || echo none)" ] || missing+=("$1|$2")
}
tool g++ g++
for what in "$@"; do
    case $what in
        browser) tool chromium chromium ;;
        sanitize)
            package=libgcc-$(g++ -dumpversion 2> /dev/null || echo 12)-dev
            for library in libasan.so libubsan.so libtsan.so; do runtime "$library" "$package"; done
            ;;
        aarch64)
            tool aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
            tool qemu-aarch64 qemu-user
            tool apt-get apt
            tool dpkg-deb dpkg
            [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=("Debian's keys|debian-archive-keyring")
            ;;
        *) echo "need.sh: unknown $what" >&2; exit 2 ;;
    esac
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "Missing for these tests (tool: Debian package):" >&2
for entry in "${missing[@]}"; do echo "  ${entry%|*}: ${entry#*|}" >&2; done
echo "Try: apt-get install $(printf '%s\n' "${missing[@]#*|}" | sort -u | tr '\n' ' ')" >&2
exit 1
