// Colours of code, by highlight.js.

import hljs from "highlight.js/lib/common";
import { sanitized } from "./sanitizer";

/** Longer code stays plain. */
const MAX_LENGTH = 100_000;
const MAX_KEPT = 100;
const kept = new Map<string, DocumentFragment>();

/** The code with a span around each token; null where the language is unknown. */
export function highlighted(code: string, language: string): DocumentFragment | null {
  if (code.length > MAX_LENGTH || !hljs.getLanguage(language)) return null;
  const name = `${language} ${code}`;
  let fragment = kept.get(name);
  if (!fragment) {
    fragment = sanitized(hljs.highlight(code, { language, ignoreIllegals: true }).value);
    if (kept.size >= MAX_KEPT) kept.clear();
    kept.set(name, fragment);
  }
  return fragment.cloneNode(true) as DocumentFragment;
}
