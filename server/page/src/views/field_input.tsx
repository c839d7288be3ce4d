// The input for a field of a request, with its present value.

import { useEffect, useState } from "preact/hooks";
import { useCell } from "../cell";
import { defaultParams, facts, type FieldSchema, requestFields } from "../server/facts";
import { chosen } from "../server/models";
import { type Field, isLong, parse, toText } from "../settings/field";
import { setField, values } from "../settings/settings";

/** What the server says of the fields. */
export interface Form {
  schemas: Record<string, FieldSchema>;
  defaults: Record<string, unknown>;
}

async function learnForm(): Promise<Form> {
  const [schemas, defaults] = await Promise.all([requestFields(), defaultParams()]);
  return { schemas, defaults };
}

interface Learned {
  form: Form | null;
  /** Why there is no form; empty: it is there, or on its way. */
  error: string;
}

/** The form of the chosen model. It is learned again once the server is ready: until then there are no defaults. */
export function useForm(): Learned {
  const server = useCell(facts);
  const model = useCell(chosen);
  const [learned, setLearned] = useState<Learned>({ form: null, error: "" });
  useEffect(() => {
    let isLatest = true;
    const show = (next: Learned) => isLatest && setLearned(next);
    void learnForm().then(
      (form) => show({ form, error: "" }),
      (why) => show({ form: null, error: String(why.message ?? why) }),
    );
    return () => void (isLatest = false);
  }, [server, model]);
  return learned;
}

interface Props {
  id: string;
  field: Field;
  /** The server's default. */
  fallback: string;
  /** What is wrong with what was given; empty: nothing. */
  onError: (message: string) => void;
}

export function FieldInput({ id, field, fallback, onError }: Props) {
  const [isWrong, setWrong] = useState(false);
  const value = toText(values.value[field.name]);
  const common = { id, "aria-describedby": `${id}-note`, "aria-invalid": isWrong };
  const change = (event: { currentTarget: { value: string } }) => {
    let message = "";
    try {
      setField(field.name, parse(field, event.currentTarget.value));
    } catch (error) {
      message = (error as Error).message;
    }
    setWrong(!!message);
    onError(message);
  };
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
