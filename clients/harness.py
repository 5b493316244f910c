"""What the tests of all clients share: servers that are killed, and connections that are cut."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time

BIN = os.environ["DELAYLINE_BIN"]
PLACE = tempfile.TemporaryDirectory()
SERVERS = os.environ.get("DELAYLINE_TEST_URLS", "").split()
LASTING = [f"file:{PLACE.name}/queues"] + SERVERS
URLS = ["memory:"] + LASTING
SCENARIOS = json.loads((pathlib.Path(__file__).resolve().parent / "scenarios.json").read_text())


class Serve:
    """A server of one queue, or of all. Started again, it has the same addresses and secret."""

    def __init__(self, url, queue=None, sqs=False, args=()):
        self.url, self.queue, self.listen, self.args = url, queue, "127.0.0.1:0", args
        self.sqs = "127.0.0.1:0" if sqs else None
        self.start()

    def start(self):
        env = os.environ | {"DELAYLINE_URL": self.url, "DELAYLINE_CLAIM_SECRET": "a secret for tests"}
        args = [BIN, "serve", "--listen", self.listen, self.queue or "--all"]
        if self.sqs:
            args += ["--sqs", self.sqs, *self.args]
        self.process = subprocess.Popen(
            args, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.listen = self.address()
        self.at = f"http://{self.listen}"
        if self.sqs:
            self.sqs = self.address()
            self.sqs_at = f"http://{self.sqs}"

    def address(self):
        """The next address that it prints."""
        return self.process.stdout.readline().strip().removeprefix("http://").rstrip("/")

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(30)
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


class Redis:
    """A private server that syncs each write, so it can be killed."""

    def __init__(self):
        self.place = tempfile.TemporaryDirectory()
        self.socket = f"{self.place.name}/redis.sock"
        self.url = f"redis+unix://{self.socket}"
        self.start()

    def start(self):
        args = ["--port", "0", "--unixsocket", self.socket, "--dir", self.place.name]
        args += ["--appendonly", "yes", "--appendfsync", "always"]
        program = os.environ.get("REDIS_SERVER_BIN", "redis-server")
        self.process = subprocess.Popen([program, *args], stdout=subprocess.DEVNULL)
        wait_until(self.answers)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(self.socket)
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def restart(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.place.cleanup()


class Cuts:
    """A proxy that cuts each connection after a random number of bytes."""

    def __init__(self, upstream):
        host, port = upstream.rsplit(":", 1)
        self.upstream, self.count, self.random = (host, int(port)), 0, random.Random(7)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            pair = (client, socket.create_connection(self.upstream))
            left = [self.random.randrange(200, 20_000)]
            for one, other in (pair, pair[::-1]):
                threading.Thread(target=self.copy, args=(one, other, pair, left), daemon=True).start()

    def copy(self, one, other, pair, left):
        try:
            while data := one.recv(65_536):
                other.sendall(data[: max(0, left[0])])
                left[0] -= len(data)
                if left[0] <= 0:
                    self.count += 1
                    break
        except OSError:
            pass
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def end(self):
        self.listener.close()


def wait_until(condition, seconds=30):
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError("it does not come true")
        time.sleep(0.02)


def filled(value, saved):
    if isinstance(value, str) and value.startswith("$"):
        return saved[value[1:]]
    if isinstance(value, list):
        return [filled(item, saved) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, saved) for name, item in value.items()}
    return value


def matches(expected, answer):
    if expected == "*":
        return answer is not None
    if isinstance(expected, dict) and isinstance(answer, dict):
        return all(name in answer and matches(it, answer[name]) for name, it in expected.items())
    if isinstance(expected, list) and isinstance(answer, list):
        return len(expected) == len(answer) and all(map(matches, expected, answer))
    return expected == answer


def play(test, scenario, call):
    """Plays a scenario. A call returns its status, if that is an error, and the answer."""
    saved = {}
    for step in scenario["steps"]:
        status, answer = call(step["path"], filled(step["body"], saved))
        test.assertEqual(status, step["status"] if step["status"] >= 400 else None, step)
        expected = filled(step.get("answer"), saved)
        test.assertTrue(expected is None or matches(expected, answer), (step, answer))
        for name, place in step.get("save", {}).items():
            found = answer
            for part in place:
                found = found[part]
            saved[name] = found
