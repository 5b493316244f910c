"""Queues, their dead letters, and who may use them, with the answers of Amazon SQS."""

import base64
import json
import pathlib
import time
import uuid

from endpoint import PLACE, URLS, Case, Serve


class Queues(Case):
    def test_creating_and_deleting(self):
        name = f"q-{uuid.uuid4()}"
        create, attributes = self.sqs.create_queue, {"VisibilityTimeout": "40"}
        queue = create(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.assertEqual(queue, f"{self.serve.sqs_at}/000000000000/{name}")
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

    def test_words_of_errors(self):
        sqs, queue, fifo = self.sqs, self.queue(), self.queue(".fifo", ContentBasedDeduplication="True")
        empty = {"a": {"DataType": "String", "StringValue": ""}}
        entries = [{"Id": "a", "MessageBody": "x"}]
        of_fifo = {"FifoThroughputLimit": "perQueue"}
        for code, words, call, kwargs in (
            ("InvalidParameterValue", ">= 0 and <= 20", sqs.receive_message, {"WaitTimeSeconds": 21}),
            ("InvalidParameterValue", "Value a b for", sqs.send_message, {"MessageBody": "x", "MessageGroupId": "a b"}),
            ("InvalidParameterValue", "of type 'String'", sqs.send_message, {"MessageBody": "x", "MessageAttributes": empty}),
            ("EmptyBatchRequest", "one SendMessageBatchRequestEntry", sqs.send_message_batch, {"Entries": []}),
            ("InvalidParameterValue", "MessageGroupId", sqs.send_message_batch, {"QueueUrl": fifo, "Entries": entries}),
            ("MissingParameter", "MessageGroupId", sqs.send_message, {"QueueUrl": fifo, "MessageBody": "x"}),
            ("InvalidAttributeName", "only when FifoQueue", sqs.set_queue_attributes, {"Attributes": of_fifo}),
            ("InvalidAttributeValue", "not supported", sqs.set_queue_attributes, {"QueueUrl": fifo, "Attributes": {"FifoQueue": "false"}}),
            ("ReceiptHandleIsInvalid", '"x"', sqs.delete_message, {"ReceiptHandle": "x"}),
            ("InvalidParameterValue", "Tag keys", sqs.untag_queue, {"TagKeys": []}),
        ):  # fmt: skip
            self.assertIn(words, str(self.fails(code, call, **{"QueueUrl": queue} | kwargs)))

    def test_a_count_as_text_and_a_trace(self):
        queue, dead = self.queue(), self.queue()
        policy = {"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": "2"}
        attributes = {"RedrivePolicy": json.dumps(policy)}
        for call, name in ((self.sqs.set_queue_attributes, {"QueueUrl": queue}), (self.sqs.create_queue, {"QueueName": queue.rsplit("/", 1)[1]})):  # fmt: skip
            call(Attributes=attributes, **name)
        shown = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        self.assertEqual(json.loads(shown["RedrivePolicy"])["maxReceiveCount"], 2)
        trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Sampled=1"

        def add(request, **_):
            request.headers["X-Amzn-Trace-Id"] = trace

        self.sqs.meta.events.register("before-send.sqs.SendMessage", add)
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        self.assertEqual(message["Attributes"]["AWSTraceHeader"], trace)

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
        fifo = {"FifoQueue": "true"}
        self.fails("InvalidParameterValue", self.sqs.create_queue, QueueName="a", Attributes=fifo)
        foreign = queue.replace("000000000000", "123456789012")
        self.fails("QueueDoesNotExist", self.sqs.send_message, QueueUrl=foreign, MessageBody="x")
        self.fails("QueueDoesNotExist", self.sqs.get_queue_url, QueueName="sqs-settings")
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        for url, handle in ((other, message["ReceiptHandle"]), (queue, "wrong")):
            self.fails("ReceiptHandleIsInvalid", self.sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)


def handle_of(members):
    """The handle of a move task as SQS writes it."""
    return base64.b64encode(json.dumps(members).encode()).decode()


class MoveTasks(Case):
    def with_dead_letters(self, count):
        """A queue, and the ARNs to move this many messages there."""
        queue, dead = self.queue(), self.queue()
        policy = json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 2})
        self.sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(count)]
        self.sqs.send_message_batch(QueueUrl=dead, Entries=entries)
        return queue, {"SourceArn": self.arn(dead), "DestinationArn": self.arn(queue)}

    def task(self, arns):
        (task,) = self.sqs.list_message_move_tasks(SourceArn=arns["SourceArn"])["Results"]
        return task


