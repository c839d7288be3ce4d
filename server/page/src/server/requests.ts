// Requests to the server that this page came from. Addresses are relative: it may live below a prefix.

import { Cell } from "../cell";
import { askForKey, key } from "./keys";

/** A refusal, in the server's words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** Seconds after which the same request may succeed; 0: nobody knows how many; null: it never will. */
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

/** Whether a retry makes sense: after a lost connection, or where the server itself asks for one. */
export function isPassing(error: unknown): boolean {
  return error instanceof TypeError || (error instanceof Refusal && error.retryAfter !== null);
}

/** Of a server that loads its model or has no room, or of a proxy whose server is away. */
const AWAY = [502, 503, 504];
/** Codes of a server that is there, but cannot work. One at work may be busy: its codes are others. */
const IDLE = ["loading", "rpc_server_lost", "engine_dead"];

/** Whether the last request found the server at work; set after each. */
export const isServed = new Cell(true);

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
    const response = await sent(path, { ...init, headers: { ...headersWith(shown), ...init.headers } });
    if (response.ok) return response;
    if (response.status !== 401) throw await refusal(response);
    // Another request may have got a key meanwhile.
    if (key() === shown && (await askForKey()) === null) throw await refusal(response);
    init.signal?.throwIfAborted();
  }
}

/** The browser's fetch, and what it says of the server. */
async function sent(path: string, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(path, init);
    if (!AWAY.includes(response.status)) isServed.value = true; // else `refusal` reads who refuses
    return response;
  } catch (error) {
    if (!init.signal?.aborted) isServed.value = false;
    throw error;
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
  const error = (await response.json().catch(() => null))?.error;
  const said = error?.message;
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  const isAway = AWAY.includes(response.status);
  const isProxys = said === undefined && isAway;
  if (isAway) isServed.value = error?.code !== undefined && !IDLE.includes(error.code);
  const retryAfter = Number.isNaN(seconds) ? (isProxys ? 0 : null) : seconds;
  return new Refusal(response.status, String(said ?? `${response.status} ${response.statusText}`), retryAfter);
}
