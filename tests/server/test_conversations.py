"""What chat apps do: a long chat, a side request for its title, the next turn; several answers to one prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.live import serving

SYSTEM = "You are a careful assistant. " + " ".join(f"Rule {i}: answer question {i} in one line." for i in range(60))
TITLE = "### Task: Generate a concise title for this chat.\n### Chat: " + " ".join(f"turn {i}" for i in range(80))


class Client:
    """A chat app."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)

    def ask(self, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
        body = {"messages": messages, "temperature": 0, "max_tokens": 40, **fields}
        answer = self._http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture(scope="module", params=["", "-np 1"], ids=["default", "one slot"])
def client(request: pytest.FixtureRequest, pocket: dict[str, Path]) -> Iterator[Client]:
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-t", 1, *request.param.split()]
    with serving(flags) as (_process, url):
        yield Client(url)


def test_side_requests_do_not_cost_a_chat_its_cache(client: Client) -> None:
    """Every turn reads what is new, and nothing else, whatever was asked in between."""
    messages = [{"role": "system", "content": SYSTEM}]
    known = 0
    for turn in range(3):
        messages.append({"role": "user", "content": f"What is {40 + turn} plus 24?"})
        answer = client.ask(messages)
        new = answer["usage"]["prompt_tokens"] - known
        if turn > 0:
            assert cached(answer) >= known - 8  # the template's own words around the answer may differ
            assert answer["timings"]["prompt_n"] <= new + 8 < 100
        known = answer["usage"]["total_tokens"] - 1
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        title = client.ask([{"role": "user", "content": f"{TITLE} {turn}"}])
        assert title["usage"]["prompt_tokens"] > 200


def test_a_chat_that_came_back_says_what_a_fresh_one_says(client: Client) -> None:
    messages = [{"role": "system", "content": SYSTEM[::-1]}, {"role": "user", "content": "What is 17 plus 24?"}]
    first = client.ask(messages, max_tokens=60)
    client.ask([{"role": "user", "content": TITLE}])
    again = client.ask(messages, max_tokens=60)
    fresh = client.ask(messages, max_tokens=60, cache_prompt=False)
    assert cached(again) > 500 and cached(fresh) == 0
    texts = [answer["choices"][0]["message"] for answer in (first, again, fresh)]
    assert texts[0] == texts[1] == texts[2]


def test_choices_share_their_prompt(client: Client, request: pytest.FixtureRequest) -> None:
    messages = [{"role": "system", "content": SYSTEM.upper()}, {"role": "user", "content": "What is 9 plus 24?"}]
    answer = client.ask(messages, n=3, seed=5, temperature=1)
    n_prompt = answer["usage"]["prompt_tokens"]
    assert answer["timings"]["prompt_n"] <= n_prompt + 2 * 2  # the others read the last token
    alone = [client.ask(messages, seed=5 + i, temperature=1, cache_prompt=False) for i in range(3)]
    assert [c["message"]["content"] for c in answer["choices"]] == [
        a["choices"][0]["message"]["content"] for a in alone
    ]


def test_a_slot_is_named(client: Client) -> None:
    messages = [{"role": "user", "content": "What is 3 plus 24?"}]
    assert client.ask(messages, id_slot=0)["choices"][0]["message"]["content"]
    assert client.ask(messages, id_slot=-1)["choices"][0]["message"]["content"]
    refused = client._http.post("/v1/chat/completions", json={"messages": messages, "id_slot": 4})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "id_slot"
