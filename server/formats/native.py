"""llama-server's own completion."""

from __future__ import annotations

from dflash_local.generation import Chunk, Completion, Progress
from dflash_local.server.formats.reply import Body, Reply, timings, usage


class NativeReply(Reply):
    """llama-server's `/completion`."""

    PREFIX, OBJECT, CHUNK = "", "", ""

    def progress(self, index: int, progress: Progress) -> list[Body]:
        return [{**_part(index, "", []), "prompt_progress": progress._asdict()}]

    def chunk(self, index: int, chunk: Chunk) -> list[Body]:
        if not self._probs:
            return [_part(index, chunk.text, chunk.tokens)] if chunk.text else []
        probs = self._probs[index]
        return [
            _part(index, text, [one.token for one in placed]) | {"completion_probabilities": probs.detailed(placed)}
            for placed, text in probs.split(probs.push(chunk), chunk.text)
        ]

    def end(self, index: int, completion: Completion) -> list[Body]:
        last = {**self._whole(index, completion), "content": "", "tokens": []}
        if self._probs and (placed := self._probs[index].finish(completion, with_end=True)):
            last["completion_probabilities"] = self._probs[index].detailed(placed)
        return [last]

    def whole(self, completions: list[Completion], n_prompts: int) -> Body:
        bodies = [self._whole(index, completion) for index, completion in enumerate(completions)]
        for index, probs in enumerate(self._probs):
            placed = probs.whole(completions[index], with_end=True)
            bodies[index]["completion_probabilities"] = probs.detailed(placed)
        return bodies[0] if len(bodies) == 1 else {"results": bodies, **timings([done.timings for done in completions])}

    def usage_event(self, completions: list[Completion], n_prompts: int) -> Body:
        return {"stop": True, "usage": usage(completions, n_prompts)}

    def _whole(self, index: int, done: Completion) -> Body:
        stop_type = "word" if done.stopped_by is not None else "eos" if done.finish_reason == "stop" else "limit"
        return {
            "index": index,
            "content": done.text,
            "tokens": done.tokens,
            "stop": True,
            "model": self._head["model"],
            "tokens_predicted": len(done.tokens),
            "tokens_evaluated": done.prompt_tokens,
            "tokens_cached": done.cached_tokens,
            "stop_type": stop_type,
            "stopping_word": done.stopped_by or "",
            **timings([done.timings]),
        }


def _part(index: int, text: str, tokens: list[int]) -> Body:
    return {"index": index, "content": text, "tokens": tokens, "stop": False}
