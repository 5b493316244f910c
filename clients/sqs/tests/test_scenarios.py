"""The scenarios of the pull API through boto3, as far as SQS has what they need."""

import copy
import json
import pathlib
import sys
import unittest
import uuid

import botocore.exceptions

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from consumer import client  # noqa: E402
from harness import SCENARIOS, URLS, Serve, play  # noqa: E402

SECONDS = {"0s": 0, "1ms": 1, "50ms": 1, "30s": 20, "1m": 60, "2m": 120, "1h": 3600}
# Of these, SQS knows nothing.
UNKNOWN = {
    "claim_id", "consumer", "crashes", "errors", "failures", "keep_result", "messages", "more", "next",
    "outcome", "result", "result_kept", "results",
}  # fmt: skip

# SQS has no requests with these.
ABSENT = {"checkpoint", "in_order", "progress", "several_in_order"}


class Through:
    """Answers the requests of a scenario through boto3."""

    def __init__(self, sqs):
        self.sqs, self.ids = sqs, {}
        self.queue = {"QueueUrl": sqs.create_queue(QueueName=f"q-{uuid.uuid4()}")["QueueUrl"]}

    def call(self, path, body):
        try:
            return None, getattr(self, path[1:])(body)
        except botocore.exceptions.ClientError as error:
            return 400, error.response

    def messages(self, body):
        for message in body if isinstance(body, list) else [body]:
            payload, headers = message["payload"], message.get("headers", {})
            text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
            attributes = {name: {"DataType": "String", "StringValue": it} for name, it in headers.items()}
            group = {"MessageGroupId": message["group"]} if "group" in message else {}
            delay = SECONDS[message.get("delay", "0s")]
            send = {"MessageBody": text, "MessageAttributes": attributes, "DelaySeconds": delay}
            self.ids[self.sqs.send_message(**self.queue, **send, **group)["MessageId"]] = message["id"]

    def claim(self, body):
        wanted = {"MaxNumberOfMessages": body.get("max", 1), "WaitTimeSeconds": SECONDS[body.get("wait", "30s")]}
        if "lease" in body:
            wanted["VisibilityTimeout"] = SECONDS[body["lease"]]
        names = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self.sqs.receive_message(**self.queue, **wanted, **names)
        return {"deliveries": [self.delivery(it) for it in answer.get("Messages", [])]}

    def delivery(self, message):
        attributes = message.get("MessageAttributes", {})
        return {
            "id": self.ids[message["MessageId"]],
            "payload": message["Body"],
            "headers": {name: it["StringValue"] for name, it in attributes.items()},
            "group": message["Attributes"].get("MessageGroupId"),
            "epoch": int(message["Attributes"]["ApproximateReceiveCount"]),
            "token": message["ReceiptHandle"],
        }

    def settle(self, body):
        for settlement in body["settlements"]:
            receipt = self.queue | {"ReceiptHandle": settlement["token"]}
            if settlement["outcome"] == "ack":
                self.sqs.delete_message(**receipt)
                self.messages(settlement.get("messages", []))
            else:
                # A rejected message is not received within the scenario.
                delay = {"release": "0s"}.get(settlement["outcome"], settlement.get("delay", "1h"))
                self.sqs.change_message_visibility(**receipt, VisibilityTimeout=SECONDS[delay])

    def extend(self, body):
        for lease in body["leases"]:
            receipt = self.queue | {"ReceiptHandle": lease["token"]}
            self.sqs.change_message_visibility(**receipt, VisibilityTimeout=SECONDS[body["lease"]])


def known(answer):
    """The part of an expected answer that SQS has."""
    if isinstance(answer, dict):
        return {name: known(it) for name, it in answer.items() if name not in UNKNOWN}
    return [known(it) for it in answer] if isinstance(answer, list) else answer


def is_absent(step):
    bodies = [step["body"], *step["body"].get("leases", [])] if isinstance(step["body"], dict) else []
    return any(ABSENT & body.keys() for body in bodies)


def is_of_sqs(scenario):
    return not any(step["status"] < 400 and is_absent(step) for step in scenario["steps"])


def of_sqs(scenario):
    """The steps that SQS has."""
    scenario, claims = copy.deepcopy(scenario), set()
    steps, scenario["steps"] = scenario["steps"], []
    for step in steps:
        body, answer = step["body"], step.get("answer", {})
        claim_id = body.get("claim_id") if isinstance(body, dict) else None
        # A standard queue does not repeat an answer, and a claim id without a consumer is no error.
        if claim_id in claims or claim_id and "consumer" not in body or is_absent(step):
            continue
        claims |= {claim_id} - {None}
        if isinstance(body, dict) and body.pop("payload_base64", None):
            body["payload"] = "bytes"
        for delivery in answer.get("deliveries", []):
            if delivery.pop("payload_base64", None):
                delivery["payload"] = "bytes"
        step["answer"] = known(answer) if step["status"] < 400 and known(answer) else None
        scenario["steps"].append(step)
    return scenario


class Scenarios(unittest.TestCase):
    def test_scenarios(self):
        for url in URLS:
            with Serve(url, sqs=True) as serve:
                for scenario in map(of_sqs, filter(is_of_sqs, SCENARIOS)):
                    with self.subTest(url=url.split(":")[0], scenario=scenario["name"]):
                        sqs = client(serve.sqs_at)
                        play(self, scenario, Through(sqs).call)
                        sqs.close()


if __name__ == "__main__":
    unittest.main()
