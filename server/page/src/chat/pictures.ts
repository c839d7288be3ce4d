// Pictures that are attached to a question: checked, and scaled down, as the model would do it anyway.

import { type Medium, newId } from "./turn";

const MAX_FILE_BYTES = 64 * 2 ** 20;
/** The longest side of what is sent, in pixels. */
const MAX_SIDE = 2048;
/** Above this a picture is sent as JPEG, which loses little of a photograph. */
const MAX_PNG_BYTES = 4 * 2 ** 20;
const JPEG_QUALITY = 0.9;

/** A picture as it is sent: the file itself if it is a small PNG or JPEG. Throws an Error that says why it cannot be. */
export async function readPicture(file: File): Promise<{ file: Medium; bytes: ArrayBuffer }> {
  if (file.size > MAX_FILE_BYTES) throw new Error(`${file.name} is larger than ${MAX_FILE_BYTES / 2 ** 20} MiB.`);
  // The browser turns a photograph as its camera was held.
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) throw new Error(`${file.name} is no picture that this browser can read.`);
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(bitmap.width * scale));
  const height = Math.max(1, Math.round(bitmap.height * scale));
  try {
    const sent = (scale === 1 && (await asItIs(file))) || (await drawn(bitmap, width, height, isLossless(file)));
    const bytes = await sent.arrayBuffer();
    const type = sent.type as Medium["type"];
    return { file: { id: newId(), name: file.name, type, size: bytes.byteLength, width, height }, bytes };
  } finally {
    bitmap.close();
  }
}

/** The file with the type that its first bytes tell; null if it has to be drawn again. */
async function asItIs(file: File): Promise<Blob | null> {
  const head = new Uint8Array(await file.slice(0, 3).arrayBuffer());
  if (head[0] === 0xff && head[1] === 0xd8 && head[2] === 0xff) return file.slice(0, file.size, "image/jpeg");
  const isPng = head[0] === 0x89 && head[1] === 0x50 && head[2] === 0x4e;
  return isPng && file.size <= MAX_PNG_BYTES ? file.slice(0, file.size, "image/png") : null;
}

function isLossless({ type }: File): boolean {
  return ["image/png", "image/gif", "image/bmp"].includes(type);
}

/** PNG if it was lossless or has transparent parts, as long as it is small; else JPEG. */
async function drawn(bitmap: ImageBitmap, width: number, height: number, wasLossless: boolean): Promise<Blob> {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d")!;
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  if (wasLossless || !isOpaque(context.getImageData(0, 0, width, height))) {
    const png = await canvas.convertToBlob({ type: "image/png" });
    if (png.size <= MAX_PNG_BYTES) return png;
  }
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = "#fff"; // JPEG would show black where nothing is
  context.fillRect(0, 0, width, height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: JPEG_QUALITY });
}

function isOpaque({ data }: ImageData): boolean {
  for (let alpha = 3; alpha < data.length; alpha += 4) if (data[alpha] !== 255) return false;
  return true;
}
