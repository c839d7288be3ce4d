// What the server says about itself: whether it is ready, the model, the defaults, the fields of a request.

import { Cell } from "../cell";
import type { ErrorAnswer, Health, Props, RouterProps } from "./answers";
import { isServersPage } from "../offline";
import { pause } from "../pause";
import { chosen, forgetModels, isLoaded, learnModels } from "./models";
import { getJson, isPassing, isServed, Refusal, stopAsking } from "./requests";

/** Of a server or of a router, which has no engine. */
export type ServerProps = Partial<Omit<Props, "dflash">> & {
  role?: RouterProps["role"];
  /** `not_bit_exact`: why drafted text might not be plain text, bit for bit; empty: it is. */
  dflash?: { drafters?: { kind?: string }[]; not_bit_exact?: string };
};

export type Facts =
  | { state: "waiting"; progress: number | null; isAway: boolean }
  | { state: "ready"; props: ServerProps }
  | { state: "failed"; message: string }
  /** The server has another version of this page, which asks it nothing. */
  | { state: "outdated" };

/** The parts of a field's JSON schema that are used here. */
export interface FieldSchema {
  type?: string;
  description?: string;
  enum?: (string | null)[];
  anyOf?: FieldSchema[];
  minimum?: number;
  maximum?: number;
}

interface OpenApi {
  components: { schemas: { ChatRequest: { properties: Record<string, FieldSchema> } } };
}

const POLL_MS = 500;
const AWAY_MS = 2000;
/** So long nothing is asked again without a reason. */
const FRESH_MS = 60_000;

export const facts = new Cell<Facts>({ state: "waiting", progress: null, isAway: false });

let learning: Promise<void> | null = null;
/** When it was last complete; 0: never. */
let learnedAt = 0;

/** Wait for the model, then learn what is served. */
export function learnFacts(): Promise<void> {
  learning ??= learn().finally(() => {
    learning = null;
    learnedAt = Date.now();
  });
  return learning;
}

/** Learn it again whenever the server may be another one: after an absence, and now and then while it is used. */
export function followServer(): void {
  const look = (age: number) => {
    if (["ready", "failed"].includes(facts.value.state) && Date.now() - learnedAt >= age) void learnFacts();
  };
  isServed.subscribe(() => look(isServed.value ? FRESH_MS : 0));
  document.addEventListener("visibilitychange", () => document.hidden || look(FRESH_MS));
}

async function learn(): Promise<void> {
  while (facts.value.state !== "outdated") {
    try {
      return await learnOnce();
    } catch (error) {
      if (!isPassing(error)) return fail(error);
    }
    facts.value = { state: "waiting", progress: null, isAway: true };
    await pause(AWAY_MS);
  }
}

function fail(error: unknown): void {
  facts.value = { state: "failed", message: error instanceof Refusal ? error.message : String(error) };
}

/** Throws what one of its requests throws. */
async function learnOnce(): Promise<void> {
  if ((await waitForServer()) && !(await isServersPage().catch(() => true))) {
    stopAsking("The server has another version of this page: load it first.");
    facts.value = { state: "outdated" };
    return;
  }
  const props = await getJson<ServerProps>("props");
  if (props.role === "router") await learnModels();
  else forgetModels();
  schemas = null;
  facts.value = { state: "ready", props };
}

/** Wait until the model is loaded. Whether this page may be older than the server: it was open, or kept, before. */
async function waitForServer(): Promise<boolean> {
  let mayBeOld = learnedAt > 0 || !!navigator.serviceWorker?.controller;
  for (;;) {
    const health = await askHealth();
    if (health?.status === "ok") return mayBeOld;
    mayBeOld ||= !health;
    facts.value = { state: "waiting", progress: health?.progress ?? null, isAway: !health };
    await pause(health ? POLL_MS : AWAY_MS);
  }
}

/** null: the server gives no answer, or a proxy answers in its place. */
async function askHealth(): Promise<Partial<Health & ErrorAnswer> | null> {
  try {
    return (await (await fetch("health")).json()) as Partial<Health & ErrorAnswer>;
  } catch {
    return null;
  }
}

export function props(): ServerProps | null {
  return facts.value.state === "ready" ? facts.value.props : null;
}

/** Whether next-token (MTP) layers draft, or a drafter. */
export function drafts(by: "mtp" | "draft"): boolean {
  return props()?.dflash?.drafters?.some(({ kind }) => (kind === "mtp") === (by === "mtp")) ?? false;
}

/** Defaults of requests; for a router's model only while it is loaded. */
export async function defaultParams(): Promise<Record<string, unknown>> {
  return (await propsOf(chosen.value))?.default_generation_settings?.params ?? {};
}

/** Those of a router's model, if it is loaded. Any other server has one, without a name. */
export async function propsOf(model: string): Promise<ServerProps | null> {
  if (!model) return props();
  return (await isLoaded(model)) ? getJson<ServerProps>(`props?model=${encodeURIComponent(model)}`) : null;
}

let schemas: Promise<Record<string, FieldSchema>> | null = null;

/** What a chat request may hold, by the server's own document. */
export async function requestFields(): Promise<Record<string, FieldSchema>> {
  schemas ??= getJson<OpenApi>("openapi.json").then((document) => document.components.schemas.ChatRequest.properties);
  return schemas.catch((error) => {
    schemas = null; // it is asked again: a server may have been away
    throw error;
  });
}
