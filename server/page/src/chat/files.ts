// Files that are attached to a question: text, pictures, audio.

import type { Modalities } from "../server/modalities";
import { readAudio } from "./audio";
import { readPicture } from "./pictures";
import type { Medium, TextFile } from "./turn";

const MAX_TEXT_BYTES = 2 * 2 ** 20;

/** A file as it goes with a question; a medium with its bytes. */
export type ReadFile = { file: TextFile } | { file: Medium; bytes: ArrayBuffer };

/** Read a file; `taken` is what the model takes besides text, null: not known yet. Throws an Error that says why it
 * cannot be attached. */
export async function readFile(file: File, taken: Modalities | null): Promise<ReadFile> {
  const kind = kindOf(file);
  if (kind === "text") return { file: await readText(file, taken) };
  if (!taken) throw new Error(`${file.name}: the server has not said yet whether its model takes ${kind}.`);
  if (kind === "pictures") {
    if (!taken.vision) throw new Error(`${file.name}: this model does not see pictures.`);
    return readPicture(file);
  }
  if (!taken.audio) throw new Error(`${file.name}: this model does not hear audio.`);
  return readAudio(file);
}

/** By the type that the browser gives it. An SVG is text: its source says more than its picture. */
function kindOf({ type }: File): "text" | "pictures" | "audio" {
  if (type.startsWith("image/") && type !== "image/svg+xml") return "pictures";
  return type.startsWith("audio/") ? "audio" : "text";
}

async function readText(file: File, taken: Modalities | null): Promise<TextFile> {
  const megabytes = MAX_TEXT_BYTES / 2 ** 20;
  if (file.size > MAX_TEXT_BYTES) throw new Error(`${file.name} is longer than ${megabytes} MiB.`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (text.includes("\0")) throw new TypeError();
    return { name: file.name, text };
  } catch {
    throw new Error(`${file.name} is no text: only ${namesOf(taken)} can be attached.`);
  }
}

/** What can be attached, in words. */
export function namesOf(taken: Modalities | null): string {
  const names = ["text files", ...(taken?.vision ? ["pictures"] : []), ...(taken?.audio ? ["audio files"] : [])];
  return new Intl.ListFormat("en-GB").format(names);
}
