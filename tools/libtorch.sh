#!/bin/sh
# Sees to it that libtorch is there: fetch_libtorch.py does the work; a libtorch that is in place serves without Python too.
set -u
if command -v python3 >/dev/null; then
    exec python3 -B tools/fetch_libtorch.py
elif [ -e "${LIBTORCH:-.libtorch/torch}/lib/libtorch_cpu.so" ]; then
    echo "libtorch: found in ${LIBTORCH:-.libtorch/torch}; its version is not checked, since there is no python3"
else
    echo "libtorch: python3 with pip is needed to fetch it; or set LIBTORCH to a folder with libtorch 2.13.0" >&2
    exit 1
fi
