"""`delayline serve --sqs` through boto3 while clients, servers and connections fail.

A ledger has a line for the begin and the end of each receipt. Nothing may be lost, no
receipt may be live twice, and a group of a FIFO queue has one message at a time, in order.
"""

import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from consumer import TIMEOUT, client, patiently  # noqa: E402
from harness import LASTING, URLS, Cuts, Redis, Serve, wait_until  # noqa: E402

CONSUMER = str(HERE / "consumer.py")


class Faults(unittest.TestCase):
    def queue(self, sqs, suffix=""):
        attributes = {"VisibilityTimeout": str(TIMEOUT)} | ({"FifoQueue": "true"} if suffix else {})
        name = f"q-{uuid.uuid4()}{suffix}"
        return patiently(sqs.create_queue, QueueName=name, Attributes=attributes)["QueueUrl"]

    def remaining(self, sqs, queue):
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        kwargs = {"QueueUrl": queue, "AttributeNames": names}
        answer = patiently(sqs.get_queue_attributes, **kwargs)
        return sum(map(int, answer["Attributes"].values()))

    def play(self, serve, sqs, suffix, faults, messages=60, through=None):
        """Sends messages of 4 groups, with faults in between, and checks the ledger."""
        # boto3 takes an answer whose head is cut for one without content, so only what is repeated
        # anyway goes through the cuts.
        sender, queue = client(through) if through else sqs, self.queue(sqs, suffix)
        with tempfile.NamedTemporaryFile("r") as ledger:

            def start():
                args = [sys.executable, "-B", CONSUMER, through or serve.sqs_at, queue, ledger.name]
                return subprocess.Popen(args, stderr=subprocess.DEVNULL)

            consumers = [start() for _ in range(3)]
            try:
                bodies = []
                for number in range(messages):
                    group = f"g{number % 4}"
                    kwargs = {"QueueUrl": queue, "MessageBody": f"{group}-{number}"}
                    if suffix:
                        # So a repeated send is no second message.
                        unique = {"MessageDeduplicationId": f"d{number}"}
                        kwargs |= {"MessageGroupId": group} | unique
                    patiently(sender.send_message, **kwargs)
                    bodies.append(kwargs["MessageBody"])
                    for fault in faults.get(number, ()):
                        if fault == "consumer":
                            consumers[0].kill()
                            consumers[0].wait()
                            consumers[0] = start()
                        else:
                            fault()
                wait_until(lambda: self.remaining(sqs, queue) == 0, 120)
            finally:
                for consumer in consumers:
                    consumer.kill()
                    consumer.wait()
            self.check([line.split() for line in ledger.read().splitlines()], bodies, bool(suffix))
        sqs.delete_queue(QueueUrl=queue)

    def check(self, lines, bodies, is_fifo):
        receipts = [(id, count) for what, _, id, count in lines if what == "begin"]
        self.assertEqual(len(receipts), len(set(receipts)), "a receipt was live twice")
        self.assertEqual({body for _, body, _, _ in lines}, set(bodies))
        for group in {body.split("-")[0] for body in bodies} if is_fifo else ():
            own = [(what, body) for what, body, _, _ in lines if body.split("-")[0] == group]
            numbers = [int(body.split("-")[1]) for what, body in own if what == "begin"]
            self.assertEqual(numbers, sorted(numbers), group)
            running = None
            for what, body in own:
                # A killed consumer leaves no end: its message begins again.
                self.assertIn(running, (None, body), own)
                running = body if what == "begin" else None

    def test_nothing_is_lost_by_kills(self):
        for url in LASTING:
            for suffix in ("", ".fifo"):
                with self.subTest(url=url.split(":")[0], suffix=suffix), Serve(url, sqs=True) as serve:
                    sqs = client(serve.sqs_at)

                    def restart():
                        serve.stop(signal.SIGKILL)
                        serve.start()

                    faults = {15: ["consumer"], 30: [restart], 45: ["consumer", restart]}
                    self.play(serve, sqs, suffix, faults)

    def test_nothing_is_lost_by_cut_connections(self):
        for url in URLS:
            for suffix in ("", ".fifo"):
                with self.subTest(url=url.split(":")[0], suffix=suffix), Serve(url, sqs=True) as serve:
                    cuts = Cuts(serve.sqs)
                    self.play(serve, client(serve.sqs_at), suffix, {}, through=cuts.at)
                    cuts.end()
                    self.assertGreater(cuts.count, 5)

    def test_nothing_is_lost_when_redis_is_killed(self):
        for suffix in ("", ".fifo"):
            with self.subTest(suffix=suffix), Redis() as redis:
                with Serve(redis.url, sqs=True) as serve:
                    sqs = client(serve.sqs_at)
                    faults = {20: [redis.restart], 40: ["consumer", redis.restart]}
                    self.play(serve, sqs, suffix, faults)


if __name__ == "__main__":
    unittest.main()