class DeadLetters(MoveTasks):
    def test_a_message_that_is_received_too_often_moves_and_returns(self):
        queue, dead = self.queue(VisibilityTimeout="0"), self.queue()
        policy = json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 2})
        self.sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": policy})
        attributes = {"kind": {"DataType": "String", "StringValue": "x"}}
        sent = self.sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=attributes)
        for count in ("1", "2"):
            (message,) = self.receive(queue, WaitTimeSeconds=5)
            self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], count)
        self.assertEqual(self.receive(queue, WaitTimeSeconds=1), [])
        sources = self.sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"]
        self.assertEqual(sources, [queue])
        (message,) = self.receive(dead, VisibilityTimeout=0, WaitTimeSeconds=5)
        self.assertEqual(message["MessageId"], sent["MessageId"])
        self.assertEqual(message["MessageAttributes"], attributes)
        self.assertEqual(message["Attributes"]["DeadLetterQueueSourceArn"], self.arn(queue))
        # The count goes on: two receives there, one here.
        self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], "3")
        start = self.sqs.start_message_move_task
        self.fails("InvalidParameterValue", start, SourceArn=self.arn(queue))
        self.assertTrue(start(SourceArn=self.arn(dead))["TaskHandle"])
        (message,) = self.receive(queue, WaitTimeSeconds=10)
        self.assertEqual((message["MessageId"] != sent["MessageId"], message["Body"]), (True, "x"))
        self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], "1")

    def test_a_task_can_be_cancelled(self):
        queue, arns = self.with_dead_letters(10)
        start, cancel = self.sqs.start_message_move_task, self.sqs.cancel_message_move_task
        handle = start(MaxNumberOfMessagesPerSecond=1, **arns)["TaskHandle"]
        self.assertEqual((self.task(arns)["TaskHandle"], self.task(arns)["Status"]), (handle, "RUNNING"))
        self.fails("InvalidParameterValue", start, **arns)
        self.assertLess(cancel(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"], 10)
        self.assertIn(self.task(arns)["Status"], ("CANCELLING", "CANCELLED"))
        self.assertNotIn("TaskHandle", self.task(arns))
        self.assertEqual(self.task(arns)["DestinationArn"], arns["DestinationArn"])
        self.fails("InvalidParameterValue", cancel, TaskHandle="wrong")
        for other in (arns["SourceArn"], self.arn(self.queue(".fifo"))):
            self.fails("InvalidParameterValue", start, **arns | {"DestinationArn": other})
        unknown = {"taskId": "unknown", "sourceArn": arns["SourceArn"]}
        missing = arns | {"DestinationArn": arns["DestinationArn"] + "-missing"}
        for call, kwargs in (
            (cancel, {"TaskHandle": handle_of(unknown)}),
            (cancel, {"TaskHandle": handle_of(unknown | {"sourceArn": missing["DestinationArn"]})}),
            (start, missing),
            (start, {"SourceArn": missing["DestinationArn"]}),
        ):
            error = self.fails("ResourceNotFoundException", call, **kwargs)
            self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 404)

    def test_a_policy_names_a_queue_that_exists(self):
        queue = self.queue()
        policy = json.dumps({"deadLetterTargetArn": self.arn(queue) + "-missing", "maxReceiveCount": 2})
        kwargs = {"QueueUrl": queue, "Attributes": {"RedrivePolicy": policy}}
        self.fails("InvalidParameterValue", self.sqs.set_queue_attributes, **kwargs)


class Restart(MoveTasks):
    URLS = URLS[1:]

    def test_a_task_continues_at_the_next_server(self):
        queue, arns = self.with_dead_letters(4)
        self.sqs.start_message_move_task(MaxNumberOfMessagesPerSecond=1, **arns)
        (message,) = self.receive(queue, WaitTimeSeconds=10)
        self.serve.process.kill()
        self.serve.process.wait()
        with Serve(self.serve.url) as serve:
            self.sqs, bodies = serve.client(), [message["Body"]]
            queue = queue.replace(self.serve.sqs_at, serve.sqs_at)
            while len(bodies) < 4:
                messages = self.receive(queue, WaitTimeSeconds=20)
                self.assertTrue(messages)
                bodies += [it["Body"] for it in messages]
            self.assertEqual(sorted(bodies), ["0", "1", "2", "3"])
            # The task counts a message after it has arrived.
            end = time.monotonic() + 30
            while self.task(arns)["Status"] == "RUNNING" and time.monotonic() < end:
                pass
            task = self.task(arns)
            self.assertEqual((task["Status"], task["ApproximateNumberOfMessagesMoved"]), ("COMPLETED", 4))


class Strict(Case):
    ARGS = ("--sqs-strict",)

    def test_the_limits_of_sqs(self):
        queue = self.queue()
        send = self.sqs.send_message
        self.fails("InvalidParameterValue", send, QueueUrl=queue, MessageBody="x", DelaySeconds=901)
        send(QueueUrl=queue, MessageBody="x", DelaySeconds=900)
        send(QueueUrl=queue, MessageBody="x")
        self.fails("InvalidParameterValue", self.sqs.create_queue, QueueName="a/b")
        self.fails("InvalidParameterValue", self.receive, queue=queue, VisibilityTimeout=43_201)
        (message,) = self.receive(queue, WaitTimeSeconds=5)
        change = self.sqs.change_message_visibility
        kwargs = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
        self.fails("InvalidParameterValue", change, VisibilityTimeout=43_201, **kwargs)
        attributes = {f"n{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)}
        self.fails(
            "InvalidParameterValue", send, QueueUrl=queue, MessageBody="x", MessageAttributes=attributes
        )

    def test_a_second_purge_within_a_minute(self):
        queue = self.queue()
        self.sqs.purge_queue(QueueUrl=queue)
        error = self.fails("PurgeQueueInProgress", self.sqs.purge_queue, QueueUrl=queue)
        self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 403)


USERS = """
operator+worker  basic   shop     a long password
worker           bearer  handler  a-token
viewer           bearer  reader   b-token
operator@eu-*    bearer  europe   c-token
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
        europe = self.serve.client("europe", "c-token")
        self.fails("AccessDenied", europe.create_queue, QueueName=f"us-{uuid.uuid4()}")
        own = europe.create_queue(QueueName=f"eu-{uuid.uuid4()}")["QueueUrl"]
        self.assertEqual([it for it in europe.list_queues()["QueueUrls"] if "/eu-" not in it], [])
        europe.send_message(QueueUrl=own, MessageBody="x")
        self.fails("QueueDoesNotExist", europe.send_message, QueueUrl=queue, MessageBody="x")
        names = ["SenderId"]
        (message,) = handler.receive_message(QueueUrl=queue, AttributeNames=names)["Messages"]
        self.assertEqual(message["Attributes"], {"SenderId": "shop"})
