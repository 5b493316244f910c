"""Against a real `delayline serve`: in memory, in a directory, and on the servers of DELAYLINE_TEST_URLS."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import http.server
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent.parent)]

from delayline import Ack, ApiError, Client, Job, Reject, Retry, Snooze, Worker  # noqa: E402
from harness import LASTING, SCENARIOS, URLS, Cuts, Serve, play, wait_until  # noqa: E402


class Tests(unittest.TestCase):
    def each(self, urls=URLS):
        for url in urls:
            with self.subTest(url=url.split(":")[0]), Serve(url, f"q{time.time_ns()}") as serve:
                client = Client(serve.at, serve.queue)
                yield serve, client
                client.close()

    def test_scenarios(self):
        for scenario in SCENARIOS:
            for _, client in self.each():

                def call(path, body):
                    try:
                        # A send of one message answers 201, which the client does not tell apart.
                        return None, client.call("POST", path, body, 60)
                    except ApiError as error:
                        return error.status, error.problem

                play(self, scenario, call)

    def test_a_worker_handles_each_outcome(self):
        for serve, client in self.each():
            outcomes = {
                "ack": Ack(result={"n": 1}, messages=[{"id": "next", "payload": 1, "group": "t"}]),
                "next": None,
                "reject": Reject("never"),
                "snooze": Snooze(0.01),
                "raise": Retry("again", 0.01),
            }
            seen, groups, lock = [], {}, threading.Lock()

            def handle(job):
                with lock:
                    seen.append(job.id)
                    groups[job.id] = job.group
                    count = seen.count(job.id)
                if job.id in ("snooze", "raise") and count > 1:
                    return None
                return outcomes[job.id]

            for name in ("ack", "reject", "snooze", "raise"):
                client.send("x", id=name, keep_result="1m", **({"group": "shop 9"} if name == "ack" else {}))
            worker = Worker(client, handle, concurrency=3)
            with running(worker):
                wait_until(lambda: counts(client)["acked_total"] == 4 and counts(client)["dead"] == 1)
            self.assertEqual(sorted(seen), ["ack", "next", "raise", "raise", "reject", "snooze", "snooze"])
            self.assertEqual([groups[it] for it in ("ack", "next", "reject")], ["shop 9", "t", None])
            progress = client.call("GET", "/messages/ack/progress")
            self.assertEqual((progress["state"], progress["result"]), ("acked", '{"n":1}'))
            self.assertEqual(worker.settled, 7)

    def test_leases_are_renewed_and_cancels_heard(self):
        for _, client in self.each():
            started, heard = threading.Event(), threading.Event()

            def handle(job):
                started.set()
                # Longer than the lease.
                if job.cancelled.wait(60):
                    heard.set()

            client.send("x", id="a", max_crashes=1)
            with running(Worker(client, handle, lease=6)):
                self.assertTrue(started.wait(20))
                wait_until_renewed(client, "a")
                self.assertEqual(counts(client)["leased"], 1)
                with self.assertRaises(ApiError) as refused:
                    client.call("DELETE", "/messages/a")
                self.assertEqual(refused.exception.problem["outcome"], "in_flight")
                self.assertTrue(heard.wait(20))
            self.assertEqual(counts(client)["crashed_total"], 0)

    def test_each_lease_of_a_claim_is_renewed(self):
        for serve, client in self.each():
            together = threading.Barrier(3)

            def handle(job):
                together.wait(20)
                wait_until_renewed(Client(serve.at, serve.queue), job.id)
                self.assertFalse(job.cancelled.is_set())

            for id in ("a", "b", "c"):
                client.send("x", id=id)
            with running(Worker(client, handle, concurrency=3, lease=6)):
                wait_until(lambda: counts(client)["acked_total"] == 3)
            self.assertEqual([counts(client)[it] for it in ("crashed_total", "failed_total")], [0, 0])

    def test_a_message_that_comes_again_is_renewed_and_its_earlier_job_stops(self):
        class Deaf(Client):
            def extend(self, jobs, *args, **fields):
                if any(job.epoch == 1 for job in jobs):
                    raise OSError("the lease is not renewed")
                return super().extend(jobs, *args, **fields)

        for serve, client in self.each():
            deaf, stopped, again = Deaf(serve.at, serve.queue), {}, threading.Event()

            def handle(job):
                if job.epoch == 1:
                    stopped[1] = job.cancelled.wait(60)
                    again.wait(60)
                else:
                    again.set()
                    wait_until_renewed(client, "a")
                    stopped[job.epoch] = job.cancelled.is_set()

            client.send("x", id="a")
            with running(Worker(deaf, handle, concurrency=2, lease=6)):
                wait_until(lambda: counts(client)["acked_total"] == 1)
            self.assertEqual(stopped, {1: True, 2: False})
            self.assertEqual(counts(client)["crashed_total"], 1)

    def test_a_job_is_cancelled_whose_lease_cannot_be_renewed(self):
        class Cut(Client):
            def claim(self, *args, **fields):
                jobs.append(Job(delivery))
                return jobs[-1:] if len(jobs) <= 2 else []

            def extend(self, held, *args, timeout, **fields):
                timeouts.append(timeout)
                # As for a job that ends meanwhile; then nothing answers.
                if len(timeouts) == 1:
                    return [{"outcome": "missing"}]
                # The lease ends by the number of attempts, because a thread may stand still.
                for job in held:
                    job._until = 0 if len(timeouts) > 3 else float("inf")
                raise failure

            def settle(self, items):
                return [{"outcome": "lost"}]

        delivery = {"id": "a", "token": "t", "headers": {}, "epoch": 1, "failures": 0, "payload": "1"}

        def handle(job):
            cancelled.append(job.cancelled.wait(20))
            if len(cancelled) == 2:
                worker.stop()

        for failure in (OSError("no answer"), ApiError(503, {"class": "not_executed"})):
            jobs, timeouts, cancelled = [], [], []
            worker = Worker(Cut("http://localhost", "q"), handle, concurrency=1, lease=0.6)
            worker.run(signals=False)
            self.assertEqual(cancelled, [True, True])
            # Tried again before the lease ended.
            self.assertTrue(len(timeouts) > 3 and max(timeouts) <= 0.1, timeouts)

    def test_no_duration_is_rounded_down(self):
        job = Job({"id": "a", "token": "t", "headers": {}, "epoch": 1, "failures": 0})
        for seconds, expected in ((1.0004, "1001ms"), (0.0005, "1ms"), (1.1, "1100ms"), (0, "0ms")):
            self.assertEqual(job.settlement(Snooze(seconds))["delay"], expected)
        with self.assertRaises(ValueError):
            job.settlement(Snooze(float("nan")))

    def test_a_token_that_no_header_can_have_is_refused_and_not_quoted(self):
        for token in ("hunter2\n", "hunter2\r\nx: y", "hunter2\0", "hunter2\u20ac"):
            with self.assertRaises(ValueError) as refused:
                Client("http://localhost", "q", token=token)
            self.assertIn("the token", str(refused.exception))
            self.assertNotIn("hunter2", repr(refused.exception))

    def test_an_update_has_a_token(self):
        class Recorder(Client):
            def call(self, method, path, body=None, timeout=15.0):
                return body

        client = Recorder("http://localhost", "q")
        first, second = (client.send("x", id="a", update="replace") for _ in range(2))
        self.assertRegex(first["update_token"], "^[0-9a-f]{16}$")
        self.assertNotEqual(first["update_token"], second["update_token"])
        own = client.send("x", id="a", update="replace", update_token="0" * 15 + "1")
        self.assertEqual(own["update_token"], "0" * 15 + "1")
        self.assertNotIn("update_token", client.send("x", id="a"))

    def test_a_send_that_could_be_a_second_message_is_not_repeated(self):
        class Lost(Client):
            def _call(self, *args):
                calls.append(args)
                self._own.is_sent = is_sent
                if len(calls) == 1:
                    raise OSError("the answer is lost")
                return {}

        for is_sent, fields, count in [
            (True, {"id": "a"}, 2),
            (True, {"id": "a", "reuse_finished_id": True}, 1),
            (False, {"id": "a", "reuse_finished_id": True}, 2),
            (True, {"id": "a", "reuse_finished_id": True, "update": "replace"}, 2),
            (True, {"id": "a", "throttle": "20s"}, 1),
            (True, {"id": "a", "throttle": "0,5h"}, 2),
            (True, {"id": "a", "throttle": "90000 ms"}, 1),
        ]:
            calls = []
            try:
                Lost("http://localhost", "q").send("x", **fields)
            except OSError:
                pass
            self.assertEqual(len(calls), count, fields)
        of = [({"class": "not_executed"}, 503), ({"type": "about:blank"}, 503), ({"class": "ambiguous"}, 504), ({}, 503)]
        self.assertEqual([ApiError(status, it).is_ambiguous for it, status in of], [False, False, True, True])

    def test_a_bad_gateway_is_repeated_unless_redis_has_refused(self):
        self.assertTrue(ApiError(502, {"detail": "<html>"}).is_retryable)
        self.assertTrue(ApiError(502, {"class": "ambiguous"}).is_retryable)
        self.assertFalse(ApiError(502, {"class": "rejected"}).is_retryable)

    def test_an_answer_of_a_gateway_is_an_error_of_the_client(self):
        class Gateway(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(status)
                self.send_header("location", "https://login.example/")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Gateway)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(f"http://127.0.0.1:{server.server_port}", "q", patience=0)
        for status, body, expected, is_retryable in [
            (502, b"<html>", "502: <html>", True),
            (502, b"null", "502: null", True),
            (502, b'"no server"', '502: "no server"', True),
            (502, b'[{"detail": 1}]', '502: [{"detail": 1}]', True),
            (502, b'{"detail": "none", "errors": ["x", {"index": 0, "detail": "y"}]}', "502: none; item 0: y", True),
            (502, b'{"errors": 1}', "502: no detail", True),
            (302, b"", "302: redirected to https://login.example/; redirects are not followed", False),
            (200, b"", "the answer was cut off, or is no object of JSON: ''", None),
            (200, b"[]", "the answer was cut off, or is no object of JSON: '[]'", None),
            (200, b'{"status": "ok"}', "the answer has no deliveries: {'status': 'ok'}", None),
        ]:
            with self.subTest(status=status, body=body):
                kind = http.client.HTTPException if is_retryable is None else ApiError
                with self.assertRaises(kind) as failed:
                    client.claim()
                self.assertEqual(str(failed.exception), expected)
                self.assertEqual(getattr(failed.exception, "is_retryable", None), is_retryable)
        client.close()
        server.shutdown()
        server.server_close()

    def test_a_worker_repeats_a_claim_that_the_server_refuses(self):
        class Refused(Client):
            def claim(self, *args, **fields):
                raise ApiError(statuses.pop(0), {"class": "rejected"})

        for last in (403, 501):
            statuses = [502, 404, 503, last]
            with self.assertLogs("delayline", "WARNING") as logs, self.assertRaises(ApiError) as ended:
                Worker(Refused("http://localhost", "q"), print).run(signals=False)
            self.assertEqual((ended.exception.status, len(logs.output), statuses), (last, 1, []))

    def test_leases_that_a_server_could_not_renew_last_until_they_end(self):
        class Parted(Client):
            def extend(self, jobs, *args, **fields):
                outcomes = ["extended", "failed", "failed", "missing"]
                raise ApiError(503, {"results": [{"outcome": it, "cancel_requested": False} for it in outcomes]})

        jobs = [Job({"id": it, "token": "t", "headers": {}, "epoch": 1, "failures": 0}) for it in "abcd"]
        until = time.monotonic() + 30
        for job, seconds in zip(jobs, (0, 30, 0, 30)):
            job._until = time.monotonic() + seconds
        worker = Worker(Parted("http://localhost", "q"), print, lease=60)
        self.assertIsInstance(worker._extend(jobs), ApiError)
        self.assertEqual([job.cancelled.is_set() for job in jobs], [False, False, True, True])
        self.assertGreater(jobs[0]._until, until)

    def test_an_outcome_that_is_refused_fails_its_own_message_only(self):
        bad = {
            "unknown": Ack(messages=[{"payload": 1, "queue": "other"}]),
            "long": Snooze(4e9),
            "large": Ack(result="x" * 65_537),
            "unwritable": Ack(messages=[{"payload": {1}}]),
            "nonsense": "acked",
        }
        for _, client in self.each():
            together, ids = threading.Barrier(len(bad) + 3), [*bad, "a", "b", "c"]

            def handle(job):
                together.wait(20)
                return bad.get(job.id)

            for id in ids:
                client.send("x", id=id, max_failures=1, keep_result="1m")
            with running(Worker(client, handle, concurrency=len(ids))):
                wait_until(lambda: counts(client)["dead"] == len(bad))
            self.assertEqual([counts(client)[it] for it in ("acked_total", "dead")], [3, len(bad)])
            error = client.call("GET", "/messages/unknown")["last_error"]
            self.assertIn('unknown field "queue"', error)

    def test_the_next_attempt_has_what_was_saved(self):
        for serve, client in self.each():
            client.send(1, id="a")
            seen, done = [], threading.Event()

            def handle(job):
                seen.append(job.saved)
                if job.failures > 0:
                    done.set()
                    return None
                with self.assertRaises(ValueError):
                    job.save("x" * 5000)
                job.save({"page": 12})
                job.progress(0.4, "page 12 of 30")
                return Retry("the shop does not answer", 0.01)

            with running(Worker(client, handle)):
                self.assertTrue(done.wait(20))
            self.assertEqual(seen, [None, {"page": 12}])
            client.send(1, id="b")
            (job,) = client.claim()
            for saved, expected in [({"checkpoint_base64": "/w=="}, b"\xff"), ({"checkpoint": "page 12"}, "page 12")]:
                client.settle([job.lease() | {"outcome": "release"} | saved])
                (job,) = client.claim()
                self.assertEqual(job.saved, expected)

    def test_a_connection_that_the_server_may_have_closed_is_not_used(self):
        for _, client in self.each(["memory:"]):
            used = []
            for _ in range(2):
                counts(client)
                used.append(client._own.connection.sock)
                client._own.answered -= 25
            self.assertIsNot(*used)

    def test_the_guide_of_webhooks_verifies_signatures(self):
        guide = HERE.parent.parent.parent / "crates/delayline/docs/guides/webhooks.md"
        code = guide.read_text().split("```python\n")[1].split("```")[0]
        program: dict = {}
        exec(code, program)
        sent, body = str(int(time.time())), b'{"test": 2432232314}'
        text = "hunter2hunter2hunter2"
        for secret in (f"whsec_{base64.b64encode(text.encode()).decode()}", text, f"{text}\n"):

            def signed(sent, name="a"):
                digest = hmac.new(text.encode(), f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
                signature = f"v1,{base64.b64encode(digest).decode()}"
                return {"webhook-id": name, "webhook-timestamp": sent, "webhook-signature": signature}

            good = signed(sent)
            self.assertIs(program["verify"](secret, good, body), True)
            bad = [signed(it) for it in (str(int(sent) - 400), "9" * 400, "9" * 5000, "soon", "", "nan")]
            bad += [good | {"webhook-signature": it} for it in ("", "v1,", "v1,\xe9", "v1,\udcff")]
            bad += [good | {"webhook-id": it} for it in ("b", "\udcff")]
            bad += [{name: value for name, value in good.items() if name != it} for it in good]
            for headers in bad:
                self.assertIs(program["verify"](secret, headers, body), False, headers)
            self.assertIs(program["verify"](secret, good, body + b" "), False)

    def test_an_error_without_proper_text_is_a_failure(self):
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        # The first has the name of a file that is not UTF-8.
        errors = {"surrogate": FileNotFoundError("\udcff.txt"), "mute": Mute()}
        for _, client in self.each():

            def handle(job):
                raise errors[job.id]

            for id in errors:
                client.send("x", id=id, max_failures=1)
            with running(Worker(client, handle, concurrency=1)):
                wait_until(lambda: counts(client)["dead"] == len(errors))
            last = [client.call("GET", f"/messages/{id}")["last_error"] for id in errors]
            self.assertEqual(last, ["FileNotFoundError: \\udcff.txt", "Mute"])

    def test_a_signal_ends_a_worker_and_leaves_no_lease(self):
        for serve, client in self.each():
            worker = start_worker(serve, 0)
            client.send("x", id="a")
            wait_until(lambda: counts(client)["acked_total"] == 1)
            begin = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(20), 0)
            # Its poll would have waited for 20 s.
            self.assertLess(time.monotonic() - begin, 15)
            wait_until(lambda: counts(client)["leased"] == 0)
            self.assertEqual(counts(client)["crashed_total"], 0)

    def test_nothing_is_lost_by_kills(self):
        for serve, _ in self.each(LASTING):
            client = Client(serve.at, serve.queue, patience=30)
            with tempfile.NamedTemporaryFile("r") as ledger:
                workers = [start_worker(serve, 0.02, ledger.name) for _ in range(3)]
                ids = [f"m{number}" for number in range(300)]
                for number, id in enumerate(ids):
                    client.send(number, id=id, max_crashes=100)
                    if number in (60, 120, 180):
                        workers[0].kill()
                        workers[0].wait()
                        workers[0] = start_worker(serve, 0.02, ledger.name)
                    if number in (90, 210):
                        serve.stop(signal.SIGKILL)
                        serve.start()
                wait_until(lambda: counts(client)["acked_total"] == len(ids), 60)
                for worker in workers:
                    worker.send_signal(signal.SIGTERM)
                    self.assertEqual(worker.wait(30), 0)
                handled = [line.split() for line in ledger.read().splitlines()]
            self.assertEqual({id for id, _ in handled}, set(ids))
            # Messages come again if a lease ends meanwhile. No lease goes to two workers: its epoch
            # is its own.
            self.assertEqual(len(handled), len(set(map(tuple, handled))))
            self.assertEqual([counts(client)[it] for it in ("leased", "ready", "dead")], [0, 0, 0])
            client.close()

    def test_nothing_is_lost_by_cut_connections(self):
        for serve, direct in self.each():
            cuts = Cuts(serve.listen)
            client, seen, live, lock = Client(cuts.at, serve.queue, patience=30), set(), set(), threading.Lock()
            twice = []

            def handle(job):
                with lock:
                    seen.add(job.id)
                    twice.extend([job.id] if job.id in live and not job.cancelled.is_set() else [])
                    live.add(job.id)
                time.sleep(0.005)
                with lock:
                    live.discard(job.id)

            # Cut where no close is seen, a lease lasts until its deadline.
            workers = [Worker(client, handle, concurrency=4, lease=3) for _ in range(2)]
            ids = {f"m{number}" for number in range(300)}
            with running(*workers):
                for id in ids:
                    client.send("x", id=id, max_crashes=1000)
                wait_until(lambda: counts(direct)["acked_total"] == len(ids), 60)
            cuts.end()
            client.close()
            self.assertGreater(cuts.count, 20)
            self.assertEqual((seen, twice), (ids, []))
            self.assertEqual([counts(direct)[it] for it in ("leased", "ready", "dead")], [0, 0, 0])


@contextlib.contextmanager
def running(*workers):
    threads = [threading.Thread(target=it.run, args=(False,), daemon=True) for it in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def wait_until_renewed(client, id):
    def deadline():
        return client.call("GET", f"/messages/{id}")["deadline"]

    first = deadline()
    wait_until(lambda: deadline() != first)


def counts(client):
    return client.call("GET", "")


def start_worker(serve, pause, ledger=os.devnull):
    """A process that notes each delivery in the ledger, and takes `pause` seconds for it."""
    code = f"""
import os, time
from delayline import Client, Worker
ledger = os.open({ledger!r}, os.O_WRONLY | os.O_APPEND)
def handle(job):
    os.write(ledger, f"{{job.id}} {{job.epoch}}\\n".encode())
    time.sleep({pause})
Worker(Client({serve.at!r}, {serve.queue!r}), handle, lease=2).run()
"""
    env = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()
