"""What the scripted engine answers on the chat page: the last line of the question chooses."""

from __future__ import annotations

import json
import threading
from typing import Any

from dflash_local.native import PreparedRequest
from tests.fake_native import CONTROL, bytes_in_blocks
from tests.page.drafted import DraftedNative

RICH = r"""## A short tour

**Speculative decoding** lets a small model guess what a large one would say, and the large one checks all guesses
in *one* pass. Nothing changes but the time: see [the paper](https://example.org/paper) and `docs/proof.md`.

| place | likeliest token | probability |
|:-:|:--|--:|
| 1 | the | 0.91 |
| 2 | accepted | 0.78 |
| 3 | path | 0.64 |

With an acceptance length $\tau$ and costs $c_v$ and $c_d$ the gain is

$$\text{speed-up} = \frac{\tau}{c_v + c_d}, \qquad \tau = 1 + \sum_{k=1}^{K} \prod_{i=1}^{k} p_i$$

1. the drafter proposes a block,
2. the target verifies the tree,
3. the accepted path is kept.

```python
def walk(tree: Tree, sample: Callable[[int], int]) -> list[int]:
    # Follow the target's samples from the anchor down.
    node, path = 0, []
    while (child := tree.child(node, sample(node))) is not None:
        path.append(child)
        node = child
    return path
```

> The text is the one of plain decoding, bit for bit.
"""
EVIL = r"""<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>

[a](javascript:window.hacked=1) [b](data:text/html,x) ![c](https://example.org/c.png) $\href{javascript:alert(1)}{x}$

```html"><img/src=x/onerror=window.hacked=1>
<script>window.hacked=1</script>
```
"""
STORY = "A small model runs ahead and guesses, and the large one looks at all of its guesses at once. " * 4
THOUGHTS = "<think>First, what is asked? *A number.*</think>It is 42."
HEBREW = """שלום, world!

- אחת
- שתיים

In English.

> ציטוט

| מילה | word |
|---|---|
| אחת | one |

```
x = 1
```
"""
COUNT = " ".join(map(str, range(1, 101)))
CALL = b'Let me look.\0{"city": "Oslo", "unit": "C"}'

# Texts whose beginning looks like something else than the whole.
TRICKY = (
    "- one\n- two\n- three\n\n- four, which makes all of them paragraphs\n- five\n\nAnd a text behind it.\n",
    "3. three\n4. four\n   1. within\n   2. within\n\n      still within\n5. five\n\n* another list\n* of two\n",
    "- an item with code\n  ```python\n  def f():\n\n      return 1\n  ```\n- and one without\n  lazily\ngoing on\n",
    "Title\n=====\ntext with [a link][1] and `code`\n\nmore\n\n[1]: https://example.org/late\n",
    "| a | b |\n|--|:-:|\n| 1 | $x^2$ |\n| 3 | `4` |\nno row\n\n\\[ \\int_0^1 x \\]\n\n> quoted\n> - a\n> - list\n",
    "````md\n```js\nlet x = 1;\n```\n````\n~~~\nplain\n~~~\n\n    indented\n\n***\n1) a\n2) b\n1. c\n2. d\n",
    "- a\n  - b\n    - c\n  - d\n\n    text of d\n- e\n\n  text of e\n   - f\n    - g\n",
    "**unfinished and `open $x^2 and\n\n```cpp\nint main() {",
)
TEXTS = {f"tricky {number}": text for number, text in enumerate(TRICKY)} | {
    "show all": RICH,
    "be evil": EVIL,
    "think": THOUGHTS,
    "count": COUNT,
    "שלום": HEBREW,
}

# Answered in words, most of them drafted.
WORDY = {"show drafts": RICH, "tell a story": STORY}
for text in WORDY.values():
    DraftedNative.words.of(text)


def script(prompt: bytes) -> list[list[int]]:
    """The passes of an answer to a chat."""
    asked = prompt.decode(errors="replace").rstrip("\n").split("\n")[-1].removeprefix("user: ")
    if asked in WORDY:
        return DraftedNative.words.passes(WORDY[asked])
    if asked == "call a tool":
        return [[token or CONTROL for token in tokens] for tokens in bytes_in_blocks(CALL)]
    text = TEXTS.get(asked, f"You said: {asked}").encode()
    if text.startswith(b"<think>"):  # the fake's parser wants these tags whole
        thoughts, _, said = text.removeprefix(b"<think>").partition(b"</think>")
        return [[*b"<think>"], *([byte] for byte in thoughts), [*b"</think>"], *bytes_in_blocks(said)]
    return bytes_in_blocks(text)


class Pace(threading.Semaphore):
    """Steps run freely; after `hold()` so many as are released."""

    def __init__(self) -> None:
        super().__init__(0)
        self._is_free = True

    def hold(self) -> None:
        self._is_free = False
        while super().acquire(blocking=False):
            pass

    def free(self) -> None:
        self._is_free = True
        self.release(1000)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return self._is_free or super().acquire(blocking, timeout)


class ChatNative(DraftedNative):
    """Remembers the chats that it was asked."""

    def __init__(self, pace: Pace, **more: Any) -> None:
        super().__init__(script, gate=pace, n_slots=4, **more)
        self.asked: list[dict[str, Any]] = []
        self.plain_script: list[list[int]] | None = None  # another answer for who asks without drafts

    def chat_apply(self, template: str | None, body: str) -> dict[str, Any]:
        self.asked.append(json.loads(body))
        return super().chat_apply(template, body)

    def submit(self, slot: int, request: PreparedRequest) -> None:
        super().submit(slot, request)
        state = self._slots[slot]
        if state.plain and self.plain_script:
            state.passes = [[token] for tokens in self.plain_script for token in tokens]


# For a page: the texts of all turns that it keeps.
KEPT = """new Promise((resolve) => {
  const asked = indexedDB.open("dflash-local");
  asked.onsuccess = () => {
    const turns = asked.result.transaction("turns").objectStore("turns").getAll();
    turns.onsuccess = () => (asked.result.close(), resolve(turns.result.map(({ content }) => content).join()));
  };
})"""
