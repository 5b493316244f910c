"""FIFO queues, with the answers of Amazon SQS."""

import threading

from endpoint import Case


class Fifo(Case):
    def send(self, queue, body, group="g", **kwargs):
        return self.sqs.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId=group, **kwargs)

    def test_a_group_has_one_receiver_at_a_time(self):
        queue = self.queue(".fifo", ContentBasedDeduplication="true")
        numbers = [self.send(queue, body, group)["SequenceNumber"] for body, group in ("1g", "2g", "3h")]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual({len(number) for number in numbers}, {20})
        messages = self.receive(queue, MaxNumberOfMessages=10)
        self.assertEqual([it["Body"] for it in messages if it["Body"] != "3"], ["1", "2"])
        self.assertEqual(len(messages), 3)
        self.assertEqual(self.receive(queue), [])
        first, second = (it for it in messages if it["Body"] != "3")
        self.assertEqual(first["Attributes"]["SequenceNumber"], numbers[0])
        # A message that is sent meanwhile does not free its group, nor does the first alone.
        self.send(queue, "4")
        self.assertEqual(self.receive(queue), [])
        self.show_again(queue, first)
        self.assertEqual(self.receive(queue), [])
        self.show_again(queue, second)
        again = self.receive(queue, WaitTimeSeconds=5, MaxNumberOfMessages=2)
        self.assertEqual([it["Body"] for it in again], ["1", "2"])
        for message in again:
            self.delete(queue, message)
        self.assertEqual([it["Body"] for it in self.receive(queue, WaitTimeSeconds=5)], ["4"])

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
            third = self.send(queue, "x", MessageDeduplicationId="d")
            for name in ("MessageId", "SequenceNumber"):
                self.assertEqual(third[name], first[name])
            self.assertNotIn("x", [it["Body"] for it in self.receive(queue, MaxNumberOfMessages=10)])

    def test_a_duplicate_in_a_batch(self):
        queue = self.queue(".fifo")
        entry = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        entries = [entry | {"Id": "a"}, entry | {"Id": "b"}]
        answer = self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"]
        self.assertEqual([it["Id"] for it in answer], ["a", "b"])
        self.assertEqual(len({it["MessageId"] for it in answer}), 1)

    def test_a_purge_and_a_deletion_forget_duplicates(self):
        queue = self.queue(".fifo")
        self.send(queue, "1", MessageDeduplicationId="d")
        self.sqs.purge_queue(QueueUrl=queue)
        self.send(queue, "2", MessageDeduplicationId="d")
        self.assertEqual(self.bodies(queue), ["2"])
        self.sqs.delete_queue(QueueUrl=queue)
        name = queue.rsplit("/", 1)[1]
        self.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
        self.send(queue, "3", "other", MessageDeduplicationId="d")
        self.assertEqual(self.bodies(queue), ["3"])

    def test_a_purge_frees_the_groups_of_messages_in_flight(self):
        queue = self.queue(".fifo", ContentBasedDeduplication="true")
        self.send(queue, "1")
        (first,) = self.receive(queue)
        self.sqs.purge_queue(QueueUrl=queue)
        self.assertEqual(self.count(queue, "NotVisible"), 0)
        self.delete(queue, first)
        self.send(queue, "2")
        self.assertEqual(self.bodies(queue), ["2"])

    def test_an_expired_receipt_deletes_nothing(self):
        queue = self.queue(".fifo")
        self.send(queue, "x", MessageDeduplicationId="d")
        (first,) = self.receive(queue, VisibilityTimeout=0)
        expired = {"QueueUrl": queue, "ReceiptHandle": first["ReceiptHandle"]}
        self.fails("InvalidParameterValue", self.sqs.delete_message, **expired)
        (second,) = self.receive(queue, VisibilityTimeout=600, WaitTimeSeconds=5)
        self.fails("InvalidParameterValue", self.sqs.delete_message, **expired)
        for _ in range(2):
            self.delete(queue, second)

    def test_receivers_at_once_have_different_groups(self):
        queue, groups, each = self.queue(".fifo", ContentBasedDeduplication="true"), 3, 8
        for n in range(each):
            entries = [
                {"Id": str(group), "MessageBody": f"{group} {n}", "MessageGroupId": str(group)}
                for group in range(groups)
            ]
            self.sqs.send_message_batch(QueueUrl=queue, Entries=entries)
        lock, seen, busy, overlaps = threading.Lock(), [], set(), []

        def work():
            sqs = self.serve.client()
            while len(seen) < groups * each:
                answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=2, WaitTimeSeconds=1)
                messages = answer.get("Messages", [])
                mine = {it["Body"][0] for it in messages}
                with lock:
                    overlaps.extend(busy & mine)
                    busy.update(mine)
                    seen.extend(it["Body"] for it in messages)
                # A round trip during which the others could receive what they must not.
                sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
                with lock:
                    busy.difference_update(mine)
                for message in messages:
                    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(overlaps, [])
        for group in range(groups):
            own = [body for body in seen if body.startswith(f"{group} ")]
            self.assertEqual(own, [f"{group} {n}" for n in range(each)])

    def test_a_wrong_entry_fails_its_batch(self):
        queue = self.queue(".fifo")
        entry = {"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        for missing in ("MessageGroupId", "MessageDeduplicationId"):
            other = {name: value for name, value in entry.items() if name != missing} | {"Id": "b"}
            self.fails("InvalidParameterValue", self.sqs.send_message_batch, QueueUrl=queue, Entries=[entry, other])
        self.assertEqual(self.count(queue), 0)

    def test_no_delay_is_the_delay_of_the_queue(self):
        queue = self.queue(".fifo", DelaySeconds="900")
        self.send(queue, "x", MessageDeduplicationId="d", DelaySeconds=0)
        self.assertEqual(self.count(queue, "Delayed"), 1)

    def test_wrong_messages(self):
        queue = self.queue(".fifo")
        send = self.sqs.send_message
        for name, kwargs in (
            ("MissingParameter", {"MessageDeduplicationId": "d"}),
            ("InvalidParameterValue", {"MessageGroupId": "g"}),
            ("InvalidParameterValue", {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1}),
            ("InvalidParameterValue", {"MessageGroupId": "g", "MessageDeduplicationId": "a" * 129}),
            ("InvalidParameterValue", {"MessageGroupId": "g h", "MessageDeduplicationId": "d"}),
        ):
            self.fails(name, send, QueueUrl=queue, MessageBody="x", **kwargs)

    def test_a_repeated_attempt_has_the_same_messages(self):
        queue = self.queue(".fifo")
        self.send(queue, "x", MessageDeduplicationId="d")
        first, second = (self.receive(queue, ReceiveRequestAttemptId="a") for _ in range(2))
        self.assertEqual([it["ReceiptHandle"] for it in first], [it["ReceiptHandle"] for it in second])
        self.fails("InvalidParameterValue", self.receive, queue=queue, ReceiveRequestAttemptId="a" * 129)
