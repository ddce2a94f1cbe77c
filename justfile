# Lathe's recipes. `./dev X` is `just X` on a machine without just.
# One profile (release) throughout, so that no dependency is compiled twice for the same purpose.

target := env('CARGO_TARGET_DIR', 'target')
export PATH := justfile_directory() / '.tools/bin' + ':' + env('PATH')

# list the recipes
_default:
    @'{{just_executable()}}' --list --unsorted

# train the quickstart experiment, from nothing to a better model; OVERRIDES as in `lathe run` (a.b=v)
demo *OVERRIDES: build
    '{{target}}/release/lathe' run experiments/quickstart.yaml {{OVERRIDES}}

# make a starting checkpoint again, by supervised training on the shipped demonstrations; NAME: calc, sort or guess
warmup NAME='calc': build
    '{{target}}/release/lathe' sft 'experiments/warmup-{{NAME}}.yaml'

# run all tests; ARGS go to the test runner
test *ARGS: libtorch
    @sh tools/run_tests.sh {{ARGS}}

# formatting, clippy, rustdoc and spelling, each without a warning
check: libtorch _typos
    cargo fmt --all --check
    cargo clippy --release --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --release --workspace --no-deps
    typos

# write the expected outputs (insta snapshots) anew; read the diff before you commit it
golden: libtorch
    INSTA_UPDATE=always sh tools/run_tests.sh
    git status --short -- '*.snap'

# kill small runs KILLS times each, at random moments and inside checkpoint writes, resume them, and compare them with runs never killed
kills KILLS='20' SEED=`date +%s`: libtorch
    LATHE_KILLS={{KILLS}} LATHE_KILL_SEED={{SEED}} cargo test --release --workspace --test kills -- --nocapture --test-threads 1

# runs on another machine, over a real sshd with keys of its own, its link cut or slow, its disk full; root may do all of it
remote-test *ARGS: libtorch
    @command -v sshd >/dev/null || test -x /usr/sbin/sshd || echo 'remote-test: there is no sshd here, so nothing is tested (apt-get install openssh-server)'
    @test "$(id -u)" = 0 || echo 'remote-test: not root, so the tests that cut a link, slow it or fill a disk are skipped'
    cargo test --release --workspace --test cli -- remote --nocapture --test-threads 2 {{ARGS}}

# runs on clusters: a slurmctld, slurmd and munged of the tests' own (root), and a head node of Ray's where LATHE_RAY names its program
cluster-test *ARGS: libtorch
    @command -v sbatch >/dev/null || echo 'cluster-test: there is no Slurm here, so none is tested (apt-get install slurm-wlm munge)'
    @test "$(id -u)" = 0 || echo 'cluster-test: not root, so no slurmd is started'
    @test -n "${LATHE_RAY:-}" || echo 'cluster-test: LATHE_RAY names no program of Ray, so none is tested (python3 -m venv V && V/bin/pip install "ray[default]"; LATHE_RAY=V/bin/ray)'
    LATHE_CLUSTER_TEST=1 cargo test --release --workspace --test cli -- cluster --nocapture --test-threads 1 {{ARGS}}

# licences, banned crates and their sources; known vulnerabilities where their database can be reached
audit: _cargo-deny
    cargo deny --workspace check licenses bans sources
    @sh tools/advisories.sh

# check, test and audit: all that a change must pass
ci: check test audit

# Of a step, beside TRL where LATHE_PEERS names its Python: src/trainer/benches/step/. `bench open [20k 200k list]` opens, draws,
# follows and lists long runs (src/runlog/benches/open/); `bench open --make DIR [--series 50] [--steps 20000] [--runs 1]`
# only makes such runs, in DIR. `bench bandit` is the time of a pull of each policy (src/bandit/benches/).
# CPU seconds and memory of a training step and a weight sync; with WORDS `open ...` of opening and showing long runs
bench *WORDS: libtorch
    cargo bench --workspace --bench {{ if WORDS =~ '^(open|workbench|bandit)( |$)' { replace_regex(WORDS, ' .*', '') } else { 'step' } }} -- {{WORDS}}

# build both programs into target/release/
build: libtorch
    cargo build --release --workspace

# put libtorch 2.13 into .libtorch/, once (540 MB download, 0.4 GB kept); LIBTORCH or an installed PyTorch is used first
libtorch:
    @sh tools/libtorch.sh

_typos:
    @command -v typos >/dev/null || { echo 'check: fetching typos (8 MB, seconds) from PyPI into .tools/' && python3 -B tools/wheels.py typos==1.52.0 typos; } || { echo 'check: compiling typos with cargo instead (some minutes)' && cargo install --quiet --locked --root .tools --version 1.52.0 typos-cli; }

_cargo-deny:
    @command -v cargo-deny >/dev/null || { echo 'audit: compiling cargo-deny into .tools/, once (about 2 minutes on 2 cores)' && cargo install --quiet --locked --root .tools cargo-deny; }
