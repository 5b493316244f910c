"""What the tests of `delayline serve --sqs` share: servers, and a client of boto3.

Needs boto3. Runs in memory, in a directory, and on the servers of DELAYLINE_TEST_URLS.
"""

import pathlib
import sys
import unittest
import uuid

import boto3
import botocore.config
import botocore.exceptions

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import harness  # noqa: E402
from harness import PLACE, URLS  # noqa: E402, F401


class Serve(harness.Serve):
    """A server, and clients of it."""

    def __init__(self, url, *args):
        super().__init__(url, sqs=True, args=args)

    def client(self, key="key", secret="secret"):
        config = botocore.config.Config(retries={"max_attempts": 0}, read_timeout=30)
        return boto3.client(
            "sqs",
            endpoint_url=self.sqs_at,
            region_name="eu-central-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )


class Case(unittest.TestCase):
    """Each test runs on every server; a queue has a new name."""

    ARGS = ()
    URLS = URLS

    def run(self, result=None):
        for url in self.URLS:
            with self.subTest(url=url), Serve(url, *self.ARGS) as serve:
                self.serve, self.sqs = serve, serve.client()
                super().run(result)

    def queue(self, suffix="", **attributes):
        name = f"q-{uuid.uuid4()}{suffix}"
        if suffix == ".fifo":
            attributes["FifoQueue"] = "true"
        return self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def count(self, queue, suffix=""):
        name = f"ApproximateNumberOfMessages{suffix}"
        answer = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def arn(self, queue):
        names = ["QueueArn"]
        answer = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)
        return answer["Attributes"]["QueueArn"]

    def receive(self, queue, **kwargs):
        kwargs = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]} | kwargs
        return self.sqs.receive_message(QueueUrl=queue, **kwargs).get("Messages", [])

    def bodies(self, queue, **kwargs):
        return [it["Body"] for it in self.receive(queue, **kwargs)]

    def show_again(self, queue, message):
        """Ends the visibility timeout of a message."""
        self.change(queue, message, 0)

    def change(self, queue, message, seconds):
        handle = message["ReceiptHandle"]
        self.sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=seconds)

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
