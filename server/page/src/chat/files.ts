// Text files that are attached to a question.

import type { TextFile } from "./turn";

const MAX_BYTES = 2 * 2 ** 20;

/** The text of a file. Throws an Error that says why it cannot be attached. */
export async function readTextFile(file: File): Promise<TextFile> {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is longer than ${MAX_BYTES / 2 ** 20} MiB`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (text.includes("\0")) throw new TypeError();
    return { name: file.name, text };
  } catch {
    throw new Error(`${file.name} is no text: only text files can be attached`);
  }
}
