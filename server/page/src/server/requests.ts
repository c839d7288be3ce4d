// Requests to the server that this page came from. Addresses are relative: it may live below a prefix.

import { askForKey, key } from "./keys";

/** A refusal, in the server's words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

let whyNot = "";

/** From now on every request is refused: this page is not the server's. */
export function stopAsking(why: string): void {
  whyNot = why;
}

/** The answer to a request, asking for a key if one is needed. Throws Refusal, or the browser's error. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    if (whyNot) throw new Refusal(409, whyNot, null);
    const shown = key();
    const response = await fetch(path, { ...init, headers: { ...headersWith(shown), ...init.headers } });
    if (response.ok) return response;
    if (response.status !== 401) throw await refusal(response);
    // Another request may have got a key meanwhile.
    if (key() === shown && (await askForKey()) === null) throw await refusal(response);
    init.signal?.throwIfAborted();
  }
}

export async function getJson<T>(path: string): Promise<T> {
  return (await request(path)).json() as Promise<T>;
}

export function post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  const headers = { "Content-Type": "application/json", ...init.headers };
  return request(path, { ...init, method: "POST", headers, body: JSON.stringify(body) });
}

function headersWith(shown: string): Record<string, string> {
  const bytes = new TextEncoder().encode(shown); // a header has only Latin letters: the server reads UTF-8
  return shown ? { Authorization: `Bearer ${String.fromCharCode(...bytes)}` } : {};
}

async function refusal(response: Response): Promise<Refusal> {
  const body = await response.json().catch(() => null);
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  const message = body?.error?.message ?? `${response.status} ${response.statusText}`;
  return new Refusal(response.status, String(message), Number.isNaN(seconds) ? null : seconds);
}
