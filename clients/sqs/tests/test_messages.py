"""Messages of standard queues: each case has the answer that Amazon SQS gives."""

import threading
import time
import uuid

from endpoint import Case


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
        self.assertNotIn("SequenceNumber", sent | system)
        self.assertEqual(self.count(queue, "NotVisible"), 1)
        for _ in range(2):
            self.delete(queue, message)
        self.assertEqual(self.count(queue, "NotVisible"), 0)

    def test_only_the_wanted_attributes(self):
        queue = self.queue()
        attributes = {name: {"DataType": "String", "StringValue": "x"} for name in ("a.b", "a.c", "d")}
        self.sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=attributes)
        for wanted, expected in (([], set()), (["a.*"], {"a.b", "a.c"}), (["d"], {"d"}), (["e"], set()), ([".*"], set(attributes))):
            (message,) = self.receive(
                queue, MessageAttributeNames=wanted, AttributeNames=[], VisibilityTimeout=0, WaitTimeSeconds=5
            )
            self.assertEqual(set(message.get("MessageAttributes", {})), expected)
            self.assertEqual("MD5OfMessageAttributes" in message, bool(expected))
            self.assertNotIn("Attributes", message)
        (message,) = self.receive(
            queue, AttributeNames=[], MessageSystemAttributeNames=["ApproximateReceiveCount"], WaitTimeSeconds=5
        )
        self.assertEqual(message["Attributes"], {"ApproximateReceiveCount": "6"})

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

    def test_entries_fail_alone(self):
        queue = self.queue()
        entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "\x01"}]
        answer = self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        self.assertEqual([it["Id"] for it in answer["Successful"]], ["a"])
        (failed,) = answer["Failed"]
        self.assertEqual((failed["Id"], failed["Code"]), ("b", "InvalidMessageContents"))

    def test_visibility(self):
        queue = self.queue(VisibilityTimeout="1")
        self.sqs.send_message(QueueUrl=queue, MessageBody="x")
        (first,) = self.receive(queue, WaitTimeSeconds=5)
        self.change(queue, first, 600)
        self.assertEqual(self.receive(queue, WaitTimeSeconds=2), [])
        self.show_again(queue, first)
        (second,) = self.receive(queue, WaitTimeSeconds=5, VisibilityTimeout=600)
        self.assertEqual(second["Attributes"]["ApproximateReceiveCount"], "2")
        # An old receipt deletes nothing, which is no error, but it changes the visibility.
        self.delete(queue, first)
        self.assertEqual(self.count(queue, "NotVisible"), 1)
        self.show_again(queue, first)
        (third,) = self.receive(queue, WaitTimeSeconds=10, VisibilityTimeout=600)
        self.change(queue, second, 1)
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
        self.show_again(queue, message)
        self.fails(
            "MessageNotInflight",
            self.sqs.change_message_visibility,
            QueueUrl=queue,
            ReceiptHandle=message["ReceiptHandle"],
            VisibilityTimeout=5,
        )
        # Another receipt does not change that, once its visibility timeout has passed.
        self.receive(queue, WaitTimeSeconds=5, VisibilityTimeout=0)
        self.delete(queue, message)
        self.assertEqual(self.receive(queue, WaitTimeSeconds=1), [])

    def test_long_polls(self):
        queue = self.queue()
        begin = time.monotonic()
        self.assertEqual(self.receive(queue, WaitTimeSeconds=1), [])
        self.assertGreaterEqual(time.monotonic() - begin, 0.9)
        queue = self.queue(ReceiveMessageWaitTimeSeconds="20")
        received = []

        def woken_by(call):
            poll = threading.Thread(target=lambda: received.extend(self.receive(queue)))
            poll.start()
            call()
            poll.join(15)

        woken_by(lambda: self.sqs.send_message(QueueUrl=queue, MessageBody="x"))
        woken_by(lambda: self.show_again(queue, received[0]))
        self.assertEqual([it["Body"] for it in received], ["x", "x"])

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

    def test_the_delay_of_a_queue_yields_to_that_of_a_message(self):
        queue = self.queue(DelaySeconds="900")
        for kwargs in ({}, {"DelaySeconds": 0}):
            self.sqs.send_message(QueueUrl=queue, MessageBody=str(kwargs), **kwargs)
        self.assertEqual(self.bodies(queue, MaxNumberOfMessages=10), ["{'DelaySeconds': 0}"])

    def test_groups_take_turns(self):
        queue = self.queue()
        for group, count in (("flood", 9), ("small", 1)):
            entries = [{"Id": str(n), "MessageBody": group, "MessageGroupId": group} for n in range(count)]
            self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        messages = self.receive(queue, MaxNumberOfMessages=2)
        self.assertEqual({it["Attributes"]["MessageGroupId"] for it in messages}, {"flood", "small"})
        # One that is in flight does not block its group.
        self.assertEqual(self.bodies(queue, MaxNumberOfMessages=10), ["flood"] * 8)

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
        small = self.queue(MaximumMessageSize="1024")
        send(QueueUrl=small, MessageBody="x" * 1024)
        self.fails("InvalidParameterValue", send, QueueUrl=small, MessageBody="x" * 1025)
        for kwargs in ({"MaxNumberOfMessages": 11}, {"WaitTimeSeconds": 21}, {"VisibilityTimeout": -1}):
            self.fails("InvalidParameterValue", self.receive, queue=queue, **kwargs)
        self.fails("InvalidAttributeName", self.receive, queue=queue, AttributeNames=["Unknown"])
