#!/usr/bin/env bash
# A redis server that is already running, observed for two seconds under load from redis-benchmark;
# then the load itself, observed from start to end.
set -eu
cd "$(dirname "$0")/.."
bytepath=${BYTEPATH:-target/release/bytepath}
port=${PORT:-15379}

redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
server=$!
load=
trap 'kill $server $load 2>/dev/null || true; wait 2>/dev/null || true' EXIT
until redis-cli -p "$port" ping >/dev/null 2>&1; do kill -0 $server; sleep 0.05; done

redis-benchmark -p "$port" -t get,set -n 100000000 -P 16 -d 1024 -q >/dev/null &
load=$!
echo "== the server, 2 s"
"$bytepath" observe --pid $server --for 2s 2>&1
kill $load
wait $load 2>/dev/null || true
load=

echo "== the load"
"$bytepath" observe -- redis-benchmark -p "$port" -t get -n 100000 -P 16 -d 1024 -q 2>&1
