#!/bin/sh
# Runs every test of the workspace: with cargo-nextest where it is installed (compiling it takes minutes), else with
# `cargo test`, whose many summaries are added up in a last line. Arguments go to the runner.
set -u
if command -v python3 >/dev/null; then
    echo "test: the set-up scripts"
    python3 -B tools/test_fetch_libtorch.py --quiet || exit $?
else
    echo "test: the set-up scripts are NOT TESTED, since there is no python3"
fi
# Tests run side by side, one a processor; more threads inside each would only wait for one another.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

if cargo nextest --version >/dev/null 2>&1; then
    echo "test: with cargo-nextest; documentation examples first, with cargo test"
    cargo test --quiet --release --workspace --doc || exit $?
    exec cargo nextest run --release --workspace "$@"
fi

echo "test: with cargo test (cargo-nextest is not installed)"
status=$(mktemp)
trap 'rm -f "$status"' EXIT
{
    cargo test --release --workspace "$@" 2>&1
    echo $? >"$status"
} | awk '
    { print; fflush() }
    $1 == "test" && $2 == "result:" { passed += $4; failed += $6; ignored += $8 }
    END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, ignored }'
exit "$(cat "$status")"
