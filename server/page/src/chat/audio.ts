// Audio that is attached to a question: WAV and MP3, as they are.

import { type Medium, newId } from "./turn";

/** As base64 it is a third longer; a body must have room for it and for what else the conversation has (--max-body). */
const MAX_BYTES = 16 * 2 ** 20;

/** Throws an Error that says why it cannot be attached. */
export async function readAudio(file: File): Promise<{ file: Medium; bytes: ArrayBuffer }> {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES / 2 ** 20} MiB.`);
  const bytes = await file.arrayBuffer();
  const type = typeOf(new Uint8Array(bytes, 0, Math.min(12, bytes.byteLength)));
  if (!type) throw new Error(`${file.name} is neither WAV nor MP3.`);
  return { file: { id: newId(), name: file.name, type, size: bytes.byteLength }, bytes };
}

/** By the first bytes. */
function typeOf(head: Uint8Array): Medium["type"] | null {
  const text = String.fromCharCode(...head);
  if (text.startsWith("RIFF") && text.endsWith("WAVE")) return "audio/wav";
  const isFrame = head[0] === 0xff && (head[1]! & 0xe6) === 0xe2; // of layer III: AAC begins alike
  return text.startsWith("ID3") || isFrame ? "audio/mpeg" : null;
}
