"""`delayline serve --sqs` through boto3: each case has the answer that Amazon SQS gives.

Needs boto3. Runs in memory, in a directory, and on the servers of DELAYLINE_TEST_URLS.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

import boto3
import botocore.config
import botocore.exceptions

BIN = os.environ["DELAYLINE_BIN"]
GUIDES = pathlib.Path(__file__).resolve().parents[3] / "crates/delayline/docs/guides"
PLACE = tempfile.TemporaryDirectory()
URLS = ["memory:", f"file:{PLACE.name}/queues"] + os.environ.get("DELAYLINE_TEST_URLS", "").split()


class Serve:
    """A server, and clients of it."""

    def __init__(self, url, *args):
        env = os.environ | {"DELAYLINE_URL": url}
        command = [BIN, "serve", "--all", "--sqs", "127.0.0.1:0", "--sqs-only", *args]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.at = self.process.stdout.readline().strip().rstrip("/")

    def client(self, key="key", secret="secret"):
        config = botocore.config.Config(retries={"max_attempts": 0}, read_timeout=30)
        return boto3.client(
            "sqs",
            endpoint_url=self.at,
            region_name="eu-central-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()


class Case(unittest.TestCase):
    """Each test runs on every server; a queue has a new name."""

    ARGS = ()

    def run(self, result=None):
        for url in URLS:
            with self.subTest(url=url), Serve(url, *self.ARGS) as serve:
                self.serve, self.sqs = serve, serve.client()
                super().run(result)

    def queue(self, suffix="", **attributes):
        name = f"q-{uuid.uuid4()}{suffix}"
        if suffix == ".fifo":
            attributes["FifoQueue"] = "true"
        return self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def arn(self, queue):
        names = ["QueueArn"]
        answer = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)
        return answer["Attributes"]["QueueArn"]

    def receive(self, queue, **kwargs):
        kwargs = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]} | kwargs
        return self.sqs.receive_message(QueueUrl=queue, **kwargs).get("Messages", [])

    def delete(self, queue, message):
        self.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])

    def fails(self, name, call, **kwargs):
        """The call fails with this exception of the client, or this code."""
        modelled = getattr(self.sqs.exceptions, name, None)
        with self.assertRaises(modelled or botocore.exceptions.ClientError) as caught:
            call(**kwargs)
        if modelled is None:
            self.assertEqual(caught.exception.response["Error"]["Code"], name)
        return caught.exception


class Standard(Case):
    def test_a_message_with_attributes(self):
        queue = self.queue()
        attributes = {
            "text": {"DataType": "String.custom", "StringValue": "ä"},
            "number": {"DataType": "Number", "StringValue": "7"},
            "bytes": {"DataType": "Binary", "BinaryValue": b"\xff\x00"},
        }
        trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2-3"}}
        sent = self.sqs.send_message(
            QueueUrl=queue,
            MessageBody="<a>&\r\n\u2028",
            MessageAttributes=attributes,
            MessageSystemAttributes=trace,
        )
        uuid.UUID(sent["MessageId"])
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        self.assertEqual(message["MessageId"], sent["MessageId"])
        self.assertEqual(message["Body"], "<a>&\r\n\u2028")
        self.assertEqual(message["MD5OfBody"], sent["MD5OfMessageBody"])
        self.assertEqual(message["MessageAttributes"], attributes)
        self.assertEqual(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"])
        system = message["Attributes"]
        self.assertEqual(system["AWSTraceHeader"], "Root=1-2-3")
        self.assertEqual(system["ApproximateReceiveCount"], "1")
        self.assertLess(abs(int(system["SentTimestamp"]) / 1000 - time.time()), 60)
        self.delete(queue, message)

    def test_only_the_wanted_attributes(self):
        queue = self.queue()
        attributes = {name: {"DataType": "String", "StringValue": "x"} for name in ("a.b", "a.c", "d")}
        self.sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=attributes)
        for wanted, expected in (([], set()), (["a.*"], {"a.b", "a.c"}), (["d"], {"d"}), (["e"], set())):
            (message,) = self.receive(
                queue, MessageAttributeNames=wanted, AttributeNames=[], VisibilityTimeout=0, WaitTimeSeconds=5
            )
            self.assertEqual(set(message.get("MessageAttributes", {})), expected)
            self.assertEqual("MD5OfMessageAttributes" in message, bool(expected))
            self.assertNotIn("Attributes", message)

    def test_batches(self):
        queue = self.queue()
        entries = [{"Id": str(n), "MessageBody": f"body {n}"} for n in range(10)]
        answer = self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        self.assertEqual([it["Id"] for it in answer["Successful"]], [str(n) for n in range(10)])
        self.assertNotIn("Failed", answer)
        messages = self.receive(queue, MaxNumberOfMessages=10)
        self.assertEqual({it["Body"] for it in messages}, {f"body {n}" for n in range(10)})
        handles = [{"Id": str(n), "ReceiptHandle": it["ReceiptHandle"]} for n, it in enumerate(messages)]
        changes = [entry | {"VisibilityTimeout": 60} for entry in handles[:2]]
        answer = self.sqs.change_message_visibility_batch(QueueUrl=queue, Entries=changes)
        self.assertEqual(len(answer["Successful"]), 2)
        wrong = {"Id": "wrong", "ReceiptHandle": "wrong"}
        answer = self.sqs.delete_message_batch(QueueUrl=queue, Entries=handles[:9] + [wrong])
        self.assertEqual(len(answer["Successful"]), 9)
        (failed,) = answer["Failed"]
        self.assertEqual((failed["Id"], failed["Code"]), ("wrong", "ReceiptHandleIsInvalid"))
        self.assertTrue(failed["SenderFault"])

    def test_wrong_batches(self):
        queue = self.queue()
        entry = {"Id": "a", "MessageBody": "x"}
        long = {"MessageBody": "x" * 600_000}
        for name, entries in (
            ("EmptyBatchRequest", []),
            ("TooManyEntriesInBatchRequest", [entry | {"Id": str(n)} for n in range(11)]),
            ("BatchEntryIdsNotDistinct", [entry, entry]),
            ("InvalidBatchEntryId", [entry | {"Id": "a b"}]),
            ("BatchRequestTooLong", [entry | long, entry | long | {"Id": "b"}]),
        ):
            self.fails(name, self.sqs.send_message_batch, QueueUrl=queue, Entries=entries)

    def test_visibility(self):
        queue = self.queue(VisibilityTimeout="600")
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (first,) = self.receive(queue, WaitTimeSeconds=5)
        self.assertEqual(self.receive(queue), [])
        handle = first["ReceiptHandle"]
        self.sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
        (second,) = self.receive(queue, WaitTimeSeconds=5)
        self.assertEqual(second["Attributes"]["ApproximateReceiveCount"], "2")
        # An old receipt deletes nothing, and is no error.
        self.delete(queue, first)
        handle = second["ReceiptHandle"]
        self.sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=1)
        (third,) = self.receive(queue, WaitTimeSeconds=10)
        self.delete(queue, third)
        self.fails(
            "InvalidParameterValue",
            self.sqs.change_message_visibility,
            QueueUrl=queue,
            ReceiptHandle=third["ReceiptHandle"],
            VisibilityTimeout=1,
        )

    def test_a_receipt_deletes_a_message_that_has_become_visible(self):
        queue = self.queue()
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        self.sqs.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
        self.fails(
            "MessageNotInflight",
            self.sqs.change_message_visibility,
            QueueUrl=queue,
            ReceiptHandle=message["ReceiptHandle"],
            VisibilityTimeout=5,
        )
        self.delete(queue, message)
        self.assertEqual(self.receive(queue), [])

    def test_long_polls(self):
        queue = self.queue()
        begin = time.monotonic()
        self.assertEqual(self.receive(queue, WaitTimeSeconds=1), [])
        self.assertGreaterEqual(time.monotonic() - begin, 0.9)
        received = []
        poll = threading.Thread(target=lambda: received.extend(self.receive(queue, WaitTimeSeconds=20)))
        poll.start()
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        poll.join(15)
        self.assertEqual([it["Body"] for it in received], ["x"])

    def test_delays(self):
        queue = self.queue()
        self.sqs.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=1)
        # Longer than Amazon SQS has it.
        self.sqs.send_message(QueueUrl=queue, MessageBody="in a year", DelaySeconds=31_536_000)
        names = ["ApproximateNumberOfMessagesDelayed"]
        counts = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        self.assertEqual(counts, {names[0]: "2"})
        self.assertEqual(self.receive(queue), [])
        self.assertEqual([it["Body"] for it in self.receive(queue, WaitTimeSeconds=10)], ["later"])

    def test_groups_take_turns(self):
        queue = self.queue()
        for group, count in (("flood", 9), ("small", 1)):
            entries = [{"Id": str(n), "MessageBody": group, "MessageGroupId": group} for n in range(count)]
            self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        messages = self.receive(queue, MaxNumberOfMessages=2)
        self.assertEqual({it["Attributes"]["MessageGroupId"] for it in messages}, {"flood", "small"})

    def test_wrong_messages(self):
        queue = self.queue()
        send, empty = self.sqs.send_message, {"DataType": "String", "StringValue": ""}
        for name, kwargs in (
            ("MissingParameter", {"MessageBody": ""}),
            ("InvalidMessageContents", {"MessageBody": "\x00"}),
            ("InvalidParameterValue", {"MessageBody": "x" * (1024 * 1024 + 1)}),
            ("InvalidParameterValue", {"MessageBody": "x", "DelaySeconds": -1}),
            ("InvalidParameterValue", {"MessageBody": "x", "MessageAttributes": {"a": empty}}),
            ("InvalidParameterValue", {"MessageBody": "x", "MessageDeduplicationId": "a"}),
        ):
            self.fails(name, send, QueueUrl=queue, **kwargs)
        send(QueueUrl=queue, MessageBody="x" * (1024 * 1024))
        for kwargs in ({"MaxNumberOfMessages": 11}, {"WaitTimeSeconds": 21}, {"VisibilityTimeout": -1}):
            self.fails("InvalidParameterValue", self.receive, queue=queue, **kwargs)
        self.fails("InvalidAttributeName", self.receive, queue=queue, AttributeNames=["Unknown"])


class Queues(Case):
    def test_creating_and_deleting(self):
        name = f"q-{uuid.uuid4()}"
        create, attributes = self.sqs.create_queue, {"VisibilityTimeout": "40"}
        queue = create(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.assertEqual(queue, f"{self.serve.at}/000000000000/{name}")
        self.assertEqual(create(QueueName=name, Attributes=attributes)["QueueUrl"], queue)
        self.assertEqual(create(QueueName=name)["QueueUrl"], queue)
        other = {"VisibilityTimeout": "41"}
        self.fails("QueueNameExists", create, QueueName=name, Attributes=other)
        self.assertEqual(self.sqs.get_queue_url(QueueName=name)["QueueUrl"], queue)
        self.assertIn(queue, self.sqs.list_queues(QueueNamePrefix=name)["QueueUrls"])
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        self.sqs.delete_queue(QueueUrl=queue)
        self.fails("QueueDoesNotExist", self.sqs.get_queue_url, QueueName=name)
        self.fails("QueueDoesNotExist", self.sqs.send_message, QueueUrl=queue, MessageBody="x")
        self.assertNotIn("QueueUrls", self.sqs.list_queues(QueueNamePrefix=name))
        create(QueueName=name)
        self.assertEqual(self.receive(queue), [])

    def test_pages_of_queues(self):
        prefix = f"p-{uuid.uuid4()}"
        names = [f"{prefix}-{n}" for n in range(5)]
        for name in names:
            self.sqs.create_queue(QueueName=name)
        pages = self.sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
        )
        pages = [[url.rsplit("/", 1)[1] for url in page["QueueUrls"]] for page in pages]
        self.assertEqual(pages, [names[:2], names[2:4], names[4:]])

    def test_attributes(self):
        queue = self.queue(DelaySeconds="3")
        self.sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "50"})
        get = self.sqs.get_queue_attributes
        attributes = get(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        name = queue.rsplit("/", 1)[1]
        expected = {
            "DelaySeconds": "3",
            "VisibilityTimeout": "50",
            "ReceiveMessageWaitTimeSeconds": "0",
            "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600",
            "ApproximateNumberOfMessages": "0",
            "QueueArn": f"arn:aws:sqs:eu-central-1:000000000000:{name}",
        }
        self.assertEqual(attributes, attributes | expected)
        self.assertNotIn("Attributes", get(QueueUrl=queue))
        for name, attributes in (
            ("InvalidAttributeName", {"Unknown": "1"}),
            ("InvalidAttributeValue", {"VisibilityTimeout": "x"}),
            ("InvalidAttributeName", {"FifoQueue": "true"}),
        ):
            self.fails(name, self.sqs.set_queue_attributes, QueueUrl=queue, Attributes=attributes)
        self.fails("InvalidAttributeName", get, QueueUrl=queue, AttributeNames=["Unknown"])

    def test_tags_and_permissions(self):
        queue = self.queue()
        self.sqs.tag_queue(QueueUrl=queue, Tags={"a": "1", "b": "2"})
        self.sqs.untag_queue(QueueUrl=queue, TagKeys=["a"])
        self.assertEqual(self.sqs.list_queue_tags(QueueUrl=queue)["Tags"], {"b": "2"})
        kwargs = {"QueueUrl": queue, "Label": "a"}
        self.fails("UnsupportedOperation", self.sqs.remove_permission, **kwargs)

    def test_purge(self):
        queue = self.queue()
        for delay in (0, 100):
            self.sqs.send_message(QueueUrl=queue, MessageBody="x", DelaySeconds=delay)
        self.sqs.purge_queue(QueueUrl=queue)
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        counts = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        self.assertEqual(set(counts.values()), {"0"})

    def test_names_and_receipts_of_others(self):
        queue, other = self.queue(), self.queue()
        self.fails("InvalidParameterValue", self.sqs.create_queue, QueueName="a b")
        self.fails("InvalidParameterValue", self.sqs.create_queue, QueueName="a.fifo")
        foreign = queue.replace("000000000000", "123456789012")
        self.fails("QueueDoesNotExist", self.sqs.send_message, QueueUrl=foreign, MessageBody="x")
        self.fails("QueueDoesNotExist", self.sqs.get_queue_url, QueueName="sqs-settings")
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        for url, handle in ((other, message["ReceiptHandle"]), (queue, "wrong")):
            self.fails("ReceiptHandleIsInvalid", self.sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)


class DeadLetters(Case):
    def test_a_message_that_is_received_too_often_moves_and_returns(self):
        queue, dead = self.queue(VisibilityTimeout="0"), self.queue()
        policy = json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 2})
        self.sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
        sent = self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        for count in ("1", "2"):
            (message,) = self.receive(queue, WaitTimeSeconds=5)
            self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], count)
        self.assertEqual(self.receive(queue, WaitTimeSeconds=1), [])
        sources = self.sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"]
        self.assertEqual(sources, [queue])
        (message,) = self.receive(dead, VisibilityTimeout=0, WaitTimeSeconds=5)
        self.assertEqual(message["MessageId"], sent["MessageId"])
        self.assertEqual(message["Attributes"]["DeadLetterQueueSourceArn"], self.arn(queue))
        start = self.sqs.start_message_move_task
        self.fails("InvalidParameterValue", start, SourceArn=self.arn(queue))
        self.assertTrue(start(SourceArn=self.arn(dead))["TaskHandle"])
        (message,) = self.receive(queue, WaitTimeSeconds=10)
        self.assertEqual((message["MessageId"], message["Body"]), (sent["MessageId"], "x"))

    def test_a_task_can_be_cancelled(self):
        queue, dead = self.queue(), self.queue()
        policy = json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 2})
        self.sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(10)]
        self.sqs.send_message_batch(QueueUrl=dead, Entries=entries)
        arns = {"SourceArn": self.arn(dead), "DestinationArn": self.arn(queue)}
        handle = self.sqs.start_message_move_task(MaxNumberOfMessagesPerSecond=1, **arns)["TaskHandle"]
        start = self.sqs.start_message_move_task
        self.fails("UnsupportedOperation", start, **arns)
        self.sqs.cancel_message_move_task(TaskHandle=handle)
        (task,) = self.sqs.list_message_move_tasks(SourceArn=arns["SourceArn"])["Results"]
        self.assertIn(task["Status"], ("CANCELLING", "CANCELLED"))
        self.assertEqual(task["DestinationArn"], arns["DestinationArn"])
        cancel = self.sqs.cancel_message_move_task
        self.fails("ResourceNotFoundException", cancel, TaskHandle="wrong")


class Fifo(Case):
    def send(self, queue, body, group="g", **kwargs):
        return self.sqs.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId=group, **kwargs)

    def test_a_group_has_one_message_at_a_time(self):
        queue = self.queue(".fifo", ContentBasedDeduplication="true")
        numbers = [self.send(queue, body, group)["SequenceNumber"] for body, group in ("1g", "2g", "3h")]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual({len(number) for number in numbers}, {20})
        messages = self.receive(queue, MaxNumberOfMessages=10)
        self.assertEqual({it["Body"] for it in messages}, {"1", "3"})
        self.assertEqual(self.receive(queue), [])
        first = next(it for it in messages if it["Body"] == "1")
        self.assertEqual(first["Attributes"]["SequenceNumber"], numbers[0])
        handle = first["ReceiptHandle"]
        self.sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
        (again,) = self.receive(queue, WaitTimeSeconds=5)
        self.assertEqual(again["Body"], "1")
        self.delete(queue, again)
        self.assertEqual([it["Body"] for it in self.receive(queue, WaitTimeSeconds=5)], ["2"])

    def test_duplicates_have_the_first_id(self):
        for scope, is_same in (("queue", True), ("messageGroup", False)):
            queue = self.queue(".fifo", DeduplicationScope=scope)
            first = self.send(queue, "x", MessageDeduplicationId="d")
            second = self.send(queue, "y", MessageDeduplicationId="d")
            self.assertEqual(second["MessageId"], first["MessageId"])
            self.assertEqual(second["SequenceNumber"], first["SequenceNumber"])
            other = self.send(queue, "z", "other", MessageDeduplicationId="d")
            self.assertEqual(other["MessageId"] == first["MessageId"], is_same)
            (message,) = [it for it in self.receive(queue, MaxNumberOfMessages=10) if it["Body"] == "x"]
            self.assertEqual(message["Attributes"]["MessageDeduplicationId"], "d")
            # Deleted messages count as well.
            self.delete(queue, message)
            self.assertEqual(self.send(queue, "x", MessageDeduplicationId="d")["MessageId"], first["MessageId"])
            self.assertNotIn("x", [it["Body"] for it in self.receive(queue, MaxNumberOfMessages=10)])

    def test_a_duplicate_in_a_batch(self):
        queue = self.queue(".fifo")
        entry = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        entries = [entry | {"Id": "a"}, entry | {"Id": "b"}]
        answer = self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"]
        self.assertEqual([it["Id"] for it in answer], ["a", "b"])
        self.assertEqual(len({it["MessageId"] for it in answer}), 1)

    def test_wrong_messages(self):
        queue = self.queue(".fifo")
        send = self.sqs.send_message
        for name, kwargs in (
            ("MissingParameter", {"MessageDeduplicationId": "d"}),
            ("InvalidParameterValue", {"MessageGroupId": "g"}),
            ("InvalidParameterValue", {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1}),
        ):
            self.fails(name, send, QueueUrl=queue, MessageBody="x", **kwargs)

    def test_a_repeated_attempt_has_the_same_messages(self):
        queue = self.queue(".fifo")
        self.send(queue, "x", MessageDeduplicationId="d")
        first, second = (self.receive(queue, ReceiveRequestAttemptId="a") for _ in range(2))
        self.assertEqual([it["ReceiptHandle"] for it in first], [it["ReceiptHandle"] for it in second])


class Guide(Case):
    def test_the_program_as_printed(self):
        text = (GUIDES / "aws-sdk.md").read_text()
        (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        env = os.environ | {
            "AWS_ENDPOINT_URL_SQS": self.serve.at,
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        self.assertEqual((run.stdout, run.stderr), ("order 1\n", ""))


class Strict(Case):
    ARGS = ("--sqs-strict",)

    def test_the_limits_of_sqs(self):
        queue = self.queue()
        send = self.sqs.send_message
        self.fails("InvalidParameterValue", send, QueueUrl=queue, MessageBody="x", DelaySeconds=901)
        send(QueueUrl=queue, MessageBody="x", DelaySeconds=900)
        self.fails("InvalidParameterValue", self.sqs.create_queue, QueueName="a/b")
        self.fails("InvalidParameterValue", self.receive, queue=queue, VisibilityTimeout=43_201)


USERS = """
operator+worker  basic   shop     a long password
worker           bearer  handler  a-token
viewer           bearer  reader   b-token
"""


class Users(Case):
    def setUp(self):
        self.shop = self.serve.client("shop", "a long password")

    @property
    def ARGS(self):
        file = pathlib.Path(PLACE.name) / "users"
        file.touch(mode=0o600)
        file.write_text(USERS)
        return ("--users", str(file))

    def test_signatures_and_roles(self):
        queue = self.shop.create_queue(QueueName=f"q-{uuid.uuid4()}")["QueueUrl"]
        self.shop.send_message(QueueUrl=queue, MessageBody="x")
        self.fails("InvalidClientTokenId", self.serve.client("unknown", "x").list_queues)
        self.fails("SignatureDoesNotMatch", self.serve.client("shop", "wrong").list_queues)
        handler, reader = self.serve.client("handler", "a-token"), self.serve.client("reader", "b-token")
        self.fails("AccessDenied", handler.send_message, QueueUrl=queue, MessageBody="x")
        self.fails("AccessDenied", reader.receive_message, QueueUrl=queue)
        self.fails("AccessDenied", reader.delete_queue, QueueUrl=queue)
        self.assertIn("QueueUrls", reader.list_queues())
        names = ["SenderId"]
        (message,) = handler.receive_message(QueueUrl=queue, AttributeNames=names)["Messages"]
        self.assertEqual(message["Attributes"], {"SenderId": "shop"})


if __name__ == "__main__":
    unittest.main()
