// The settings: a form made of the server's own description of a request.

import { useEffect, useState } from "preact/hooks";
import { useCell } from "../cell";
import { defaultParams, type FieldSchema, requestFields } from "../server/facts";
import { key, setKey } from "../server/keys";
import { type Field, fieldOf, isLong, parse, toText } from "../settings/field";
import {
  type Group, GROUPS, resetFields, setField, setSystemMessage, setTheme, systemMessage, type Theme, theme, values,
} from "../settings/settings";
import { Dialog } from "./dialog";

/** llama.cpp's LLAMA_DEFAULT_SEED. */
const RANDOM_SEED = 0xffffffff;

interface Form {
  schemas: Record<string, FieldSchema>;
  defaults: Record<string, unknown>;
}

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<Form | null>(null);
  const [error, setError] = useState("");
  const [round, setRound] = useState(0);
  useEffect(() => {
    Promise.all([requestFields(), defaultParams()]).then(
      ([schemas, defaults]) => setForm({ schemas, defaults }),
      (why) => setError(String(why.message ?? why)),
    );
  }, []);
  const count = Object.keys(useCell(values)).length;
  const reset = () => {
    resetFields();
    setRound(round + 1);
  };
  return (
    <Dialog title="Settings" class="settings" onClose={onClose}>
      <form class="settings-body" onSubmit={(event) => event.preventDefault()}>
        <PageSettings />
        {error && <p class="error" role="alert">{error}</p>}
        {!form && !error && <p class="note">Asking the server what it can be told …</p>}
        {form && GROUPS.map((group) => <GroupForm key={`${group.title} ${round}`} group={group} form={form} />)}
      </form>
      <footer>
        <span>{count ? `${count} set; all others are the server's` : "All as the server has it"}</span>
        <button type="button" disabled={!count} onClick={reset}>Reset</button>
        <button type="button" class="main" onClick={onClose}>Done</button>
      </footer>
    </Dialog>
  );
}

function PageSettings() {
  const chosen = useCell(theme);
  return (
    <fieldset>
      <legend>Chat</legend>
      <div class="field long">
        <label for="set-system">System message</label>
        <textarea
          id="set-system"
          rows={3}
          placeholder="How the model should answer"
          defaultValue={systemMessage()}
          onInput={(event) => setSystemMessage(event.currentTarget.value)}
        />
      </div>
      <div class="field">
        <label for="set-theme">Colours</label>
        <select id="set-theme" value={chosen} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
          <option value="auto">as the system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </div>
      <div class="field">
        <label for="set-key">API key</label>
        <input
          id="set-key"
          type="password"
          autocomplete="off"
          defaultValue={key()}
          onChange={(event) => setKey(event.currentTarget.value.trim())}
        />
      </div>
    </fieldset>
  );
}

function GroupForm({ group, form: { schemas, defaults } }: { group: Group; form: Form }) {
  const names = group.names.filter((name) => name in schemas);
  const isSet = names.some((name) => name in values.value);
  return (
    <details class="group" open={isSet || ["Answer", "Sampling"].includes(group.title)}>
      <summary>{group.title}</summary>
      {group.note && <p class="note">{group.note}</p>}
      {names.map((name) => <FieldForm key={name} field={fieldOf(name, schemas[name]!)} fallback={toFallback(name, defaults[name])} />)}
    </details>
  );
}

function FieldForm({ field, fallback }: { field: Field; fallback: string }) {
  const [error, setError] = useState("");
  const id = `set-${field.name}`;
  const change = (text: string) => {
    try {
      setField(field.name, parse(field, text));
      setError("");
    } catch (why) {
      setError((why as Error).message);
    }
  };
  return (
    <div class={`field ${isLong(field) ? "long" : ""}`}>
      <label for={id}>{field.name}</label>
      <Input id={id} field={field} fallback={fallback} isWrong={!!error} onChange={change} />
      <p id={`${id}-note`} class={error ? "note error" : "note"}>{error || withoutDefault(field.description)}</p>
    </div>
  );
}

/** What the server does without this field. */
function toFallback(name: string, value: unknown): string {
  return name === "seed" && value === RANDOM_SEED ? "random" : toText(value);
}

/** The default stands in the field, and may be another here. */
function withoutDefault(description: string): string {
  return description.replace(/ \(default: [^)]*\)$/, "");
}

interface InputProps {
  id: string;
  field: Field;
  fallback: string;
  isWrong: boolean;
  onChange: (text: string) => void;
}

function Input({ id, field, fallback, isWrong, onChange }: InputProps) {
  const value = toText(values.value[field.name]);
  const common = { id, "aria-describedby": `${id}-note`, "aria-invalid": isWrong };
  const change = (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value);
  if (field.kind === "switch" || field.kind === "choice") {
    const choices = field.kind === "switch" ? ["true", "false"] : field.choices;
    const names: Record<string, string> = field.kind === "switch" ? { true: "on", false: "off" } : {};
    return (
      <select {...common} onChange={change}>
        <option value="" selected={!value}>{fallback ? `default: ${names[fallback] ?? fallback}` : "default"}</option>
        {choices.map((choice) => (
          <option key={choice} value={choice} selected={value === choice}>{names[choice] ?? choice}</option>
        ))}
      </select>
    );
  }
  if (isLong(field)) return <textarea {...common} rows={2} placeholder={fallback} defaultValue={value} onChange={change} />;
  const mode = field.kind === "number" ? "decimal" : "text";
  return <input {...common} inputMode={mode} placeholder={fallback || "default"} defaultValue={value} onChange={change} />;
}
