"""train(): the three stages of a run, one after the other, each as far as it has not been done yet."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local import __version__
from dflash_local.bench import Run
from dflash_local.convert.conversion import convert
from dflash_local.convert.gguf_metadata import StoredGgufTensor, read_metadata, read_model
from dflash_local.convert.outtypes import RowQuantizer, find_outtype
from dflash_local.convert.target import MASK_TOKEN, Target
from dflash_local.draft_options import DraftKind
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.train.answering import answer_all
from dflash_local.train.best_values import BestValues, history_of
from dflash_local.train.draft_vocabulary import check_head, enough_tokens, may_be_reduced, write_reduced
from dflash_local.train.drafter_file import DrafterFile, choose_mask_token, spread_taps
from dflash_local.train.drafter_size import DrafterSize
from dflash_local.train.evaluation import (
    N_SLOTS,
    N_TOKENS,
    SERVED_RUNS,
    Evaluation,
    Served,
    acceptance_length,
    answer_seconds,
    measure_alone,
    measure_served,
    n_measured_to_the_end,
)
from dflash_local.train.examples import (
    Example,
    Examples,
    Rendered,
    hold_out,
    questions,
    read_data,
    tokenized,
    with_recorded,
)
from dflash_local.train.initial_file import initial_file, new_form
from dflash_local.train.mtp_file import MtpFile, write_merged
from dflash_local.train.recorded_texts import learned_texts, own_texts
from dflash_local.train.run_checks import check_hf, check_init, check_settings, check_torch
from dflash_local.train.shards import Layout, Shard, read_shards
from dflash_local.train.step_size import texts_at_once
from dflash_local.train.tapping import tap_all, usable
from dflash_local.train.token_rows import check_readable
from dflash_local.train.train_settings import ANSWER_SHARE, LEAST_FIT, TAP_SHARE, TrainSettings, Watcher
from dflash_local.train.workspace import Workspace, whole_file
from dflash_local.train.written_texts import Text, identity, in_order, read_texts

if TYPE_CHECKING:
    from dflash_local.train.fitting import Fit

_MANY_SLOTS = 8  # with so many answers at once a pass has rows enough, and drafting for them costs more than it brings
_MEASURED_ANSWER = 1.5  # seconds, where nothing is known
_CELLS = 256


@dataclass
class Result:
    """A finished run. `evaluations` in order, of which the first is the drafter that it began with (if any); `checks`:
    for each file of other prompts, AL before (None: there was no drafter) and after."""

    output: Path
    evaluations: list[Evaluation]
    before: Served | None
    after: Served
    checks: dict[str, tuple[float | None, float]]
    course: dict[str, list[float]]
    history: dict[str, Any]
    seconds: dict[str, float]

    @property
    def best(self) -> Evaluation:
        return max((e for e in self.evaluations if e.step > 0), key=lambda e: e.al)


def train(settings: TrainSettings, watcher: Watcher, restart: str | None = None) -> Result:
    """Train a drafter and write it to `settings.output`. A run that was stopped goes on; `restart` names a stage to do
    anew; nothing is removed before the settings, the models and the data have been checked.

    Raises:
        RequestError: settings are wrong, or differ from those with which the run was begun.
        ModelError, ConvertError: a model is damaged or unsupported, or the drafter to go on from is not trained here.
        DFlashError: torch is missing, or the disk is full; what is done so far is kept.
    """
    check_torch()
    check_settings(settings)
    workspace = Workspace(settings.work)
    with workspace.opened():
        if settings.hf:
            check_hf(settings.hf, workspace.state.get("hf"))
        return _Run(settings, workspace, watcher, restart).run()


@dataclass
class _Run:
    settings: TrainSettings
    workspace: Workspace
    watcher: Watcher
    restart: str | None = None
    begun: float = field(default_factory=time.monotonic)

    def run(self) -> Result:
        import torch

        from dflash_local.train.fitting import memory_errors

        s = self.settings
        self.target = Target.read(s.model)
        self.init = initial_file(s, self.target, self.workspace.folder)
        self._check()
        if self.init and self.init.n_ff_before:
            n_ff, before = self.init.config.n_ff, self.init.n_ff_before
            self.watcher.note(f"each feed-forward part of {s.init} keeps {n_ff} of its {before} units")
        if self.init and self.init.kind_before:
            self.watcher.note(f"{s.init} becomes a {self.init.config.kind.name} drafter, whose own parts are new")
        self.examples = self._answer()
        texts, shards = self._tap()
        # Whoever calls may have turned gradients off.
        with torch.enable_grad(), memory_errors(texts_at_once(s, self.device.type), s):
            return self._fit(texts, shards)

    def _check(self) -> None:
        """Refuse what would be refused later, before anything of an earlier run is removed."""
        from dflash_local.train.fitting import pick_device

        s, workspace = self.settings, self.workspace
        check_init(s, self.init)
        check_readable(self.init, self._stored)
        config = self._size.config  # raises for a form that a new drafter cannot have
        if s.draft_vocab:
            check_head(s.draft_vocab, config)
        self.device = pick_device(s.device)
        if self.restart != "answer":
            workspace.check("answer", self._answer_settings())
        if self.restart not in ("answer", "tap"):
            workspace.check("tap", self._tap_settings())
        self.prompts, recorded = read_data(s.data, s.work)
        self.recorded = own_texts(recorded, identity(s.model), self.watcher, has_prompts=bool(self.prompts))

    @property
    def layers(self) -> tuple[int, ...]:
        """The tapped inputs of the target's layers."""
        if self.init:
            return self.init.config.taps
        return tuple(layer + 1 for layer in (self.settings.taps or spread_taps(self.target.n_layer)))

    # ---- stages ----

    def _answer_settings(self) -> dict[str, Any]:
        s = self.settings
        found = {
            "model": identity(s.model), "temperatures": s.temperatures, "n_predict": s.n_predict, "seed": s.seed,
            "length": s.length, "held_out": s.held_out,
        }  # fmt: skip
        return found | {"mmproj": identity(s.mmproj)} if s.mmproj else found

    def _answer(self) -> Examples:
        s, workspace = self.settings, self.workspace
        self.watcher.stage("answer", f"{s.model.name} answers {len(self.prompts)} prompts")
        drafter = self._init_gguf if s.slots < _MANY_SLOTS else None
        with self._engine(drafter, n_slots=s.slots, length=s.length, warmup=True) as engine:
            examples = self._begun(engine)
            deadline = self._deadline("answer", ANSWER_SHARE)
            n_most = self._tokens_on_disk() - sum(len(text.tokens) for text in examples.recorded)
            if (examples.learned or not examples.recorded) and not workspace.answers.exists():
                self._need_disk()
            with workspace.timed("answer"):
                answer_all(engine, examples.learned, workspace, s, deadline, n_most, self.watcher)
        return examples

    def _deadline(self, stage: str, share: float) -> float | None:
        """Of a stage that may take this share of the minutes in all runs, by time.monotonic(); None: there is none."""
        if self.settings.minutes is None:
            return None
        return time.monotonic() + max(share * 60 * self.settings.minutes - self.workspace.seconds(stage), 0.0)

    def _begun(self, engine: Engine) -> Examples:
        """The examples. Once they are known nothing speaks against the run: what is done anew is removed."""
        s, workspace, anew = self.settings, self.workspace, self.restart == "answer"
        rendered = {} if anew else workspace.read_prompts()
        n_known = len(rendered)
        asked = self._examples(engine, self.prompts, rendered) if self.prompts else []
        found = with_recorded(asked, self.recorded, self._longest_prompt)
        held_out = hold_out(found, s.held_out, () if anew else workspace.state.get("held_out", ()))
        for path in s.checks:  # they are asked after hours, or days
            tokenized(engine, questions(path), s.length, "--check", rendered)
        if self.restart:
            workspace.restart(self.restart)
        workspace.begin("answer", self._answer_settings())
        if len(rendered) > n_known:
            workspace.write_prompts(rendered)
        self.before_now = sum(workspace.state["seconds"].values())
        keys = workspace.state["held_out"] = [example.key for example in held_out]
        recorded = self._learned_record(keys)
        workspace.save()
        learned = [example for example in asked if example.key not in keys]  # what is recorded is answered
        return Examples(learned, held_out, recorded)

    def _learned_record(self, held_out: Sequence[str]) -> list[Text]:
        """The recorded texts to learn from. The room for them is that of the first run which had any: were it measured
        in each, other texts would be chosen, and hidden states stored anew."""
        if not self.recorded:
            return []
        state = self.workspace.state
        n_most = state.get("recorded_tokens")
        if n_most is None:
            n_most = self._tokens_on_disk() - sum(len(text.tokens) for text in self._written())
        known = self.workspace.read_order()
        found = learned_texts(self.recorded, held_out, self.settings.length, n_most, self.watcher, known)
        if found:
            state["recorded_tokens"] = n_most
        return found

    def _written(self) -> Iterable[Text]:
        """This run's own texts so far."""
        answers = self.workspace.answers
        return read_texts(answers, "--work") if answers.exists() else ()

    def _tokens_on_disk(self) -> int:
        """Those whose hidden states have room, with what is there already and what the fit will need."""
        return (self.workspace.room() + self.workspace.stored() - self._size.fit_bytes) // self._layout.token_bytes

    def _need_disk(self) -> None:
        """Raises DFlashError unless there is room for anything at all."""
        n_first = 2 * self.settings.slots * self.settings.length  # tokens
        self.workspace.need(
            n_first * self._layout.token_bytes + self._size.fit_bytes, "storing the first hidden states, and the fit,"
        )

    @cached_property
    def _stored(self) -> dict[str, StoredGgufTensor]:
        """The target's tensors."""
        return read_model(self.settings.model)[1]

    @cached_property
    def _size(self) -> DrafterSize:
        return DrafterSize.of(self.settings, self.target, self.init)

    @property
    def _layout(self) -> Layout:
        return Layout(self.layers, self.target.n_embd, self.settings.n_likeliest)

    @property
    def _longest_prompt(self) -> int:
        """Tokens of a prompt that leaves room for an answer."""
        return self.settings.length - min(self.settings.n_predict, self.settings.length // 2)

    def _examples(
        self, engine: Engine, prompts: Sequence[dict[str, Any]], rendered: dict[str, Rendered]
    ) -> list[Example]:
        n_most = self._longest_prompt
        examples = tokenized(engine, prompts, n_most, "--data", rendered)
        if len(examples) < len(prompts):
            left_out = len(prompts) - len(examples)
            self.watcher.note(
                f"{left_out} of {len(prompts)} prompts are left out: they are there twice, or have more than {n_most} "
                "tokens, which leaves no room for an answer in --length"
            )
        return examples

    def _tap_settings(self) -> dict[str, Any]:
        s, layout = self.settings, self._layout
        stored = {"goal": s.goal, "top_k": layout.top_k}  # --goal first: a text stores none, whatever --top-k says
        taps = {"kind": "mtp"} if s.kind == "mtp" else {"taps": [layer - 1 for layer in layout.layers]}
        return {**taps, **stored}

    def _tap(self) -> tuple[list[Text], list[Shard]]:
        """All texts, and the shards of those that there was time for: the others may have theirs in a later run."""
        s, workspace = self.settings, self.workspace
        layout = self._layout
        workspace.begin("tap", self._tap_settings())
        held_out = {example.key for example in self.examples.held_out}
        prompts = {example.key: example for example in self.examples.learned}
        written = [text for text in self._written() if text.key not in held_out]
        texts = in_order(self.examples.recorded + usable(written, prompts), workspace.read_order())
        if not texts:
            raise DFlashError(
                "there is no answer to learn from: all are too short, or there was no time to write them",
                hint="give more prompts with --data, or more --minutes",
            )
        workspace.write_order([text.digest for text in texts])
        n_tokens = sum(len(text.answer) for text in texts)
        self.watcher.stage("tap", f"{len(texts)} answers of {n_tokens} tokens pass through {s.model.name}")
        with self._engine(None, n_slots=1, length=s.length + 1, warmup=False) as engine, workspace.timed("tap"):
            deadline = self._deadline("tap", TAP_SHARE)
            shards = tap_all(engine, texts, prompts, layout, workspace, s, deadline, self.watcher)
        return texts, shards

    def _fit(self, texts: Sequence[Text], shards: Sequence[Shard]) -> Result:
        from dflash_local.train.fitting import Fit, memory_errors, run_fit

        s, workspace = self.settings, self.workspace
        file = self.init or self._new_file(texts)
        begun_with = {
            "init": None if s.init is None else identity(s.init), "kind": file.kind, "layers": file.config.n_layer,
            "block": file.block, "only": s.only, "rank": s.rank, "goal": s.goal, "weights": s.weights, "rate": s.rate,
            "batch": s.batch, "head_rows": s.head_rows, "seed": s.seed,
        }  # fmt: skip
        if s.feed_forward is not None and (self.init is None or self.init.n_ff_before):  # else the drafter says it
            begun_with["feed_forward"] = s.feed_forward
        workspace.begin("fit", begun_with)
        what = f"a {file.config.kind.name} drafter of {file.config.n_layer} layers"
        self.watcher.stage("fit", f"{'the MTP layer' if s.kind == 'mtp' else what} learns")
        with memory_errors(1, s):
            fit = Fit(file, read_shards(shards), self._stored, s, self.device)
        if workspace.checkpoint.exists():
            fit.load(workspace.checkpoint)
            self.before_now += fit.seconds
            self.watcher.note(f"the fit goes on after {fit.step} steps")
        state = workspace.state
        now = {name: getattr(s, name) for name in ("budget", "outtype", "fc_type")}
        is_other = self._forget_others(state, now)
        if not state["evaluations"]:
            state["checks"] = {}
            with workspace.timed("measure"), fit.parked():
                self._measure_init(state)
        if is_other:
            self._measure_best(fit)
        state["measured_as"] = now
        workspace.save()
        run_fit(fit, workspace, s, self._fit_seconds, self.watcher, self._evaluate)
        if not workspace.best.exists() or fit.step > workspace.last_evaluated:
            self._evaluate(fit, 1.0)
        return self._finish(fit, file)

    def _new_file(self, texts: Sequence[Text]) -> DrafterFile:
        s, state = self.settings, self.workspace.state
        if "mask_token" not in state:  # texts that are written later do not change it
            state["mask_token"] = self._mask_token(texts)
        form = new_form(s, self.target, state["mask_token"])
        file = DrafterFile.new(form, self.target, s.output.stem, s.seed)
        norm = self._stored.get("output_norm.weight")
        if norm is not None:  # the target's head expects what this norm makes
            file.values["norm.weight"] = norm.numbers().copy()
        return file

    def _mask_token(self, texts: Sequence[Text]) -> int:
        best = self.workspace.best  # of a folder that an earlier version began
        if best.exists():
            return int(read_metadata(best)[MASK_TOKEN].data)
        return choose_mask_token(self.target, {token for text in texts for token in text.tokens})

    # ---- measuring ----

    def _measure_init(self, state: dict[str, Any]) -> None:
        drafter = self._init_gguf
        if drafter is None:
            return
        held_out, budget = self.examples.held_out, self.settings.budget
        with self._measuring_engine(drafter, warmup=True) as engine:
            runs, served = measure_alone(engine, held_out, budget), measure_served(engine, held_out, budget)
        evaluation = Evaluation.of(runs, 0.0, 0, self._minutes())
        checked = {str(path.resolve()): [self._check_al(drafter, path), None] for path in self.settings.checks}
        self._count_measured((1 + SERVED_RUNS) * len(held_out))
        state["checks"], state["before"] = checked, vars(served)
        state["evaluations"].append(evaluation.to_json())
        self.watcher.note(f"AL of the drafter to go on from: {evaluation.al:.2f} with {budget} nodes")

    def _check_al(self, drafter: Path, path: Path) -> float:
        rendered = self.workspace.read_prompts()  # as they were first rendered, in whichever run
        n_known = len(rendered)
        with self._measuring_engine(drafter, warmup=False) as engine:
            prompts = tokenized(engine, questions(path), self.settings.length, "--check", rendered)
            if len(rendered) > n_known:
                self.workspace.write_prompts(rendered)
            runs = measure_alone(engine, prompts, self.settings.budget)
        self._count_measured(len(runs))
        return acceptance_length(runs)

    def _alone(self, drafter: Path, examples: Sequence[Example]) -> list[Run]:
        with self._measuring_engine(drafter, warmup=False) as engine:
            runs = measure_alone(engine, examples, self.settings.budget)
        self._count_measured(len(runs))
        return runs

    def _served(self, drafter: Path) -> Served:
        with self._measuring_engine(drafter, warmup=True) as engine:
            served = measure_served(engine, self.examples.held_out, self.settings.budget)
        self._count_measured(SERVED_RUNS * len(self.examples.held_out))
        return served

    def _measuring_engine(self, drafter: Path, *, warmup: bool) -> Engine:
        return self._engine(drafter, n_slots=N_SLOTS, length=self.settings.length + N_TOKENS, warmup=warmup)

    def _forget_others(self, state: dict[str, Any], now: dict[str, Any]) -> bool:
        """Forget what was measured otherwise than `now`: with another --budget, or of files of other types. Was there
        anything?"""
        before, evaluations = self._measured_as(now), state.setdefault("evaluations", [])
        if before == now:
            return False
        has_init = before["budget"] == now["budget"]  # the drafter to go on from is measured as it is
        state["evaluations"] = [e for e in evaluations if has_init and e["step"] == 0]
        state["measured_as"] = {**now, "outtype": None}  # whoever is interrupted measures anew, with any settings
        self.workspace.save()
        return True

    def _measured_as(self, now: dict[str, Any]) -> dict[str, Any]:
        """How the best drafter was measured; in a folder of an earlier version as far as its file says it, else as
        `now`."""
        best, state = self.workspace.best, self.workspace.state
        if "measured_as" in state or not best.exists():
            found: dict[str, Any] = state.get("measured_as", now)
            return found
        file_type = read_metadata(best)["general.file_type"].data
        same = file_type == find_outtype(now["outtype"], now["fc_type"]).file_type
        budget = history_of(best).get("nodes", now["budget"])
        return {**now, "budget": budget, "outtype": now["outtype"] if same else None}

    def _measure_best(self, fit: Fit) -> None:
        """Write and measure the best drafter anew, if there is one."""
        if kept := self._best_values():
            self._measure(fit, kept)

    def _evaluate(self, fit: Fit, share: float) -> None:
        """Measure the drafter as it is, and keep it if none was better."""
        values = {name: value.numpy() for name, value in fit.network.numbers().items()}
        self._measure(fit, BestValues(values, self._history(fit), share))

    def _measure(self, fit: Fit, found: BestValues) -> None:
        workspace, begin = self.workspace, time.monotonic()
        candidate, n_steps = workspace.folder / "candidate.gguf", found.history["steps"]
        self._write(candidate, fit.file, found)
        with fit.parked():
            runs = self._alone(candidate, self.examples.held_out)
        evaluation = Evaluation.of(runs, found.share, n_steps, self._minutes())
        best = max((e["al"] for e in self._own_evaluations()), default=-1.0)
        if evaluation.al > best or not workspace.best.exists():
            reached = {"nodes": self.settings.budget, "acceptance_length": round(evaluation.al, 3)}
            kept = replace(found, history={**found.history, **reached})
            kept.write(workspace.best_values)
            self._write(workspace.best, fit.file, kept)
        candidate.unlink()
        workspace.state["evaluations"].append(evaluation.to_json())
        workspace.add_seconds("measure", time.monotonic() - begin)
        self.watcher.note(f"AL on held-out prompts after {n_steps} steps: {evaluation.al:.2f}")

    def _write(self, path: Path, file: DrafterFile, found: BestValues) -> None:
        s = self.settings
        ggml = _quantizer(s.outtype, s.fc_type)
        file.write(path, found.values, s.outtype, found.history, ggml, fc_type=s.fc_type)

    def _fit_seconds(self) -> float | None:
        """What the whole run's minutes leave for the fit; None: there is no such bound."""
        s, workspace = self.settings, self.workspace
        if s.minutes is None:
            return None
        spent = workspace.seconds("answer") + workspace.seconds("tap") + workspace.seconds("measure")
        marks = max(s.evaluations - len(self._own_evaluations()), 0)
        to_come = n_measured_to_the_end(s, marks) * self._measured_answer()
        return max(60 * s.minutes - spent - to_come, 60 * s.minutes * LEAST_FIT)

    def _measured_answer(self) -> float:
        """Seconds of one answer that is measured: of those so far, else by the speed of the texts' answers."""
        workspace = self.workspace
        if self._n_measured:
            return workspace.seconds("measure") / self._n_measured
        n_tokens = sum(len(text.answer) for text in self._written())
        if not n_tokens or not workspace.seconds("answer"):
            return _MEASURED_ANSWER
        return answer_seconds(self.settings.slots * workspace.seconds("answer") / n_tokens)

    @property
    def _n_measured(self) -> int:
        """Answers measured so far."""
        return int(self.workspace.state.get("measured_answers", 0))

    def _count_measured(self, n: int) -> None:
        self.workspace.state["measured_answers"] = self._n_measured + n  # saved with the time that they took

    def _own_evaluations(self) -> list[dict[str, Any]]:
        """Those of what was fitted."""
        return [e for e in self.workspace.state["evaluations"] if e["step"] > 0]

    def _minutes(self) -> float:
        return (self.before_now + time.monotonic() - self.begun) / 60

    # ---- the result ----

    def _history(self, fit: Fit) -> dict[str, Any]:
        s = self.settings
        return {
            "dflash_local": __version__,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "target": s.model.name,
            "init": None if s.init is None else s.init.name,
            "data": [path.name for path in s.data],
            "temperatures": list(s.temperatures),
            "kind": fit.file.kind,
            "only": s.only,
            "feed_forward": fit.file.config.n_ff,
            "goal": s.goal,
            "weights": s.weights,
            "rate": fit.rate,
            "batch": s.batch,
            "steps": fit.step,
            "anchors": fit.n_anchors,
            "seconds": {n: round(v) for n, v in (*self.workspace.state["seconds"].items(), ("fit", fit.seconds))},
            "nodes": s.budget,
            "acceptance_length": None,  # not measured yet
        }

    def _finish(self, fit: Fit, file: DrafterFile) -> Result:
        from dflash_local.native import check_gguf

        s, workspace, state = self.settings, self.workspace, self.workspace.state
        with workspace.timed("measure"), fit.parked():
            chosen, served = self._choose_head(file, fit.token_counts)
            for path in s.checks:
                state["checks"].setdefault(str(path.resolve()), [None, None])[1] = self._check_al(chosen, path)
        workspace.save()
        check_gguf(chosen)
        with whole_file(s.output) as out, chosen.open("rb") as written:
            shutil.copyfileobj(written, out, 1 << 22)
        if s.merge:
            write_merged(s.model, chosen, s.merge)
        if s.hf:
            state["hf"] = str(s.hf.resolve())
            workspace.save()  # before it is there, so that it is known after a kill, too
            if best := self._best_values():
                file.write_checkpoint(s.hf, best.values)
        return Result(
            output=s.output,
            evaluations=[Evaluation(**{**e, "depths": tuple(e["depths"])}) for e in state["evaluations"]],
            before=Served(**state["before"]) if state.get("before") else None,
            after=served,
            checks={_check_name(path, s.checks): tuple(state["checks"][str(path.resolve())]) for path in s.checks},
            course=vars(fit.course),
            history=self._history(fit),
            seconds={**state["seconds"], "fit": fit.seconds},
        )

    def _best_values(self) -> BestValues | None:
        """The best drafter's numbers; None: there is none yet. Where they were not kept, as in a folder of an earlier
        version, they are those of its file."""
        best = self.workspace.best
        if not best.exists():
            return None
        if kept := BestValues.read(self.workspace.best_values, best):
            return kept
        if isinstance(self.init, MtpFile):
            file: DrafterFile = MtpFile.of(best, self.target, self.init.block)
        else:
            file = DrafterFile.read(best, self.target, self.workspace.folder)
        return BestValues(file.values, history_of(best), 1.0)

    def _choose_head(self, file: DrafterFile, counts: Counter[int]) -> tuple[Path, Served]:
        """The best drafter, with all tokens or the frequent ones of the answers: as is asked for, or as is faster."""
        s, best, n_vocab = self.settings, self.workspace.best, self.target.n_vocab
        n_tokens = s.draft_vocab
        if n_tokens is None and may_be_reduced(file):
            n_tokens = enough_tokens(counts, n_vocab)
        if not n_tokens:
            return best, self._served(best)
        reduced = self.workspace.folder / "best-reduced.gguf"
        write_reduced(best, reduced, s.model, counts, n_tokens)
        with_few = self._served(reduced)
        if s.draft_vocab:
            return reduced, with_few
        with_all = self._served(best)
        self.watcher.note(
            f"with a head of {n_tokens} of {n_vocab} tokens {with_few.drafted:.0f} tok/s, AL {with_few.al:.2f}; with "
            f"all {with_all.drafted:.0f} tok/s, AL {with_all.al:.2f}: the faster one is kept (--draft-vocab)"
        )
        return (reduced, with_few) if with_few.drafted > with_all.drafted else (best, with_all)

    # ---- engines ----

    def _engine(self, drafter: Path | None, *, n_slots: int, length: int, warmup: bool) -> Engine:
        """Slots for `length` tokens each, in whole steps, so that llama.cpp need not round."""
        s, n_ctx = self.settings, n_slots * -(-length // _CELLS) * _CELLS
        kind: DraftKind = "lookup" if drafter is None else "mtp" if s.kind == "mtp" else "dflash"
        # In a KV cache of its own, a slot's row attends to no other slot's cells.
        return Engine(
            s.model, drafter, mmproj=s.mmproj, n_slots=n_slots, n_ctx=n_ctx, share_ctx=False, kv_unified=False,
            n_threads=s.threads, cost_cache=False, cache_ram=0, max_queue=max(64, 4 * n_slots), warmup=warmup,
            draft_kind=kind, **s.engine,
        )  # fmt: skip

    @cached_property
    def _init_gguf(self) -> Path | None:
        """The drafter to go on from, as the engine loads it; written anew, since --init may name another one now."""
        init = self.settings.init
        if isinstance(self.init, MtpFile):
            path = self.workspace.folder / "init-mtp.gguf"
            self.init.write_stored(path)
            return path
        if init is None or not init.is_dir():
            return init
        path = self.workspace.folder / "init-f16.gguf"
        convert(init, self.target.path, path)
        return path


def _check_name(path: Path, paths: Sequence[Path]) -> str:
    """A file's name, or its path where another one has the same name."""
    return path.name if [other.name for other in paths].count(path.name) == 1 else str(path)


def _quantizer(outtype: str, fc_type: str | None) -> RowQuantizer | None:
    if not find_outtype(outtype, fc_type).needs_ggml:
        return None
    from dflash_local.native import quantize_rows

    return quantize_rows
