// The settings: a form made of the server's own description of a request.

import { useState } from "preact/hooks";
import { useCell } from "../cell";
import { key, setKey } from "../server/keys";
import { type Field, fieldOf, isLong, toText } from "../settings/field";
import {
  type Group, GROUPS, RANDOM_SEED, resetFields, setShowsDrafts, setSystemMessage, setTheme, showsDrafts, systemMessage, type Theme, theme,
  values,
} from "../settings/settings";
import { Dialog } from "./dialog";
import { FieldInput, type Form, useForm } from "./field_input";

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  const { form, error } = useForm();
  const [round, setRound] = useState(0);
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
  const isShown = useCell(showsDrafts);
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
        <label for="set-drafts">Show drafts</label>
        <select
          id="set-drafts"
          value={isShown ? "on" : "off"}
          onChange={(event) => setShowsDrafts(event.currentTarget.value === "on")}
        >
          <option value="off">off</option>
          <option value="on">on: each answer says what its passes did</option>
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
      {names.map((name) => <FieldForm key={name} field={fieldOf(name, schemas[name]!)} fallback={defaults[name]} />)}
    </details>
  );
}

function FieldForm({ field, fallback }: { field: Field; fallback: unknown }) {
  const [error, setError] = useState("");
  const id = `set-${field.name}`;
  return (
    <div class={`field ${isLong(field) ? "long" : ""}`}>
      <label for={id}>{field.name}</label>
      <FieldInput id={id} field={field} fallback={toFallback(field.name, fallback)} onError={setError} />
      <p id={`${id}-note`} class={error ? "note error" : "note"}>{error || withoutDefault(field.description)}</p>
    </div>
  );
}

/** The server's default for this field. */
function toFallback(name: string, value: unknown): string {
  return name === "seed" && value === RANDOM_SEED ? "random" : toText(value);
}

/** The input shows the default, which may differ here. */
function withoutDefault(description: string): string {
  return description.replace(/ \(default: [^)]*\)$/, "");
}
