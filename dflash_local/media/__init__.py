"""Images and audio of prompts: fetched, checked, decoded. Nothing here knows a model."""
