"""An agent that answers a question with a report, and lets another agent review its numbers first.

A language model would write the draft and decide when to have it reviewed. Here a scripted stand-in does, so that the
example needs no network. docs/agents.md shows the same loop with the SDK of a real model.
"""

import json
import sys
import time
from typing import Any, Dict, List

import capd

START_SECONDS_MAX = 30
QUESTION = "How many calls does a fleet of 12 agents make in a day at 250 calls an hour each, and what is a third of that?"


class ScriptedModel:
    """Stands in for a language model: it says what its script says, in the form of a model's messages.

    It drafts two claims, the second one wrong; after the review it corrects the draft by the findings.
    """

    def __init__(self) -> None:
        self.draft = {
            "claims": [
                {"text": "The fleet makes 72000 calls a day.", "expression": "12 * 250 * 24", "value": "72000"},
                {"text": "A third of that is 23000 calls.", "expression": "12 * 250 * 24 / 3", "value": "23000"},
            ]
        }

    def answer(self, messages: List[Dict[str, Any]], tools: List[Any]) -> Dict[str, Any]:
        """The next message: the use of a tool, or the final text."""
        last = messages[-1]
        if last["role"] == "user" and isinstance(last["content"], str):
            return {"stop_reason": "tool_use", "content": [{"type": "tool_use", "id": "use-1", "name": tools[0]["name"], "input": self.draft}]}
        review = json.loads(last["content"][0]["content"])
        lines = []
        for claim, finding in zip(self.draft["claims"], review["findings"]):
            text = claim["text"] if finding["holds"] else claim["text"].replace(claim["value"], finding["computed"])
            lines.append(f"{text}{'' if finding['holds'] else ' (corrected by the review)'}")
        return {"stop_reason": "end_turn", "content": [{"type": "text", "text": "\n".join(lines)}]}


def wait_for_tools(client: capd.Client) -> capd.Tools:
    """The tools of the agents beside this one, once there are any: agents start in any order."""
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        tools = client.tools("anthropic", namespace="com.example.*")
        if tools or time.monotonic() > end:
            return tools
        time.sleep(0.1)


def research(client: capd.Client, model: ScriptedModel, question: str) -> str:
    """The loop of every agent with tools: the model speaks, its tool uses become calls, their results go back to it."""
    tools = wait_for_tools(client)
    messages: List[Dict[str, Any]] = [{"role": "user", "content": question}]
    while True:
        answer = model.answer(messages, list(tools))
        messages.append({"role": "assistant", "content": answer["content"]})
        if answer["stop_reason"] != "tool_use":
            return "".join(part["text"] for part in answer["content"] if part["type"] == "text")
        results = []
        for use in answer["content"]:
            if use["type"] == "tool_use":
                try:
                    content, is_error = json.dumps(client.call_tool(tools, use["name"], use["input"], timeout=20)), False
                except capd.CapdError as error:
                    # The model reads what went wrong and may repair its arguments.
                    content, is_error = json.dumps({"error": str(error), "outcome": error.outcome, "details": error.details}), True
                results.append({"type": "tool_result", "tool_use_id": use["id"], "content": content, "is_error": is_error})
        messages.append({"role": "user", "content": results})


def main() -> None:
    with capd.Client() as client:
        print(research(client, ScriptedModel(), sys.argv[1] if len(sys.argv) > 1 else QUESTION))


if __name__ == "__main__":
    main()
