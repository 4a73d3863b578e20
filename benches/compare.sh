#!/usr/bin/env bash
# Measures Lane's speed as ratios, side by side and interleaved in one run.
#
#   benches/compare.sh [--short] [--strict] [NAME ...]
#
# --short    fewer rounds, a history of 5,000 lanes instead of 100,000, a stream of 50 MiB instead of 200
# --strict   exit 1 when a bound is missed
# NAME       only these: run size python burst history checkout quiet stream
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --locked --bin lane --example fake-codex
cargo bench --quiet --locked --bench measure --no-run

echo "== ratios (each pair interleaved, medians)"
cargo bench --quiet --locked --bench measure -- "$@"

# A second opinion on the bare start of the programs, from another tool.
if command -v hyperfine >/dev/null; then
    echo "== bare starts, by hyperfine"
    state=$(mktemp -d /var/tmp/lane-bench-XXXXXX)
    trap 'rm -rf "$state"' EXIT
    lane=target/release/lane
    for round in 1 2 3; do
        LANE_STATE="$state" hyperfine --style none --shell none --warmup 5 --runs 60 \
            --export-csv "$state/$round.csv" "git --version" "$lane --version" "$lane status" >/dev/null
    done
    # Columns: command, mean, stddev, median, ... The middle of three rounds, over git's.
    for line in 2 3 4; do
        for round in 1 2 3; do sed -n "${line}p" "$state/$round.csv"; done | sort -t, -k4 -g | sed -n 2p
    done | awk -F, 'NR == 1 { git = $4 } { printf "%-28s median %6.2f ms, %5.2f of git --version\n", $1, $4 * 1000, $4 / git }'
else
    echo "hyperfine is not installed: its second opinion is left out"
fi
