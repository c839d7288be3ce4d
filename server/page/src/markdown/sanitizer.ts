// The sanitizer: the only way for HTML to get into the page, which the browser enforces (Trusted Types).

import DOMPurify from "dompurify";

const ALLOWED_TAGS = [
  "a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
  "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
];
const ALLOWED_ATTR = ["class", "data-language", "href", "start", "tabindex", "title"];

export function sanitized(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, { ALLOWED_TAGS, ALLOWED_ATTR, ALLOW_DATA_ATTR: false, RETURN_DOM_FRAGMENT: true });
}
