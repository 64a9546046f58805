#!/usr/bin/env python3
"""Programs under `bytepath observe`: what they, or the kernel, count, and what was observed.

observe-programs.py [NAME...]: without names all of them, and those that are not installed are left
out. Exit code 1 if a figure differs, 77 if nothing of it is installed. All traffic is on loopback.
BYTEPATH is the binary (default: target/release/bytepath). As root.
"""

import contextlib
import glob
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

BYTEPATH = os.environ.get("BYTEPATH") or os.path.join(
    os.path.dirname(__file__), "../target/release/bytepath")
os.environ["PATH"] += os.pathsep + os.pathsep.join(
    ["/usr/sbin", "/usr/local/go/bin", *glob.glob("/usr/lib/postgresql/*/bin")])
SECONDS = 60

# Each prints the bytes that it has sent and received over TCP, summed over both ends.
ASYNCIO = """
import asyncio
async def serve(reader, writer):
    global served
    served = 0
    while data := await reader.read(65536):
        served += len(data); writer.write(data); await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    got = 0
    for _ in range(50):
        writer.write(bytes(100000)); await writer.drain()
        got += len(await reader.readexactly(100000))
    writer.write_eof(); await reader.read()
    print(50 * 100000 + served, got + served)
asyncio.run(main())
"""
NODE = """
const net = require('net');
const all = [];
const server = net.createServer(s => { all.push(s); s.pipe(s); });
server.listen(0, '127.0.0.1', () => {
  const c = net.connect(server.address().port, '127.0.0.1');
  all.push(c);
  c.end(Buffer.alloc(5000000));
  c.resume();
  c.on('close', () => server.close(() => console.log(
    all.reduce((n, s) => n + s.bytesWritten, 0), all.reduce((n, s) => n + s.bytesRead, 0))));
});
"""
GO = """
package main
import ("fmt"; "io"; "net")
func main() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	done := make(chan int64)
	go func() { c, _ := l.Accept(); n, _ := io.Copy(io.Discard, io.LimitReader(c, 5000000))
		m, _ := c.Write(make([]byte, 70000)); c.Close(); done <- n; done <- int64(m) }()
	c, _ := net.Dial("tcp", l.Addr().String())
	sent, _ := c.Write(make([]byte, 5000000))
	got, _ := io.Copy(io.Discard, c)
	received := <-done
	fmt.Println(int64(sent)+<-done, got+received)
}
"""
JAVA = """
import java.net.*;
public class Main { public static void main(String[] a) throws Exception {
  ServerSocket l = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
  long[] served = new long[1];
  Thread t = new Thread(() -> { try { Socket s = l.accept(); byte[] b = new byte[65536]; int n;
    while ((n = s.getInputStream().read(b)) > 0) served[0] += n; s.close(); } catch (Exception e) { } });
  t.start();
  Socket c = new Socket("127.0.0.1", l.getLocalPort());
  for (int i = 0; i < 50; i++) c.getOutputStream().write(new byte[100000]);
  c.close(); t.join();
  System.out.println(5000000 + " " + served[0]);
} }
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port, program):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and program.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


class Observed:
    """A program that runs under observation, until `report` is asked for."""

    def __init__(self, folder, words, **options):
        self.out = os.path.join(folder, "observation.json")
        command = [BYTEPATH, "observe", "--sample", "none", "--json", "--out", self.out, "--"]
        self.program = subprocess.Popen(
            command + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def report(self, end=False):
        """The observation, and what the program printed; bytepath passes SIGTERM on."""
        if end:
            self.program.terminate()
        printed, errors = self.program.communicate(timeout=SECONDS)
        with open(self.out) as file:
            return json.load(file), printed, errors


def sums(observation, kinds=("tcp", "mptcp")):
    sockets = [s for s in observation["sockets"] if s["kind"] in kinds]
    return sum(s["sent"] for s in sockets), sum(s["received"] for s in sockets)


def run(folder, words, **options):
    return Observed(folder, words, **options).report()


def printed_sums(folder, words):
    observation, printed, errors = run(folder, words)
    numbers = printed.split()
    if len(numbers) != 2:
        sys.exit(f"{words[0]} failed: {errors}")
    return "its own count", tuple(map(int, numbers)), sums(observation)


@contextlib.contextmanager
def web_server(folder):
    """Serves the folder, with a file of 1 MB in it."""
    with open(os.path.join(folder, "file"), "wb") as file:
        file.write(bytes(1000000))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *a):
            super().__init__(*a, directory=folder)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def asyncio_(folder):
    return printed_sums(folder, [sys.executable, "-c", ASYNCIO])


def node(folder):
    return printed_sums(folder, ["node", "-e", NODE])


def go(folder):
    source, program = os.path.join(folder, "main.go"), os.path.join(folder, "main")
    with open(source, "w") as file:
        file.write(GO)
    subprocess.run(["go", "build", "-o", program, source], check=True, cwd=folder)
    return printed_sums(folder, [program])


def java(folder):
    source = os.path.join(folder, "Main.java")
    with open(source, "w") as file:
        file.write(JAVA)
    return printed_sums(folder, ["java", source])


def curl(folder):
    with web_server(folder) as port:
        form = "%{size_request} %{size_header} %{size_download}"
        words = ["curl", "-s", "-o", "/dev/null", "-w", form, f"http://127.0.0.1:{port}/file"]
        observation, printed, _ = run(folder, words)
    sent, header, body = map(int, printed.split())
    return "curl -w %{size_...}", (sent, header + body), sums(observation)


def haproxy(folder):
    port, stats = free_port(), os.path.join(folder, "stats")
    with web_server(folder) as origin:
        with open(os.path.join(folder, "cfg"), "w") as file:
            file.write(f"global\n stats socket {stats}\ndefaults\n mode tcp\n timeout connect 5s\n"
                       f" timeout client 5s\n timeout server 5s\nfrontend f\n"
                       f" bind 127.0.0.1:{port}\n default_backend b\n"
                       f"backend b\n server s 127.0.0.1:{origin}\n")
        proxy = Observed(folder, ["haproxy", "-db", "-f", file.name])
        await_port(port, proxy.program)
        for _ in range(5):
            subprocess.run(["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/file"])
        # It adds a connection to its figures when the connection ends.
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            rows = haproxy_figures(stats)
            if all(row["scur"] == "0" for row in rows):
                break
            time.sleep(0.05)
        observation, *_ = proxy.report(end=True)
    both = {row["svname"]: (int(row["bin"]), int(row["bout"])) for row in rows}
    (front_in, front_out), (back_in, back_out) = both["FRONTEND"], both["BACKEND"]
    return "show stat", (front_out + back_in, front_in + back_out), sums(observation)


def haproxy_figures(stats):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(stats)
        asked.sendall(b"show stat\n")
        first, *rows = asked.makefile().read().splitlines()
    names = first.lstrip("# ").split(",")
    return [dict(zip(names, row.split(","))) for row in rows if row]


def nginx(folder):
    port, log = free_port(), os.path.join(folder, "log")
    with web_server(folder):
        pass
    os.chmod(folder, 0o755)
    with open(os.path.join(folder, "conf"), "w") as file:
        file.write(f"daemon off; worker_processes 2; pid {folder}/pid; error_log stderr;\n"
                   f"events {{}} http {{ log_format f '$bytes_sent $request_length';\n"
                   f"access_log {log} f; sendfile on;\n"
                   f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n")
    server = Observed(folder, ["nginx", "-c", file.name])
    await_port(port, server.program)
    for _ in range(5):
        subprocess.run(["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/file"])
    observation, *_ = server.report(end=True)
    with open(log) as file:
        sent, received = map(sum, zip(*(map(int, line.split()) for line in file)))
    return "its log", (sent, received), sums(observation)


def redis(folder):
    port = free_port()
    server = Observed(folder, ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""])
    await_port(port, server.program)
    subprocess.run(["redis-benchmark", "-q", "-p", str(port), "-t", "get,set", "-n", "20000", "-d",
                    "512"], stdout=subprocess.DEVNULL)
    with socket.create_connection(("127.0.0.1", port)) as asked:
        asked.sendall(b"INFO stats\r\n")
        answer = asked.recv(65536).decode()
    of = {way: int(re.search(rf"total_net_{way}_bytes:(\d+)", answer)[1])
          for way in ("input", "output")}
    observation, *_ = server.report(end=True)
    return "INFO stats", (of["output"] + len(answer), of["input"]), sums(observation)


def postgresql(folder):
    port, data = free_port(), os.path.join(folder, "data")
    # It refuses to run as root.
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    os.chmod(folder, 0o777)
    subprocess.run([*other, "initdb", "-D", data, "-A", "trust", "-U", "me"], check=True,
                   stdout=subprocess.DEVNULL, cwd=folder)
    words = ["postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", "unix_socket_directories="]
    server = Observed(folder, other + words, cwd=folder)
    url = f"postgresql://me@127.0.0.1:{port}/postgres"
    until = time.monotonic() + SECONDS
    while subprocess.run(["psql", url, "-c", "select 1"], capture_output=True).returncode:
        if time.monotonic() > until:
            sys.exit("PostgreSQL does not answer")
        time.sleep(0.2)
    client = subprocess.Popen(["psql", "-qAt", url], stdin=subprocess.PIPE, text=True,
                              stdout=subprocess.PIPE)
    client.stdin.write("select repeat('x', 1000) from generate_series(1, 5000);\n\\echo end\n")
    client.stdin.flush()
    for line in client.stdout:
        if line == "end\n":
            break
    listed = subprocess.run(["ss", "-tinH", "state", "established", "sport", "=", f":{port}"],
                            capture_output=True, text=True).stdout
    # Not the acknowledged bytes, which may be fewer for a moment.
    of = {name: int(found[1]) if (found := re.search(rf"{name}:(\d+)", listed)) else 0
          for name in ("bytes_sent", "bytes_retrans", "bytes_received")}
    peer = re.search(rf":{port}\s+127.0.0.1:(\d+)", listed)[1]
    client.communicate()
    observation, *_ = server.report(end=True)
    mine = [s for s in observation["sockets"] if (s["remote"] or "").endswith(f":{peer}")]
    # Since then it has received five more bytes: the goodbye.
    expected = of["bytes_sent"] - of["bytes_retrans"], of["bytes_received"] + 5
    return "ss -ti", expected, sums({"sockets": mine})


@contextlib.contextmanager
def relayed(target, counts):
    """A port before another: how many bytes went to it and came from it. The own counts of rsync and
    ssh leave out how both ends introduce themselves."""
    def pump(source, to, at):
        while data := source.recv(65536):
            counts[at] += len(data)
            to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def serve():
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", target))
        ways = [(client, server, 0), (server, client, 1)]
        threads = [threading.Thread(target=pump, args=way) for way in ways]
        for step in (threading.Thread.start, threading.Thread.join):
            list(map(step, threads))
        client.close()
        server.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname()[1]
        serving.join(SECONDS)


def through_relay(folder, server, port, command):
    """The client's figures, by what went through the relay to a server that listens on this port."""
    server = subprocess.Popen(server, stderr=subprocess.DEVNULL)
    await_port(port, server)
    counts = [0, 0]
    with relayed(port, counts) as relay:
        observation, *_ = run(folder, command(relay))
    server.terminate()
    server.wait()
    return "a relay in between", tuple(counts), sums(observation)


