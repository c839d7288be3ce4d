// The browser's database, which keeps conversations, their turns, their media, and what their passes did.

import { type DBSchema, type IDBPDatabase, type IDBPTransaction, openDB, type StoreNames } from "idb";
import type { Part } from "../drafts/kept_passes";
import type { ConversationRecord } from "./conversation";
import type { KeptMedium } from "./media";
import type { Turn } from "./turn";

export interface Schema extends DBSchema {
  conversations: { key: string; value: ConversationRecord };
  turns: { key: string; value: Turn; indexes: { conversation: string } };
  passes: { key: [string, number]; value: Part };
  media: { key: [string, string]; value: KeptMedium };
}

export type Database = IDBPDatabase<Schema>;

/** A transaction that can write all of it. */
export type Writing = IDBPTransaction<Schema, StoreNames<Schema>[], "readwrite">;

export function openDatabase(): Promise<Database> {
  return openDB<Schema>("dflash-local", 3, {
    upgrade(database, version) {
      if (version < 1) {
        database.createObjectStore("conversations", { keyPath: "id" });
        database.createObjectStore("turns", { keyPath: "id" }).createIndex("conversation", "conversation");
      }
      if (version < 2) database.createObjectStore("passes", { keyPath: ["turn", "part"] });
      if (version < 3) database.createObjectStore("media", { keyPath: ["conversation", "id"] });
    },
    // A newer page in another tab may change the stores.
    blocking: (_current, _blocked, event) => (event.target as IDBDatabase).close(),
  });
}
