// The parts of the page that its first paint does not need (later.ts).

export { MarkdownView } from "./markdown/markdown_view";
export { MachineView } from "./views/machine/machine_view";
