"""The programs of crates/delayline/docs/guides/aws-sdk.md, run as they are printed there.

DELAYLINE_PROGRAMS is a directory with the packages of Node that they need. DELAYLINE_RUST_PROGRAM is
the program in Rust, built; without it, that one is left out.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import boto3

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "clients"))

from harness import SERVERS, Serve, wait_until  # noqa: E402

GUIDE = (ROOT / "crates/delayline/docs/guides/aws-sdk.md").read_text()
PROGRAMS = re.findall(r"^```[\w,]+\n((?:#|//) (\S+\.\w+)\n.*?)^```$", GUIDE, re.M | re.S)
RUST = [os.environ[it] for it in ["DELAYLINE_RUST_PROGRAM"] if it in os.environ]
RUNS = {".py": [sys.executable, "-u"], ".mjs": ["node"]}


class Guide(unittest.TestCase):
    def setUp(self):
        # The packages of Node are found in a directory above.
        self.place = pathlib.Path(tempfile.mkdtemp(dir=os.environ["DELAYLINE_PROGRAMS"]))
        self.addCleanup(shutil.rmtree, self.place)
        for text, name in PROGRAMS:
            (self.place / name).write_text(text)
        self.serve = Serve((SERVERS or ["memory:"])[0], sqs=True)
        self.addCleanup(self.serve.stop)
        self.sqs = client(self.serve)
        self.addCleanup(self.sqs.close)
        for queue in self.sqs.list_queues().get("QueueUrls", []):
            self.sqs.delete_queue(QueueUrl=queue)

    def start(self, *command, **env):
        env = os.environ | {
            "AWS_ENDPOINT_URL_SQS": self.serve.sqs_at,
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "NODE_NO_WARNINGS": "1",
            "CELERY_BROKER_URL": f"sqs://any:any@{self.serve.sqs}",
        } | env
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, cwd=self.place, env=env, **pipes)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_program(self, name, **env):
        command = RUST if name == "main.rs" else [*RUNS[pathlib.Path(name).suffix], name]
        process = self.start(*command, **env)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, output)
        return output

    def test_each_program_is_run(self):
        names = {name for _, name in PROGRAMS}
        self.assertEqual(
            names, {"orders.py", "orders.mjs", "consumer.mjs", "main.rs", "tasks.py", "import.py"}
        )

    def test_sdks(self):
        for name in ["orders.py", "orders.mjs"] + ["main.rs"] * len(RUST):
            self.assertEqual(self.run_program(name), "order 1\n", name)

    def test_sqs_consumer(self):
        queue = self.sqs.create_queue(QueueName="orders")["QueueUrl"]
        consumer = self.start("node", "consumer.mjs")
        for n in (1, 2):
            self.sqs.send_message(QueueUrl=queue, MessageBody=f"order {n}")
            self.assertEqual(consumer.stdout.readline(), f"order {n}\n")
        wait_until(lambda: self.remaining(queue) == 0)
        consumer.send_signal(signal.SIGTERM)
        self.assertEqual(consumer.communicate(timeout=60), ("", None))
        self.assertEqual(consumer.returncode, 0)

    def test_celery_runs_a_task_once_at_its_time(self):
        countdown, attributes = 12, {"VisibilityTimeout": "3"}
        queue = self.sqs.create_queue(QueueName="celery", Attributes=attributes)["QueueUrl"]
        worker, call = re.findall(r"^celery (.*)$", GUIDE, re.M)
        celery = [sys.executable, "-m", "celery"]
        worker = self.start(*celery, *shlex.split(worker))
        begin = time.monotonic()
        call = self.start(*celery, *shlex.split(call.replace("7200", str(countdown))))
        output, _ = call.communicate(timeout=60)
        self.assertEqual(call.returncode, 0, output)
        sent, log = time.monotonic(), []
        while not log or "reminder of order 1" not in log[-1]:
            log.append(worker.stdout.readline())
            self.assertTrue(log[-1], log)
        now = time.monotonic()
        self.assertTrue(begin + countdown <= now <= sent + countdown + 2, (begin, sent, now))
        wait_until(lambda: self.remaining(queue) == 0)
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=60)
        self.assertEqual((output.count("reminder"), worker.returncode), (0, 0), output)
        # Received once: it was not visible while it waited.
        with urllib.request.urlopen(f"{self.serve.at}/api/v1/queues/celery") as answer:
            self.assertEqual(json.load(answer)["delivered_total"], 1)

    def test_import(self):
        with Serve("memory:", sqs=True) as source:
            sqs = client(source)
            queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
            shop = {"shop": {"DataType": "String", "StringValue": "9"}}
            send = {"QueueUrl": queue, "MessageBody": "order 1", "MessageGroupId": "shop-9"}
            binary = {"shop": {"DataType": "Binary", "BinaryValue": b"\xff"}}
            stays = sqs.send_message(**send, MessageAttributes=binary)["MessageId"]
            send["MessageAttributes"] = shop
            sent = [sqs.send_message(**send)["MessageId"] for _ in range(15)]
            env = {"AWS_ENDPOINT_URL_SQS": source.sqs_at, "DELAYLINE": self.serve.at}
            output = self.run_program("import.py", **env)
            self.assertEqual(output, f"{stays} stays: it has a binary attribute\n")
            sqs.close()
        queue, received = self.sqs.create_queue(QueueName="orders")["QueueUrl"], []
        while len(received) < len(sent):
            wanted = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
            wanted["MessageSystemAttributeNames"] = ["MessageGroupId"]
            messages = self.sqs.receive_message(QueueUrl=queue, **wanted)["Messages"]
            for message in messages:
                self.assertEqual((message["Body"], message["MessageAttributes"]), ("order 1", shop))
                self.assertEqual(message["Attributes"], {"MessageGroupId": "shop-9"})
            received += [message["MessageId"] for message in messages]
        self.assertEqual(sorted(received), sorted(sent))

    def remaining(self, queue):
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return sum(map(int, counts.values()))


def client(serve):
    return boto3.client(
        "sqs",
        endpoint_url=serve.sqs_at,
        region_name="eu-central-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


if __name__ == "__main__":
    unittest.main()
