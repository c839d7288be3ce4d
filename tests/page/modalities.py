"""A model that sees and hears, as the page finds it: the scripted engine reads text only, so a tab's requests are
changed on their way. Pictures and sound for tests."""

from __future__ import annotations

import io
import json
import wave
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

ORIENTATION = 0x0112  # the EXIF tag


@dataclass
class Senses:
    """`asked`: bodies of chat requests as the page sent them; the engine gets their text."""

    vision: bool = True
    audio: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)

    def attend(self, page: Any) -> None:
        """Change what a tab asks and gets from now on."""
        page.route("**/props", self._tell)
        page.route("**/v1/chat/completions", self._listen)

    @property
    def content(self) -> Any:
        """Of the last message that was sent."""
        return self.asked[-1]["messages"][-1]["content"]

    def _tell(self, route: Any) -> None:
        answer = route.fetch()
        modalities = {"vision": self.vision, "audio": self.audio}
        route.fulfill(response=answer, json={**answer.json(), "modalities": modalities})

    def _listen(self, route: Any) -> None:
        body = route.request.post_data_json
        self.asked.append(body)
        texts = [{**message, "content": text_of(message["content"])} for message in body["messages"]]
        route.continue_(post_data=json.dumps({**body, "messages": texts}))


def text_of(content: str | list[dict[str, Any]]) -> str:
    """Of a message, without its media."""
    if isinstance(content, str):
        return content
    return "\n\n".join(part["text"] for part in content if part["type"] == "text")


def scene(width: int = 640, height: int = 400) -> Image.Image:
    """A hill, a house and the sun."""
    image = Image.new("RGB", (width, height), "#a9d6f5")
    pen = ImageDraw.Draw(image)
    pen.ellipse((width * 0.72, height * 0.1, width * 0.72 + height * 0.25, height * 0.35), fill="#ffd34d")
    pen.ellipse((-width * 0.3, height * 0.6, width * 1.3, height * 1.7), fill="#6dab5c")
    pen.rectangle((width * 0.25, height * 0.42, width * 0.45, height * 0.72), fill="#c8553d")
    roof = ((0.22, 0.42), (0.48, 0.42), (0.35, 0.22))
    pen.polygon([(width * x, height * y) for x, y in roof], fill="#5b3a2e")
    return image


def saved(image: Image.Image, path: Path, **options: Any) -> Path:
    """The image as a file of the type that the path's suffix says."""
    image.save(path, **options)
    return path


def beep(path: Path, seconds: float = 0.2) -> Path:
    """A WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        levels = ((n * 900) % 20000 - 10000 for n in range(int(8000 * seconds)))
        file.writeframes(b"".join(level.to_bytes(2, "little", signed=True) for level in levels))
    return path


def opened(content: bytes) -> Image.Image:
    """The picture in these bytes."""
    return Image.open(io.BytesIO(content))
