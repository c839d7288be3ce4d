// The Markdown parser: CommonMark with tables, strike-through, bare links and math. HTML in the text stays text.

import { tex } from "@mdit/plugin-tex";
import MarkdownIt from "markdown-it";

export const parser = new MarkdownIt({ html: false, linkify: true }).use(tex, {
  delimiters: "all",
  // Filled by formulas.ts: KaTeX writes elements, not HTML.
  render: (text: string, isDisplay: boolean) =>
    `<span class="math${isDisplay ? " math-display" : ""}">${escapeHtml(text)}</span>`,
});

const { rules } = parser.renderer;
const { escapeHtml } = parser.utils;

// Filled by code_block.ts.
rules.fence = (tokens, index) => {
  const { info, content } = tokens[index]!;
  const language = info.trim().split(/\s+/)[0] ?? "";
  return `<pre data-language="${escapeHtml(language)}"><code>${escapeHtml(content)}</code></pre>\n`;
};
rules.code_block = rules.fence;

// The page loads nothing from elsewhere: a picture is a link.
rules.image = (tokens, index) => {
  const { attrs, content } = tokens[index]!;
  const source = attrs?.find(([name]) => name === "src")?.[1] ?? "";
  return `<a href="${escapeHtml(source)}">${escapeHtml(content || source)}</a>`;
};

// Wide tables scroll in their box; the page's security policy refuses style attributes.
rules.table_open = () => '<div class="table" tabindex="0"><table>\n';
rules.table_close = () => "</table></div>\n";
rules.th_open = (tokens, index) => cell("th", tokens[index]!.attrGet("style"));
rules.td_open = (tokens, index) => cell("td", tokens[index]!.attrGet("style"));

function cell(tag: string, style: string | null): string {
  const side = style?.match(/right|center/)?.[0];
  return side ? `<${tag} class="${side}">` : `<${tag}>`;
}
