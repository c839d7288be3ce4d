// What the server says about itself: whether it is ready, the model, the defaults, the fields of a request.

import { Cell } from "../cell";
import type { ErrorAnswer, Health, Props, RouterProps } from "./answers";
import { chosen, isLoaded, learnModels } from "./models";
import { getJson, Refusal } from "./requests";

/** Of a server or of a router, which has no engine. */
export type ServerProps = Partial<Omit<Props, "dflash">> & {
  role?: RouterProps["role"];
  /** `not_bit_exact`: why drafted text might not be plain text, bit for bit; empty: it is. */
  dflash?: { drafter?: { kind?: string } | null; not_bit_exact?: string };
};

export type Facts =
  | { state: "waiting"; progress: number | null }
  | { state: "ready"; props: ServerProps }
  | { state: "failed"; message: string };

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

export const facts = new Cell<Facts>({ state: "waiting", progress: null });

/** Wait for the model, then learn what is served. */
export async function learnFacts(): Promise<void> {
  for (;;) {
    const health = await fetch("health")
      .then((response) => response.json() as Promise<Partial<Health & ErrorAnswer>>)
      .catch((): Partial<Health & ErrorAnswer> => ({}));
    if (health.status === "ok") break;
    facts.value = { state: "waiting", progress: health.progress ?? null };
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  try {
    const props = await getJson<ServerProps>("props");
    if (props.role === "router") await learnModels();
    facts.value = { state: "ready", props };
  } catch (error) {
    facts.value = { state: "failed", message: error instanceof Refusal ? error.message : String(error) };
  }
}

export function props(): ServerProps | null {
  return facts.value.state === "ready" ? facts.value.props : null;
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
export function requestFields(): Promise<Record<string, FieldSchema>> {
  schemas ??= getJson<OpenApi>("openapi.json").then((document) => document.components.schemas.ChatRequest.properties);
  return schemas;
}