def rsync(folder):
    port, config = free_port(), os.path.join(folder, "config")
    with open(os.path.join(folder, "file"), "wb") as file:
        file.write(os.urandom(1000000))
    with open(config, "w") as file:
        file.write(f"[m]\npath = {folder}\nuse chroot = no\nuid = 0\ngid = 0\n")
    server = ["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}",
              f"--config={config}"]
    return through_relay(folder, server, port, lambda relay: [
        "rsync", "-q", f"rsync://127.0.0.1:{relay}/m/file", f"{folder}/copy"])


def ssh(folder):
    port, key = free_port(), os.path.join(folder, "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    os.makedirs("/run/sshd", exist_ok=True)
    server = [shutil.which("sshd"), "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", key,
              "-o", "ListenAddress=127.0.0.1", "-o", f"AuthorizedKeysFile={key}.pub",
              "-o", "StrictModes=no", "-o", "PidFile=none"]
    return through_relay(folder, server, port, lambda relay: [
        "ssh", "-q", "-F", "none", "-i", key, "-p", str(relay), "-o", "BatchMode=yes",
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "127.0.0.1",
        "head -c 1000000 /dev/zero"])


def io_uring(folder):
    words = [BYTEPATH, "run", "--path", "uring", "--blocks", "1", "--window", "200ms", "--profile",
             "none", "--quiet", "--study", f"{folder}/study"]
    observation, _, errors = run(folder, words)
    named = [text for text in observation["warnings"] if "io_uring" in text]
    return "a warning that names it", bool(named), bool(named) or errors


PROGRAMS = {
    "asyncio": (asyncio_, []),
    "curl": (curl, ["curl"]),
    "go": (go, ["go"]),
    "haproxy": (haproxy, ["haproxy", "curl"]),
    "io_uring": (io_uring, []),
    "java": (java, ["javac"]),
    "nginx": (nginx, ["nginx", "curl"]),
    "node": (node, ["node"]),
    "postgresql": (postgresql, ["initdb", "postgres", "psql", "ss", "setpriv"]),
    "redis": (redis, ["redis-server", "redis-benchmark"]),
    "rsync": (rsync, ["rsync"]),
    "ssh": (ssh, ["ssh", "sshd", "ssh-keygen"]),
}


def main(names):
    ran, differ = 0, 0
    print(f"{'program':<12}{'expected by':<26}{'sent, received':<24}observed")
    for name in names or PROGRAMS:
        function, needed = PROGRAMS[name]
        missing = [program for program in needed if not shutil.which(program)]
        if missing:
            print(f"{name:<12}not installed: {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            by, expected, observed = function(folder)
        ran += 1
        differ += expected != observed
        show = lambda value: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        mark = "" if expected == observed else "  DIFFERS"
        print(f"{name:<12}{by:<26}{show(expected):<24}{show(observed)}{mark}", flush=True)
    return 1 if differ else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
