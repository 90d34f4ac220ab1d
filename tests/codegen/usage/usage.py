"""What a caller writes, and what the type checker must refuse."""

from typing import Literal

from capd import AsyncClient, Client
from pr_reviewer import Capabilities, ReviewPrRequest, review_pr, review_pr_async
from shapes import EventRequest, EverythingResponse, TreeRequest, versions


def use(client: Client) -> None:
    answer = review_pr(client, {"prUrl": "https://example.org/1", "severity": "high"}, key="a", timeout=1.0)
    verdict: Literal["approve", "request-changes", "comment"] = answer["verdict"]
    print(verdict, len(answer["summary"]))
    review_pr(client, {"prUrl": "", "severity": "higher"})  # type: ignore[typeddict-item]
    review_pr(client, {"severity": "high"})  # type: ignore[typeddict-item]
    review_pr(client, {"prUrl": "", "severity": "low", "other": 1})  # type: ignore[typeddict-unknown-key]
    for text in versions(client, ["a"]) or {}:
        print(text)


async def use_async(client: AsyncClient) -> str:
    return (await review_pr_async(client, {"prUrl": "", "severity": "med"}))["summary"]


request: ReviewPrRequest = {"prUrl": "", "severity": "med"}
tree: TreeRequest = {"label": "a", "parent": None, "children": [{"label": "b", "parent": None}]}
event: EventRequest = {"kind": "gone", "reason": "moved"}
both: EverythingResponse = {"id": "a", "extra": 1, "count": 2}
types: Capabilities = {"review-pr": {"request": request, "response": {"summary": "", "verdict": "comment"}}}
