// Server-sent events, with their place in the stream, from which it can be read again.

export interface StreamEvent {
  /** Its data: JSON, or [DONE]. */
  data: string;
  /** Bytes of the stream up to its end. */
  end: number;
}

const NEWLINE = 10;

/** The events of a body. A reader is used, as not all browsers can iterate over streams. */
export async function* eventsOf(body: ReadableStream<Uint8Array>, start = 0): AsyncGenerator<StreamEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = new Uint8Array();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest = joined(rest, value);
      for (let end = frameEnd(rest); end > 0; end = frameEnd(rest)) {
        start += end;
        const data = dataOf(decoder.decode(rest.subarray(0, end)));
        rest = rest.subarray(end);
        if (data) yield { data, end: start };
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** The number of bytes up to the first empty line, that line included; 0: there is none yet. */
function frameEnd(bytes: Uint8Array): number {
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) {
    if (bytes[at + 1] === NEWLINE) return at + 2;
  }
  return 0;
}

/** What the frame's `data:` lines say; empty for comments (pings) and other fields. */
function dataOf(frame: string): string {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).trimStart()).join("\n");
}
