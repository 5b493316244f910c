"""Delayline over HTTP: send messages, and handle them in a worker.

Needs a `delayline serve` and the standard library. A request is repeated until it is answered or
`patience` is over, except for messages that could be sent twice: see `Client.send`.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import logging
import math
import os
import queue
import random
import re
import signal
import socket
import threading
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Callable, Optional, Union, get_args

log = logging.getLogger("delayline")


class ApiError(Exception):
    """A problem that the server has answered with. `problem` is its JSON."""

    def __init__(self, status: int, problem: dict[str, Any]):
        # A gateway may have answered with other JSON.
        errors = problem.get("errors")
        errors = [it for it in errors if isinstance(it, dict)] if isinstance(errors, list) else []
        items = [f"; item {it.get('index')}: {it.get('detail')}" for it in errors]
        super().__init__(f"{status}: {problem.get('detail', 'no detail')}{''.join(items[:3])}")
        self.status, self.problem = status, problem

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        # A 502 may come from a proxy. If Redis has refused the request, the problem has a class.
        return self.status in (408, 429, 500, 502, 503, 504) and self.problem.get("class") != "rejected"

    @property
    def is_ambiguous(self) -> bool:
        """Whether the request may have been executed."""
        if "class" in self.problem:
            return self.problem["class"] == "ambiguous"
        # Without a type, it comes from a proxy, which may have passed the request on.
        return self.status in (500, 502, 504) or self.status == 503 and "type" not in self.problem


@dataclass(frozen=True)
class Ack:
    """Handled. Keeps `result` if the sender asks for one, and sends `messages` in the same step."""

    result: Any = None
    messages: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Retry:
    """Failed. Due again after `delay` seconds, or after the backoff of the server."""

    error: str
    delay: Optional[float] = None


@dataclass(frozen=True)
class Snooze:
    """Due again after `delay` seconds; nothing is counted."""

    delay: float


@dataclass(frozen=True)
class Release:
    """Not handled: ready again at once; nothing is counted."""


@dataclass(frozen=True)
class Reject:
    """Hopeless: becomes a dead letter."""

    error: str


Outcome = Union[Ack, Retry, Snooze, Release, Reject]


class Job:
    """A leased message. `delivery` is all that the server has said of it."""

    def __init__(self, delivery: dict[str, Any]):
        self.delivery = delivery
        self.id: Any = delivery.get("id", delivery.get("id_base64"))
        self.headers: dict[str, str] = delivery["headers"]
        #: The group of the message, such as a tenant.
        self.group: Optional[str] = delivery.get("group")
        #: The messages that this one has waited for: `why`, and `ended` with the state of each.
        self.members: Optional[dict[str, Any]] = delivery.get("members")
        self.epoch: int = delivery["epoch"]
        self.failures: int = delivery["failures"]
        #: What this attempt has saved: the latest of each part, as members of a request.
        self._saves: dict[str, Any] = {}
        #: Set when the message was cancelled or its lease is lost: stop, the outcome hardly counts.
        self.cancelled = threading.Event()
        #: When the lease has ended for certain, by `time.monotonic`. A worker sets it.
        self._until = float("inf")

    @property
    def payload(self) -> bytes:
        if "payload" in self.delivery:
            return self.delivery["payload"].encode()
        return base64.b64decode(self.delivery["payload_base64"])

    def json(self) -> Any:
        """Returns the payload as a value of JSON."""
        return json.loads(self.payload)

    @property
    def saved(self) -> Any:
        """What an earlier attempt has saved with `save`; None if it has saved nothing.

        Another client may have saved other content: text that is not JSON is returned as text, and
        what is not UTF-8 as bytes.
        """
        if "checkpoint_base64" in self.delivery:
            return base64.b64decode(self.delivery["checkpoint_base64"])
        text = self.delivery.get("checkpoint")
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return text

    def save(self, state: Any) -> None:
        """Saves a state, as JSON of up to 4 KiB: the next attempt has it in `saved`.

        A worker stores it when it renews the lease, and with the outcome. A crash can lose what was
        saved since the latest renewal.
        """
        checkpoint = json.dumps(state, separators=(",", ":"), ensure_ascii=False)
        if len(checkpoint.encode()) > 4096:
            raise ValueError("a saved state has at most 4096 bytes")
        self._saves = self._saves | {"checkpoint": checkpoint}

    def progress(self, done: float, text: str = "") -> None:
        """Shows how far this attempt is: a share from 0 to 1, and a text of up to 256 bytes."""
        text = text.encode(errors="backslashreplace")[:256].decode(errors="ignore")
        self._saves = self._saves | {"progress": min(max(0.0, done), 1.0), "progress_text": text}

    def lease(self) -> dict[str, Any]:
        """Returns what names the lease in requests."""
        names = ("id", "id_base64", "token")
        return {name: self.delivery[name] for name in names if name in self.delivery}

    def settlement(self, outcome: Outcome) -> dict[str, Any]:
        """Returns the item of a settlement that ends the lease with this outcome."""
        if not isinstance(outcome, get_args(Outcome)):
            raise TypeError(f"a handler returns an outcome or None, not {type(outcome).__name__}")
        item = self.lease() | {"outcome": type(outcome).__name__.lower()}
        if not isinstance(outcome, Ack):
            item |= self._saves
        if isinstance(outcome, Ack):
            keep = self.delivery.get("keep_result")
            if keep is not None and outcome.result is not None:
                item |= {"keep_result": keep} | named("result", outcome.result)
            if outcome.messages:
                # Repeated, a message keeps its id.
                item["messages"] = [{"id": str(uuid.uuid4())} | it for it in outcome.messages]
        if isinstance(outcome, (Retry, Reject)):
            # A lone surrogate, as in a file's name that is not UTF-8, is not text for the server.
            error = outcome.error.encode(errors="backslashreplace")
            item["error"] = error[:1024].decode(errors="ignore")
        if isinstance(outcome, (Retry, Snooze)) and outcome.delay is not None:
            item["delay"] = ms(outcome.delay)
        return item


class Client:
    """One queue behind a `delayline serve`. Threads can share it; each has its own connection."""

    def __init__(self, url: str, queue: str, token: Optional[str] = None, patience: float = 10.0):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL must be http://HOST:PORT or https://HOST:PORT")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._kind, self._at = kinds[parts.scheme], (parts.hostname, parts.port)
        name = urllib.parse.quote(queue, safe="")
        self._base = f"{parts.path.rstrip('/')}/api/v1/queues/{name}"
        self._headers = {"content-type": "application/json"}
        if token is not None:
            if not (token.isascii() and token.isprintable()):
                # `http.client` would refuse it, too, with an error that quotes it.
                raise ValueError("the token has a line break, or another character that no header can have")
            self._headers["authorization"] = f"Bearer {token}"
        self.patience = patience
        self._own: Any = threading.local()

    def send(self, payload: Any, **fields: Any) -> dict[str, Any]:
        """Sends a message. `fields` are those of the API: `id`, `delay="30m"`, `group`, `after` ...

        If the answer is lost, the send is repeated, unless the first one could have been handled
        and the second one be a new message: with `reuse_finished_id`, or with a `throttle` that may
        have passed by then. Then it raises the error, and the message may have been sent.
        """
        message = fields | named("payload", payload)
        if "throttle" not in fields and "update" not in fields:
            # These two compare by id: under a new one, each send would be a new message.
            message.setdefault("id", str(uuid.uuid4()))
        if "update" in fields:
            # Repeated, an update changes nothing.
            message.setdefault("update_token", uuid.uuid4().hex[:16])
        return self.call("POST", "/messages", message)

    def claim(self, max: int = 1, wait: float = 20.0, lease: float = 30.0, **fields: Any) -> list[Job]:
        """Leases messages. With `consumer` and `claim_id`, the claim can be repeated. In a queue in
        order, `several_in_order=True` leases several of a group: handle them one after the other."""
        body = {"max": max, "wait": ms(wait), "lease": ms(lease)} | fields
        claimed = self.call("POST", "/claim", body, timeout=wait + 10)
        return [Job(delivery) for delivery in listed("deliveries", claimed)]

    def settle(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ends leases with items of `Job.settlement`. Returns what became of each."""
        return listed("results", self.call("POST", "/settle", {"settlements": items}))

    def extend(self, jobs: list[Job], lease: float = 30.0, timeout: float = 15.0) -> list[dict[str, Any]]:
        """Lets each lease last for `lease` seconds from now, and stores what the jobs have saved."""
        leases = [job.lease() | job._saves for job in jobs]
        return listed("results", self.call("POST", "/extend", {"leases": leases, "lease": ms(lease)}, timeout))

    def call(self, method: str, path: str, body: Any = None, timeout: float = 15.0) -> Any:
        """Makes a request, and repeats it while the server cannot be reached or cannot do it.

        A request that may have been executed is not repeated if it has messages that could then be
        sent twice: see `send`.
        """
        give_up, pause = time.monotonic() + self.patience, 0.05
        messages = (body if isinstance(body, list) else [body]) if path == "/messages" else []
        # The server may execute the last repetition as late as that.
        once = not all(is_repeatable(it, self.patience + timeout) for it in messages)
        if once:
            # The server may have closed an idle connection: then an error would be ambiguous.
            self.close()
        while True:
            try:
                return self._call(method, path, body, timeout)
            except (OSError, http.client.HTTPException, ApiError) as error:
                is_over = time.monotonic() + pause > give_up
                if is_over or isinstance(error, ApiError) and not error.is_retryable:
                    raise
                is_clear = isinstance(error, ApiError) and not error.is_ambiguous
                if once and self._own.is_sent and not is_clear:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, 2)

    def _call(self, method: str, path: str, body: Any, timeout: float) -> Any:
        self._own.is_sent = False
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._kind(*self._at)
        if time.monotonic() - getattr(self._own, "answered", 0) > 20:
            # The server closes a connection that is idle for 30 s.
            connection.close()
        try:
            connection.timeout = timeout
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout)
            text = None if body is None else json.dumps(body)
            self._own.is_sent = True
            connection.request(method, self._base + path, text, self._headers)
            response = connection.getresponse()
            answer = response.read()
            self._own.answered = time.monotonic()
        except BaseException:
            connection.close()
            raise
        try:
            value = json.loads(answer)
        except ValueError:
            value = None
        if 300 <= response.status < 400:
            place = response.getheader("location")
            raise ApiError(response.status, {"detail": f"redirected to {place}; redirects are not followed"})
        is_problem = response.status >= 400
        if not isinstance(value, dict):
            text = answer[:200].decode(errors="replace")
            if not is_problem:
                # Cut within its head, an answer has no length to miss.
                connection.close()
                raise http.client.HTTPException(f"the answer was cut off, or is no object of JSON: {text!r}")
            value = {"detail": text}
        if is_problem:
            raise ApiError(response.status, value)
        return value

    def alone(self) -> Client:
        """Returns the same client with one connection, for one thread, which `cut` can cut."""
        other = copy.copy(self)
        other._own = SimpleNamespace()
        return other

    def close(self) -> None:
        """Closes the connection of this thread. The next request opens another one."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """Ends the request under way with an error. Safe in a signal handler."""
        connection = getattr(self._own, "connection", None)
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Worker:
    """Handles messages in `concurrency` threads, and renews their leases meanwhile.

    What the handler returns is the outcome; nothing means `Ack()`, and an exception is a failure.
    """

    def __init__(
        self,
        client: Client,
        handler: Callable[[Job], Optional[Outcome]],
        concurrency: int = 4,
        lease: float = 30.0,
        consumer: Optional[str] = None,
    ):
        self.client, self.handler = client, handler
        self.concurrency, self.lease = concurrency, lease
        self.consumer = consumer or f"python-{os.getpid()}-{uuid.uuid4().hex[:16]}"
        self.settled = 0
        self._claims, self._renewals = client.alone(), client.alone()
        self._claims.patience = self._renewals.patience = 0
        self._stopping = self._is_waiting = False
        #: By identity: the messages of one claim have the same token.
        self._held: dict[int, Job] = {}
        self._free = threading.Semaphore(concurrency)
        #: Of jobs that are claimed and not settled: a server may refuse outcomes for long.
        self._room = threading.Semaphore(2 * concurrency + 100)
        self._ends: queue.SimpleQueue[Optional[tuple[Job, dict[str, Any]]]] = queue.SimpleQueue()
        self._done = threading.Event()

    def stop(self) -> None:
        """Ends `run`: claims no more, and lets handlers finish. Safe in a signal handler."""
        self._stopping = True
        threading.Thread(target=self._cut, daemon=True).start()

    def _cut(self) -> None:
        while not self._done.is_set():
            if self._is_waiting:
                self._claims.cut()
            time.sleep(0.02)

    def run(self, signals: bool = True) -> None:
        """Works until `stop`; with `signals`, which needs the main thread, until SIGTERM or SIGINT."""
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        others = [threading.Thread(target=it) for it in (self._renew, self._settle)]
        for other in others:
            other.start()
        try:
            with ThreadPoolExecutor(self.concurrency) as handlers:
                self._claim(handlers)
        finally:
            self._ends.put(None)
            self._done.set()
            self._claims.close()
            for other in others:
                other.join()

    def _claim(self, handlers: ThreadPoolExecutor) -> None:
        claim_id, free, pause, tell_at = "", 0, 0.05, 0.0
        while not self._stopping:
            if not claim_id:
                self._take_place(blocking=True)
                if self._stopping:
                    break
                claim_id, free = str(uuid.uuid4()), 1
                while free < self.concurrency and self._take_place(blocking=False):
                    free += 1
            fields = {"lease": self.lease, "consumer": self.consumer, "claim_id": claim_id}
            try:
                self._is_waiting = True
                jobs = self._claims.claim(free, **fields)
            except (OSError, http.client.HTTPException, ApiError) as error:
                # A server that refuses, such as a Redis with another password, may be set right.
                is_of_worker = isinstance(error, ApiError) and (error.status < 500 or error.status == 501)
                if is_of_worker and not error.is_retryable and error.status != 404:
                    raise
                # The same claim is repeated: it returns the leases that it may have been granted.
                if not self._stopping:
                    if time.monotonic() >= tell_at:
                        log.warning("a claim failed; trying again, logged each minute: %s", error)
                        tell_at = time.monotonic() + 60
                    time.sleep(pause)
                    pause = min(pause * 2, 2)
                if not self._stopping:
                    continue
                jobs = self._take_back(free, fields)
            finally:
                self._is_waiting = False
            claim_id, pause, tell_at, until = "", 0.05, 0.0, time.monotonic() + self.lease
            for job in jobs:
                job._until = until
                self._held[id(job)] = job
                handlers.submit(self._handle, job)
            for _ in range(free - len(jobs)):
                self._free.release()
                self._room.release()

    def _take_place(self, blocking: bool) -> bool:
        if not self._free.acquire(blocking=blocking):
            return False
        if not self._room.acquire(blocking=blocking):
            self._free.release()
            return False
        return True

    def _take_back(self, free: int, fields: dict[str, Any]) -> list[Job]:
        """Repeats the claim that a stop has cut: its leases would last until their deadline."""
        try:
            return self.client.claim(free, wait=0, **fields)
        except (OSError, http.client.HTTPException, ApiError):
            return []

    def _handle(self, job: Job) -> None:
        outcome: Optional[Outcome] = Release()
        try:
            if not self._stopping:
                outcome = self.handler(job)
            item = job.settlement(Ack() if outcome is None else outcome)
            json.dumps(item)  # a result that is no JSON fails this job, and no other
        except BaseException as error:
            log.warning("the handler of %s failed", job.id, exc_info=True)
            item = job.settlement(Retry(described(error)))
        self._ends.put((job, item))
        self._free.release()

    def _settle(self) -> None:
        """Settles what has ended, all of it at once."""
        is_last = False
        while not is_last:
            ended, end = [], self._ends.get()
            while end is not None:
                ended.append(end)
                if len(ended) == 100 or self._ends.empty():
                    break
                end = self._ends.get()
            is_last = end is None
            if ended:
                self._settle_each(ended)
            for job, _ in ended:
                self._held.pop(id(job), None)
                self._room.release()
        self.client.close()

    def _settle_each(self, ended: list[tuple[Job, dict[str, Any]]], again: bool = False) -> None:
        """Settles jobs. If the server refuses an outcome, the job has failed; others are settled."""
        try:
            results = self.client.settle([item for _, item in ended])
            self.settled += sum(it["outcome"].endswith("settled") for it in results)
        except Exception as error:
            is_refused = isinstance(error, ApiError) and error.status in (400, 413)
            if is_refused and len(ended) > 1:
                half = len(ended) // 2
                self._settle_each(ended[:half])
                self._settle_each(ended[half:])
            elif is_refused and not again:
                job, _ = ended[0]
                log.warning("the outcome of %s was refused: %s", job.id, error)
                failed = job.settlement(Retry(f"the outcome was refused: {error}"))
                self._settle_each([(job, failed)], again=True)
            else:
                # Their leases expire, and the messages are delivered again.
                log.error("%d messages could not be settled: %s", len(ended), error)

    def _renew(self) -> None:
        pause, tell_at = self.lease / 3, 0.0
        while not self._done.wait(pause):
            jobs, pause = self._renewable(), self.lease / 3
            for first in range(0, len(jobs), 1000):
                error = self._extend(jobs[first : first + 1000])
                if error is None:
                    tell_at = 0.0
                    continue
                # Several times more before they end.
                pause = self.lease / 30
                if time.monotonic() >= tell_at:
                    log.warning("leases could not be renewed; logged each minute: %s", error)
                    tell_at = time.monotonic() + 60
            # By the next time, the server may have closed it.
            self._renewals.close()

    def _extend(self, jobs: list[Job]) -> Optional[Exception]:
        """Renews leases. Returns the error if some could not be renewed."""
        now, failure = time.monotonic(), None
        try:
            results = self._renewals.extend(jobs, self.lease, timeout=min(15, self.lease / 6))
        except Exception as error:
            failure = error
            problem = error.problem if isinstance(error, ApiError) else {}
            results = problem.get("results") or [{"outcome": "failed"}] * len(jobs)
        for job, result in zip(jobs, results):
            is_lost = result["outcome"] != "extended"
            if result["outcome"] == "extended":
                job._until = now + self.lease
            elif result["outcome"] == "failed":
                is_lost = time.monotonic() >= job._until
            if is_lost or result.get("cancel_requested"):
                job.cancelled.set()
        return failure

    def _renewable(self) -> list[Job]:
        """Returns the latest job of each message. An earlier one has lost its lease, and stops."""
        latest: dict[tuple[Any, Any], Job] = {}
        for job in list(self._held.values()):
            message = job.delivery.get("id"), job.delivery.get("id_base64")
            if message in latest:
                latest[message].cancelled.set()
            latest[message] = job
        return list(latest.values())


def named(name: str, value: Any) -> dict[str, Any]:
    """Returns the member for a value: bytes in base64, text and all else as JSON."""
    if isinstance(value, (bytes, bytearray)):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


def listed(name: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a list of an answer. A gateway may have answered with other JSON."""
    if not isinstance(answer.get(name), list):
        raise http.client.HTTPException(f"the answer has no {name}: {str(answer)[:200]}")
    return answer[name]


def is_repeatable(message: Any, seconds: float) -> bool:
    """Whether a message can be sent again for so long, and is no second message."""
    if not isinstance(message, dict):
        return True
    if "id" not in message and "id_base64" not in message:
        return False
    if "update" in message:
        return "update_token" in message
    if "throttle" in message:
        parts = re.findall(r"(\d+(?:[.,]\d+)?)\s*([a-z]+)", str(message["throttle"]).lower())
        return sum(float(n.replace(",", ".")) * UNITS.get(unit, 0) for n, unit in parts) > seconds
    return not message.get("reuse_finished_id")


#: Others count as nothing.
UNITS = {"s": 1, "m": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400}


def described(error: BaseException) -> str:
    """Returns the error as text, even if it has no text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


def ms(seconds: float) -> str:
    """Returns seconds as the API has durations: rounded up, so that nothing is early."""
    if not math.isfinite(seconds):
        raise ValueError(f"a duration is a finite number of seconds, not {seconds}")
    # A product such as 1.1 * 1000 is not exact.
    return f"{max(0, math.ceil(round(seconds * 1000, 6)))}ms"
