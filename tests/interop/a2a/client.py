"""A client of the official Python SDK. Arguments: the agent's URL, a binding, and a
skill. Prints what it was told as JSON."""

import asyncio
import json
import sys
import uuid

from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import new_data_part
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, Message, Role, SendMessageConfiguration, SendMessageRequest
from a2a.types.a2a_pb2 import TaskState
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.json_format import MessageToDict

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def key_of(kid, _jku):
    """The Ed25519 key that a did:key is."""
    number = 0
    for letter in kid.removeprefix("did:key:z"):
        number = number * 58 + ALPHABET.index(letter)
    return Ed25519PublicKey.from_public_bytes(number.to_bytes(34, "big")[2:])


def message(message_id, skill, params):
    part = new_data_part({"capability": skill, "params": params}, "application/json")
    return SendMessageRequest(message=Message(message_id=message_id, role=Role.ROLE_USER, parts=[part]))


async def last(client, request):
    task, states = {}, []
    async for update in client.send_message(request):
        update = MessageToDict(update)
        if "task" in update:
            task = update["task"]
            states.append(task["status"]["state"])
        elif "statusUpdate" in update:
            task["status"] = update["statusUpdate"]["status"]
            states.append(task["status"]["state"])
        elif "artifactUpdate" in update:
            task["artifacts"] = [update["artifactUpdate"]["artifact"]]
    return task, states


async def main():
    url, binding, skill = sys.argv[1:]
    verified = []

    def verifier(card):
        create_signature_verifier(key_of, ["EdDSA"])(card)
        verified.append(True)

    config = lambda streaming: ClientConfig(streaming=streaming, supported_protocol_bindings=[binding], use_client_preference=True)
    plain = await create_client(url, config(False), signature_verifier=verifier)
    streaming = await create_client(url, config(True))
    first, text = str(uuid.uuid4()), f"hello {uuid.uuid4()}"
    told = {"text": text, "verified": bool(verified)}
    told["done"], _ = await last(plain, message(first, skill, {"text": text}))
    told["again"], _ = await last(plain, message(first, skill, {"text": text}))
    told["joined"], told["states"] = await last(streaming, message(first, skill, {"text": text}))
    told["wrong"], _ = await last(plain, message(str(uuid.uuid4()), skill, {"text": 7}))
    told["failed"], _ = await last(plain, message(str(uuid.uuid4()), skill, {"text": "fail"}))
    slow = message(str(uuid.uuid4()), skill, {"text": "slow"})
    slow.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
    task, _ = await last(plain, slow)
    while (await plain.get_task(GetTaskRequest(id=task["id"]))).status.state == TaskState.TASK_STATE_SUBMITTED:
        await asyncio.sleep(0.05)
    await plain.cancel_task(CancelTaskRequest(id=task["id"]))
    told["cancelled"] = MessageToDict(await plain.get_task(GetTaskRequest(id=task["id"])))
    print(json.dumps(told))


asyncio.run(main())
