"""Train a drafter for the GGUF that one runs: the target answers prompts, its hidden states are stored, a drafter is
fitted to them (docs/training.md).

Three stages, each of which goes on where it was stopped: `answer` (answering.py), `tap` (tapping.py), `fit`
(fitting.py). What they leave lies in a workspace (workspace.py). Only `fit` needs torch.
"""
