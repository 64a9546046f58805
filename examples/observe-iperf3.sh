#!/usr/bin/env bash
# iperf3 over loopback, with its client observed. Arguments go to the client: -P 4, -Z, -R.
set -eu
cd "$(dirname "$0")/.."
bytepath=${BYTEPATH:-target/release/bytepath}
port=${PORT:-15201}

iperf3 -s -1 -p "$port" --forceflush > >(grep -m1 -o listening >&2; cat >/dev/null) &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until ss -ltn "sport = :$port" | grep -q LISTEN; do kill -0 $server; sleep 0.05; done
"$bytepath" observe -- iperf3 -c 127.0.0.1 -p "$port" -t 2 "$@" >/dev/null
