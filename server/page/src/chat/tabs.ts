// Tabs: the open tabs of this page share one database, and tell each other what they have written there.

export interface Change {
  /** The id of the conversation that was written. */
  conversation: string;
  isRemoved: boolean;
  /** The id of an answer that was stopped, whichever tab writes it. */
  stopped?: string;
}

const channel = opened();

/** null: the browser lends none, as where it denies storage; then each tab is on its own. */
function opened(): BroadcastChannel | null {
  try {
    return new BroadcastChannel("dflash-local");
  } catch {
    return null;
  }
}

/** Tell the other tabs. */
export function tellTabs(change: Change): void {
  channel?.postMessage(change);
}

/** Hear what the other tabs tell. */
export function hearTabs(take: (change: Change) => void): void {
  if (channel) channel.onmessage = ({ data }: MessageEvent<Change>) => take(data);
}
