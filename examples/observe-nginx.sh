#!/usr/bin/env bash
# nginx under load from wrk: the server, master and workers, is observed from start to end.
# SENDFILE=off shows the other way in which a file gets to a socket.
set -eu
cd "$(dirname "$0")/.."
bytepath=${BYTEPATH:-target/release/bytepath}
port=${PORT:-15280}

dir=$(mktemp -d)
chmod 755 "$dir"
mkdir "$dir/html"
head -c 262144 /dev/zero >"$dir/html/file"
cat >"$dir/nginx.conf" <<CONF
daemon off;
worker_processes 2;
pid $dir/pid;
error_log $dir/error.log;
events { worker_connections 256; }
http {
    access_log off;
    sendfile ${SENDFILE:-on};
    server { listen 127.0.0.1:$port; root $dir/html; }
}
CONF

"$bytepath" observe --out "$dir/report" -- nginx -c "$dir/nginx.conf" &
observer=$!
trap 'kill $observer 2>/dev/null || true; wait $observer 2>/dev/null || true; rm -rf "$dir"' EXIT
until ss -ltn "sport = :$port" | grep -q LISTEN; do kill -0 $observer; sleep 0.05; done
wrk -t1 -c8 -d"${SECONDS_OF_LOAD:-2}s" "http://127.0.0.1:$port/file"
# bytepath forwards the signal; nginx ends its workers.
kill -TERM $observer
wait $observer || true
cat "$dir/report"
