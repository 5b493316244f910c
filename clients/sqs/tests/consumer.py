"""A consumer for test_faults.py: receives and deletes until it is killed.

Arguments: the endpoint, the URL of the queue, and the file of the ledger.
"""

import os
import sys
import time
import uuid

import boto3
import botocore.config
import botocore.exceptions

# Visibility timeout of the queue, in seconds.
TIMEOUT = 4
# A repetition does not help against these.
FINAL = {"InvalidParameterValue", "ReceiptHandleIsInvalid", "AWS.SimpleQueueService.NonExistentQueue"}


def client(at):
    config = botocore.config.Config(retries={"max_attempts": 5, "mode": "standard"}, read_timeout=30)
    return boto3.client(
        "sqs",
        endpoint_url=at,
        region_name="eu-central-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=config,
    )


def patiently(call, **kwargs):
    """Repeats a call while the server is away for longer than the SDK repeats it."""
    give_up = time.monotonic() + 60
    while True:
        try:
            return call(**kwargs)
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
            code = getattr(error, "response", {}).get("Error", {}).get("Code")
            if code in FINAL or time.monotonic() > give_up:
                raise


def consume(at, queue, ledger):
    sqs, file = client(at), os.open(ledger, os.O_WRONLY | os.O_APPEND)
    wanted = {"QueueUrl": queue, "WaitTimeSeconds": 1, "MaxNumberOfMessages": 3, "AttributeNames": ["All"]}
    while True:
        # If the answer is lost, the SDK gets the same messages again from a FIFO queue.
        attempt = {"ReceiveRequestAttemptId": str(uuid.uuid4())} if queue.endswith(".fifo") else {}
        begin = time.monotonic()
        for message in patiently(sqs.receive_message, **wanted, **attempt).get("Messages", []):
            count = message["Attributes"]["ApproximateReceiveCount"]
            line = f"{message['Body']} {message['MessageId']} {count}\n"
            # Its receipt may end while it is handled.
            if time.monotonic() > begin + TIMEOUT / 2:
                continue
            os.write(file, f"begin {line}".encode())
            time.sleep(0.02)
            os.write(file, f"end {line}".encode())
            patiently(sqs.delete_message, QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


if __name__ == "__main__":
    consume(*sys.argv[1:])
