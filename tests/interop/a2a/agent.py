"""An agent of the official Python SDK: it says a text in capitals, and appends each text that it was asked to the file.
Arguments: the binding that its card names, and the file. Prints its URL."""

import asyncio
import socket
import sys

import uvicorn
from a2a.helpers.proto_helpers import get_message_text, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class Shouts(AgentExecutor):
    def __init__(self, effects):
        self.effects = effects

    async def execute(self, context, event_queue):
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        text = get_message_text(context.message)
        with open(self.effects, "a") as file:
            file.write(text + "\n")
        if text.startswith("fail"):
            await updater.failed(updater.new_agent_message([new_text_part("it cannot shout that")]))
            return
        if text.startswith("slow"):
            await asyncio.sleep(600)
        await updater.add_artifact([new_text_part(text.upper())], name="shout")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main():
    binding, effects = sys.argv[1:]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    # Whoever reads the address may connect at once.
    listener.listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    card = AgentCard(
        name="shouts", description="Says a text in capitals", version="1.0.0",
        supported_interfaces=[AgentInterface(url=url + "/a2a", protocol_binding=binding, protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        skills=[AgentSkill(id="shout", name="Shout", description="Says a text in capitals", tags=["words"])],
    )
    handler = DefaultRequestHandler(agent_executor=Shouts(effects), task_store=InMemoryTaskStore(), agent_card=card)
    bound = create_jsonrpc_routes(handler, "/a2a") if binding == "JSONRPC" else create_rest_routes(handler, path_prefix="/a2a")
    app = Starlette(routes=[*create_agent_card_routes(card), *bound])
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


main()
