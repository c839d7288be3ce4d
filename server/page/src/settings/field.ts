// Field: how a field of a request is written in a form, by its JSON schema.

import type { FieldSchema } from "../server/facts";

export type Kind = "number" | "switch" | "choice" | "text" | "json";

export interface Field {
  name: string;
  kind: Kind;
  description: string;
  choices: string[];
  minimum?: number;
  maximum?: number;
  integer: boolean;
}

/** Fields whose text may have several lines. */
const LONG = new Set(["grammar"]);

export function fieldOf(name: string, schema: FieldSchema): Field {
  const forms = [schema, ...(schema.anyOf ?? [])].flatMap((form) => [form, ...(form.anyOf ?? [])]);
  const number = forms.find((form) => form.type === "number" || form.type === "integer");
  const choices = forms.flatMap((form) => form.enum ?? []).filter((choice): choice is string => choice !== null);
  return {
    name,
    kind: kindOf(forms, !!number, choices),
    description: schema.description ?? "",
    choices,
    minimum: number?.minimum,
    maximum: number?.maximum,
    integer: number?.type === "integer",
  };
}

function kindOf(forms: FieldSchema[], isNumber: boolean, choices: string[]): Kind {
  const has = (type: string) => forms.some((form) => form.type === type);
  if (isNumber && !choices.length) return "number";
  if (choices.length && !isNumber) return "choice";
  if (has("boolean") && !has("object")) return "switch";
  if (has("object") || has("array") || forms.some((form) => "$ref" in form)) return "json";
  return "text";
}

export function isLong(field: Field): boolean {
  return field.kind === "json" || LONG.has(field.name);
}

/** What a form's text means; undefined: nothing was given. Throws an Error that says what is wrong. */
export function parse(field: Field, text: string): unknown {
  const given = text.trim();
  if (!given) return undefined;
  if (field.kind === "number") return parseNumber(field, given);
  if (field.kind === "switch") return given === "true";
  if (field.kind === "json") return parseJson(field, given);
  // "auto", or a number of nodes
  if (field.kind === "text" && field.integer && !field.choices.includes(given)) return parseNumber(field, given);
  return field.kind === "text" ? text : given;
}

function parseNumber({ minimum, maximum, integer }: Field, given: string): number {
  const number = Number(given);
  if (!Number.isFinite(number)) throw new Error("this is no number");
  if (integer && !Number.isInteger(number)) throw new Error("this must be a whole number");
  if (minimum !== undefined && number < minimum) throw new Error(`at least ${minimum}`);
  if (maximum !== undefined && number > maximum) throw new Error(`at most ${maximum}`);
  return number;
}

function parseJson(field: Field, given: string): unknown {
  try {
    return JSON.parse(given);
  } catch {
    // A plain text is a list of one, or of names with ; between them.
    if (field.name === "stop") return given.split("\n");
    if (field.name === "samplers" || field.name === "dry_sequence_breakers") return given.split(";");
    throw new Error("this is no JSON");
  }
}

/** A value as a form shows it. */
export function toText(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
