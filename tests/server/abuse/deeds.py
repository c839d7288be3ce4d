"""What a client may do to the server: the table `DEEDS`. Each deed is an async function of a client and a random number
generator, and raises what it finds wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import httpx

from dflash_local.server.recordings.recordings import HEADER as RECORDING
from tests.fuzz.http.barrage import SECONDS, is_error, stream_fault
from tests.fuzz.http.client import Connection, Request, connected, reset
from tests.fuzz.http.mutations import mutate
from tests.patience import PATIENCE

from .answers import Said, said_in_stream, said_in_whole
from .clients import Asked, Client
from .questions import CHAT, NATIVE, QUESTIONS, RECORDED, SLOTS, Question
from .refusals import ODDITIES, REFUSALS

# Longest pauses of clients that read slowly, shorter than the server's --timeout.
PAUSE = 2.0
# Documented: too much at once, and a stream or a slot that is not there yet.
BUSY = ("queue_full", "too_many_connections", "too_many_bodies", "too_many_recordings", "not_begun", "no_slot")
POLLED = (
    "/health", "/v1/health", "/props", "/slots", "/slots?fail_on_no_slot=1", "/metrics", "/machine", "/machine?since=3",
    "/models", "/api/ps", "/api/tags",
)  # fmt: skip
# Nothing to save, or no file: what another client did before.
SLOT_REFUSALS = ("holds nothing", "No such file")
# What every run must have met with (`Tally.seen`), beside all deeds.
OUTCOMES = (
    "left in a stream", "left before an answer", "cancelled a stream", "read a stream again", "read a part of it",
    "looked a stream up", "saved a slot", "restored a slot", "erased a slot", "odd: answered", "odd: refused",
    "damaged: 2xx", "damaged: 4xx", "cut off: close", "cut off: reset", "cut off: half", "cut off: wait",
    "cut off: 408", "noise: 400",
)  # fmt: skip


class Busy(Exception):
    """The server refused because too much was asked at once, as documented."""


class Refused(AssertionError):
    """The server said that it cannot do this, and why: 400 or 501."""


def check_status(status: int, headers: Any, body: bytes, *others: int) -> None:
    """Raise AssertionError unless it is 200 or one of `others`; Refused: 400 or 501, with an error; Busy: 503, in the
    documented way."""
    if status == 503 and 503 not in others:
        error = json.loads(body).get("error")
        # Errors of Anthropic's and Ollama's shapes have no code.
        code = error.get("code", "queue_full") if isinstance(error, dict) else "queue_full"
        assert code in BUSY and "retry-after" in headers, f"503: {body[:300]!r}"
        raise Busy(code)
    assert status < 400 or is_error(body), f"{status} without an error: {body[:300]!r}"
    if status in (400, 501) and status not in others:
        raise Refused(f"{status}: {body[:400].decode()}")
    assert status == 200 or status in others, f"{status}: {body[:400]!r}"


# ---- good questions ----


def some_question(
    client: Client, rng: random.Random, *, of: Callable[[Question], bool], stream: bool | None = None
) -> tuple[Asked, Question]:
    """One that the server answered before, alone; each is as likely, so that a short run has all kinds."""
    known = [*client.known]
    while True:
        asked = rng.choice(known)
        question = QUESTIONS[asked.kind](asked.variant)
        if of(question) and stream in (None, asked.stream):
            return asked, question


async def pieces(
    http: httpx.AsyncClient, question: Question, *, pauses: Sequence[float] = (), name: str = ""
) -> AsyncGenerator[str, None]:
    """A stream as it comes, recorded if it has a name. `pauses`: seconds without reading, behind each piece."""
    headers, left = {RECORDING: name} if name else {}, iter(pauses)
    async with http.stream("POST", question.path, json=question.asked(stream=True), headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
        check_status(response.status_code, response.headers, response.content if response.is_error else b"")
        async for piece in response.aiter_text():
            yield piece
            await asyncio.sleep(next(left, 0))


async def begin(client: Client, question: Question, count: int, name: str = "") -> None:
    """Read the first pieces of a stream, and close the connection."""
    async with contextlib.aclosing(pieces(client.http, question, name=name)) as stream:
        async for _ in stream:
            count -= 1
            if not count:
                client.tally.seen["left in a stream"] += 1
                break


async def answer_to(http: httpx.AsyncClient, question: Question, *, stream: bool, pauses: Sequence[float] = ()) -> Said:
    """What is said to a question."""
    if stream:
        return said_in_stream("".join([piece async for piece in pieces(http, question, pauses=pauses)]))
    if question.body is None:
        response = await http.get(question.path)
        check_status(response.status_code, response.headers, response.content, 204)
        return {"": response.text}
    response = await http.post(question.path, json=question.asked(stream=False))
    check_status(response.status_code, response.headers, response.content)
    return said_in_whole(response.text)


async def ask(client: Client, rng: random.Random) -> None:
    """Wait for the whole answer, which must be the known one. Some stop reading for a while, twice."""
    asked, question = some_question(client, rng, of=lambda _: True)
    lengths = [0.0] * rng.randrange(20) + [rng.random() * PAUSE] + [0.0] * rng.randrange(20) + [rng.random() * PAUSE]
    pauses = lengths if rng.random() < 0.15 else []
    client.compare(asked, await answer_to(client.http, question, stream=asked.stream, pauses=pauses), "ask")


async def leave(client: Client, rng: random.Random) -> None:
    """Read some of a stream."""
    _, question = some_question(client, rng, of=lambda question: question.streams)
    await begin(client, question, rng.randrange(1, 12))


async def leave_early(client: Client, rng: random.Random) -> None:
    """Close the connection at once, or a little later. An answer that was quicker must be the known one."""
    asked, question = some_question(client, rng, of=lambda question: question.body is not None)
    body = question.asked(stream=asked.stream)
    try:
        answer = await asyncio.wait_for(client.http.post(question.path, json=body), rng.random() * 0.05)
    except asyncio.TimeoutError:
        client.tally.seen["left before an answer"] += 1
        return
    check_status(answer.status_code, answer.headers, answer.content)
    said = said_in_stream(answer.text) if asked.stream else said_in_whole(answer.text)
    client.compare(asked, said, "leave_early")


async def resume(client: Client, rng: random.Random) -> None:
    """Leave a stream that has a name, and read it again; or cancel it."""
    asked, question = some_question(client, rng, of=lambda question: question.path in RECORDED, stream=True)
    name, seen = f"abuse-{rng.getrandbits(64):x}", client.tally.seen
    query: dict[str, Any] = {"conv_id": name}
    await begin(client, question, rng.randrange(1, 12), name)
    if rng.random() < 0.2:
        assert (await client.http.delete("/v1/stream", params=query)).status_code == 204
        assert (await client.http.get("/v1/stream", params=query)).status_code == 404
        seen["cancelled a stream"] += 1
        return
    found = await client.http.get("/v1/stream", params=query)
    check_status(found.status_code, found.headers, found.content, 404)
    if found.status_code == 404:  # it ended, and others took its place
        seen["came back too late"] += 1
        return
    client.compare(asked, said_in_stream(found.text), "resume")
    seen["read a stream again"] += 1
    start = rng.randrange(len(found.content) + 1)
    again = await client.http.get("/v1/stream", params={**query, "from": start})
    check_status(again.status_code, again.headers, again.content, 404)
    if again.status_code == 200:
        assert again.content == found.content[start:], f"{name} is another from {start} on"
        seen["read a part of it"] += 1
    lookup = await client.http.post("/v1/streams/lookup", json={"conversation_ids": [name]})
    assert lookup.status_code == 200 and all(one["is_done"] for one in lookup.json()), lookup.text
    seen["looked a stream up"] += len(lookup.json())


async def control(client: Client, rng: random.Random) -> None:
    """End the thoughts of a chat while it runs, if it has any."""
    asked, question = some_question(client, rng, of=lambda question: question.path == CHAT, stream=True)
    text, ended = "", None
    async with contextlib.aclosing(pieces(client.http, question)) as stream:
        async for piece in stream:
            text += piece
            if ended is None and (found := re.search(r'"id": ?"(chatcmpl-[^"]+)"', text)):
                body = {"id": found[1], "action": "reasoning_end"}
                answer = await client.http.post(f"{CHAT}/control", json=body)
                check_status(answer.status_code, answer.headers, answer.content)
                ended = answer.json()["success"]
    assert ended is not None, f"a chat without an id: {text[:300]}"
    said = said_in_stream(text)  # it ended as it should
    if not ended:
        client.compare(asked, said, "control")


async def draw(client: Client, rng: random.Random) -> None:
    """Answers that nobody can foresee: without a seed, cut off by time, or by block verification if the drafter can."""
    asked, question = some_question(client, rng, of=lambda question: question.streams)
    ways: list[dict[str, Any]] = [{}, {"t_max_predict_ms": 5}]
    if client.answers("chat, block verification"):
        ways.append({"accept": "block"})
    body, more = dict(question.body or {}), {"temperature": 1.3, "seed": -1, **rng.choice(ways)}
    body |= {"options": {**body["options"], **more}} if "options" in body else more  # Ollama's are apart
    await answer_to(client.http, Question(question.path, body), stream=asked.stream)


# ---- other endpoints ----


async def poll(client: Client, rng: random.Random) -> None:
    """What monitors ask all the time."""
    path = rng.choice(POLLED)
    answer = await client.http.get(path)
    check_status(answer.status_code, answer.headers, answer.content)
    if path == "/metrics":
        assert "llamacpp:requests_processing " in answer.text
    else:
        told = answer.json()
        assert not path.startswith("/slots") or len(told) == SLOTS, f"{len(told)} slots"


async def move_slot(client: Client, rng: random.Random) -> None:
    """Save, restore or erase a slot that others use; files, too, are shared."""
    action, slot = rng.choice(["save", "save", "restore", "restore", "erase"]), rng.randrange(SLOTS)
    body = {} if action == "erase" else {"filename": f"abuse-{rng.randrange(3)}.slot"}
    answer = await client.http.post(f"/slots/{slot}", params={"action": action}, json=body)
    check_status(answer.status_code, answer.headers, answer.content, 400)
    assert answer.status_code == 200 or any(why in answer.text for why in SLOT_REFUSALS), answer.text
    if answer.status_code == 200:
        client.tally.seen[f"{action.removesuffix('e')}ed a slot"] += 1


# ---- what is wrong, or odd ----


async def be_refused(client: Client, rng: random.Random) -> None:
    """Ask for three things that must be refused."""
    for place in rng.sample(range(len(REFUSALS)), 3):
        await _be_refused_at(client, place)


async def _be_refused_at(client: Client, place: int) -> None:
    refusal = REFUSALS[place]
    connection = Connection(client.port)
    answer = await connection.ask(refusal.request, SECONDS)
    await connection.close()
    try:
        check_status(answer.status, answer.headers, answer.body, *refusal.statuses)
    except AssertionError as error:
        raise AssertionError(f"{refusal}: {error}") from None
    told = f"{refusal}: {answer.status}: {answer.body[:300]!r}"
    assert answer.status in refusal.statuses, told
    assert answer.status >= 400 or b"event: response.failed" in answer.body, told
    client.tally.refusals[place] += 1
    client.tally.refused[str(answer.status)] += 1


async def be_odd(client: Client, rng: random.Random) -> None:
    """Ask for what few ask for."""
    body = {"prompt": "a", "n_predict": 4, **rng.choice(ODDITIES), "stream": rng.random() < 0.5}
    answer = await client.http.post(NATIVE, json=body)
    check_status(answer.status_code, answer.headers, answer.content, 400)
    client.tally.seen["odd: answered" if answer.status_code == 200 else "odd: refused"] += 1
    if answer.status_code == 200 and "nonsense" in body:
        assert "nonsense" in answer.headers["x-dflash-ignored"]
    if answer.status_code == 200 and body["stream"]:
        fault = stream_fault(answer.content)
        assert not fault, fault


async def be_mutated(client: Client, rng: random.Random) -> None:
    """A damaged request to any endpoint, as tests/fuzz/test_http.py sends them."""
    barrage = client.barrage
    endpoint = rng.choice(barrage.turns)
    request, what = mutate(endpoint, rng.getrandbits(32), barrage.names)
    connection = Connection(client.port)
    answer = await connection.ask(request, SECONDS)
    await connection.close()
    fault = barrage.fault(endpoint, request, answer)
    assert not fault, f"{request.method} {request.target} ({what}): {fault}"
    client.tally.seen[f"damaged: {answer.status // 100}xx"] += 1


async def be_cut_off(client: Client, rng: random.Random) -> None:
    """Send the beginning of a request, and close, reset or half close the connection, or wait."""
    asked, question = some_question(client, rng, of=lambda question: question.body is not None)
    body = json.dumps(question.asked(stream=asked.stream)).encode()
    raw = Request("POST", question.path, body).bytes()
    sent = raw[: rng.randrange(1, len(raw))]
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(sent)
    await asyncio.sleep(rng.random() * 0.02)
    end, seen = rng.choice(["close", "reset", "half", "wait"]), client.tally.seen
    seen[f"cut off: {end}"] += 1
    if end == "half":
        _say_no_more(writer)
        said = await _rest(reader)
        assert not said or said.startswith(b"HTTP/1.1 4"), f"half closed after {len(sent)} bytes: {said[:200]!r}"
    elif end == "wait" and len(sent) > len(raw) - len(body):
        said = await _rest(reader)
        assert said.startswith(b"HTTP/1.1 408"), f"no more after {len(sent)} bytes: {said[:200]!r}"
        seen["cut off: 408"] += 1
    await _closed(writer, by_reset=end == "reset")


async def be_noise(client: Client, rng: random.Random) -> None:
    """What is not HTTP; or nothing at all, on connections that are closed at once."""
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 6)):
            _, writer = await asyncio.open_connection("127.0.0.1", client.port)
            await _closed(writer, by_reset=rng.random() < 0.5)
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(rng.choice([b"\x16\x03\x01\x02\x00", b"\r\n" * 50, b"GET\r\n\r\n", b"\0" * 500]) + rng.randbytes(200))
    writer.write(b"\r\n\r\n")
    _say_no_more(writer)
    said = await _rest(reader)
    assert not said or said.startswith(b"HTTP/1.1 400"), said[:200]
    client.tally.seen["noise: 400" if said else "noise: nothing"] += 1
    await _closed(writer)


async def be_deaf(client: Client, rng: random.Random) -> None:
    """Read nothing for a while, with little room for what comes; then all of it, which must be the known answer."""
    asked, question = some_question(client, rng, of=lambda question: question.streams, stream=True)
    reader, writer = await connected(client.port, receive_buffer=4096, limit=4096)
    connection = Connection(client.port, reader, writer)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    request = Request("POST", question.path, json.dumps(question.asked(stream=True)).encode())
    answering = asyncio.create_task(connection.ask(request, SECONDS))
    await asyncio.sleep(rng.random() * PAUSE)
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    answer = await answering
    assert connection.reader in (reader, None), "the connection ended without an answer"
    await connection.close()
    check_status(answer.status, answer.headers, answer.body)
    client.compare(asked, said_in_stream(answer.body.decode()), "be_deaf")


def _say_no_more(writer: asyncio.StreamWriter) -> None:
    """Close half a connection, which the server may have reset by now."""
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What the server still says."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := await asyncio.wait_for(reader.read(65536), PATIENCE):
            said += part
    return said


async def _closed(writer: asyncio.StreamWriter, *, by_reset: bool = False) -> None:
    if by_reset:
        reset(writer)
    else:
        writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


Deed = Callable[[Client, random.Random], Awaitable[None]]

# How often each is done, of all together.
DEEDS: dict[Deed, int] = {
    ask: 50,
    leave: 12,
    leave_early: 8,
    resume: 6,
    control: 2,
    draw: 4,
    poll: 6,
    move_slot: 4,
    be_refused: 8,
    be_odd: 3,
    be_mutated: 12,
    be_cut_off: 5,
    be_noise: 3,
    be_deaf: 4,
}
# Those that must have compared answers. `leave_early` may, if the server was quick.
COMPARING: tuple[Deed, ...] = (ask, resume, control, be_deaf)
