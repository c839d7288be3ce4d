// Below the message: whether drafts are shown, and how the next answer is drafted. These are the settings' own fields.

import { useState } from "preact/hooks";
import { useCell } from "../../cell";
import type { FieldSchema } from "../../server/facts";
import { fieldOf, toText } from "../../settings/field";
import { setShowsDrafts, showsDrafts, SWITCHES, values } from "../../settings/settings";
import { FieldInput, useForm } from "../field_input";
import { Icon } from "../icon";

export function DraftSwitches() {
  const isShown = useCell(showsDrafts);
  return (
    <div class="draft-switches" role="group" aria-label="Drafts">
      <button type="button" class="toggle" aria-pressed={isShown} onClick={() => setShowsDrafts(!isShown)}>
        <Icon name="tree" />
        Show drafts
      </button>
      {isShown && <Fields />}
    </div>
  );
}

function Fields() {
  const set = useCell(values);
  const { form } = useForm();
  if (!form) return null;
  const { schemas, defaults } = form;
  return (
    <>
      {SWITCHES.filter((name) => name in schemas).map((name) => (
        // A value that is set elsewhere makes a new input.
        <Switch key={`${name} ${toText(set[name])}`} name={name} schema={schemas[name]!} fallback={defaults[name]} />
      ))}
    </>
  );
}

function Switch({ name, schema, fallback }: { name: string; schema: FieldSchema; fallback: unknown }) {
  const [error, setError] = useState("");
  return (
    <label title={error || schema.description}>
      {name}
      <FieldInput id={`switch-${name}`} field={fieldOf(name, schema)} fallback={toText(fallback)} onError={setError} />
      <span id={`switch-${name}-note`} class="note error" role="alert">{error}</span>
    </label>
  );
}
