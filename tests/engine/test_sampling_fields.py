"""dflash_request_params.sampling: every field, every refusal. Nothing here may reach an abort or an endless loop of
llama.cpp."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import time
from typing import Any, get_type_hints

import pytest

from dflash_local import native
from dflash_local.errors import RequestError
from dflash_local.native import NativeEngine
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams

Fields = dict[str, Any]

PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
TRIGGER: Fields = {"grammar": 'root ::= "a"', "grammar_lazy": True}


def check(engine: NativeEngine, sampling: str) -> None:
    engine.prepare({"tokens": [1], "n_predict": 8, "sampling": sampling}).free()


def generate(engine: NativeEngine, **fields: Any) -> bytes:
    """Up to 16 tokens after a prompt. A failed slot fails the assertion with its error."""
    engine.slot_clear(0)
    tokens: list[int] = []
    prompt = engine.tokenize(PROMPT, True, True)
    params = {"tokens": prompt, "n_predict": 16, "sampling": json.dumps(fields), "budget": 1, "cache_prompt": False}
    engine.submit(0, engine.prepare(params))
    while updates := engine.step():
        for update in updates:
            assert not update.error, update.error
            tokens += update.tokens
    return b"".join(engine.token_piece(token, False) for token in tokens)


@pytest.mark.parametrize(
    "sampling",
    [
        "",
        "null",
        "{}",
        '{"top_k": null, "seed": null}',
        '{"seed": -1}',
        '{"seed": 4294967295}',
        '{"temperature": 0, "dynatemp_range": 0.5, "dynatemp_exponent": 2}',
        '{"top_k": -1, "top_p": 0, "min_p": 1, "typical_p": 0.5, "top_n_sigma": 1}',
        '{"top_k": 40.0, "min_keep": 5, "xtc_probability": 1, "xtc_threshold": 0.1}',
        '{"repeat_last_n": 0, "repeat_penalty": 1.1, "frequency_penalty": -2, "presence_penalty": 2}',
        '{"dry_multiplier": 1, "dry_base": 2, "dry_allowed_length": 0, "dry_penalty_last_n": 100, '
        '"dry_sequence_breakers": ["\\n", "ab"]}',
        '{"mirostat": 1, "mirostat_tau": 0, "mirostat_eta": 0}',
        '{"mirostat": 2}',
        '{"samplers": []}',
        '{"samplers": ["top_k", "Top-P", "temp"]}',
        '{"samplers": "kpt"}',
        '{"samplers": ["top_k", "top_p", "infill"], "top_p": 0.99}',
        '{"samplers": "ki", "top_k": 256}',
        '{"grammar": ""}',
        '{"grammar": "", "json_schema": {}}',
        '{"logit_bias": [[1, 2.5], [2, false], ["<|im_end|>", -1]]}',
        '{"logit_bias": {"1": 2.5, "2": false, " the": 1}, "ignore_eos": true}',
        '{"logit_bias": {"99999\\u0000": 1}}',  # a text, not the number before its end
        '{"grammar": "root ::= [a-z]+", "grammar_type": "user"}',
        '{"json_schema": {}}',
        '{"json_schema": {"type": "string", "maxLength": 100000}}',
        json.dumps({**TRIGGER, "grammar_triggers": [{"type": "word", "value": "some words"}]}),
        json.dumps({**TRIGGER, "grammar_triggers": [{"type": "token", "token": 3}, {"type": "word", "value": "a+"}]}),
        json.dumps(
            {
                **TRIGGER,
                "grammar_triggers": [{"type": "word", "value": "[^x]*(x)"}],
                "preserved_tokens": ["<|im_end|>", "two words"],
            }
        ),
        '{"reasoning_budget_tokens": 0, "thinking_start_tag": "<t>", "thinking_end_tags": ["</t>"], '
        '"generation_prompt": "<t>"}',
        '{"reasoning_budget_tokens": 10}',
    ],
)
def test_accepted(engine: NativeEngine, sampling: str) -> None:
    check(engine, sampling)


def test_the_library_knows_every_field(engine: NativeEngine) -> None:
    check(engine, json.dumps(dict.fromkeys(SAMPLING_FIELDS)))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temprature": 1}, "temprature"),
        ({"n_probs": 1}, "n_probs"),
        ({"seed": -2}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 1e-35}, "temperature"),
        ({"temperature": 1e300}, "temperature"),
        ({"dynatemp_range": -1}, "dynatemp_range"),
        ({"dynatemp_exponent": -1}, "dynatemp_exponent"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"top_k": 2**64}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"typical_p": 2}, "typical_p"),
        ({"top_n_sigma": 1e30}, "top_n_sigma"),
        ({"xtc_probability": 2}, "xtc_probability"),
        ({"xtc_threshold": -1}, "xtc_threshold"),
        ({"min_keep": -1}, "min_keep"),
        ({"repeat_last_n": -1}, "repeat_last_n"),
        ({"repeat_last_n": 2**31 - 1}, "repeat_last_n"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"frequency_penalty": 1e30}, "frequency_penalty"),
        ({"presence_penalty": []}, "presence_penalty"),
        ({"dry_multiplier": -1}, "dry_multiplier"),
        ({"dry_base": 0.5}, "dry_base"),
        ({"dry_allowed_length": -1}, "dry_allowed_length"),
        ({"dry_penalty_last_n": 2**31 - 1}, "dry_penalty_last_n"),
        ({"dry_sequence_breakers": "\n"}, "dry_sequence_breakers"),
        ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0]"),
        ({"dry_sequence_breakers": ["x"] * 17}, "dry_sequence_breakers"),
        ({"mirostat": 3}, "mirostat"),
        ({"mirostat": -1}, "mirostat"),
        ({"mirostat_tau": -1}, "mirostat_tau"),
        ({"mirostat_eta": "x"}, "mirostat_eta"),
        ({"samplers": ["top_k", "best"]}, "samplers[1]"),
        ({"samplers": ["top_k", "top-k"]}, "samplers[1]"),
        ({"samplers": ["infill"]}, "samplers"),
        ({"samplers": "ik"}, "samplers"),
        ({"samplers": "ki", "top_k": 0}, "samplers"),
        ({"samplers": "ki", "top_k": 257}, "samplers"),
        ({"samplers": "ki", "min_keep": 257}, "samplers"),
        ({"samplers": "ki", "ignore_eos": True}, "samplers"),
        ({"samplers": "kz"}, "samplers"),
        ({"samplers": 3}, "samplers"),
        ({"logit_bias": 3}, "logit_bias"),
        ({"logit_bias": [[1]]}, "logit_bias[0]"),
        ({"logit_bias": [[1, "x"]]}, "logit_bias[0][1]"),
        ({"logit_bias": [[1, True]]}, "logit_bias[0][1]"),
        ({"logit_bias": [[10**7, 1]]}, "logit_bias[0][0]"),
        ({"logit_bias": [[-1, 1]]}, "logit_bias[0][0]"),
        ({"logit_bias": {"99999999999999999999": 1}}, "logit_bias.99999999999999999999"),
        ({"logit_bias": {"1": 1e30}}, "logit_bias.1"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"grammar": 3}, "grammar"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"grammar": 'root ::= "a\x00"'}, "grammar"),
        ({"grammar": "root ::= <|no such token|>"}, "grammar"),
        ({"grammar": "root ::= root"}, "grammar"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema"),
        ({"json_schema": {"type": "any"}}, "json_schema.type"),
        ({"json_schema": {"type": "string", "minLength": 100000}}, "json_schema.minLength"),
        ({"json_schema": []}, "json_schema"),
        ({"grammar": 'root ::= "a"', "grammar_type": "mine"}, "grammar_type"),
        ({"grammar_lazy": True}, "grammar_lazy"),
        (TRIGGER, "grammar_lazy"),
        ({"grammar_triggers": {}}, "grammar_triggers"),
        ({"grammar_triggers": [{"value": "x"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": 3, "value": "x"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": "sound", "value": "x"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": "pattern", "value": "("}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": "pattern", "value": "(a|a)*b"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": "pattern_full", "value": "a"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": "word", "value": "a" * 100_000}]}, "grammar_triggers[0].value"),
        ({"grammar_triggers": [{"type": "word", "value": ""}]}, "grammar_triggers[0].value"),
        ({"grammar_triggers": [{"type": "token", "token": 1}] * 5000}, "grammar_triggers"),
        ({"grammar_triggers": [{"type": "word", "value": "<|im_end|>"}]}, "grammar_triggers[0].value"),
        ({"grammar_triggers": [{"type": "token", "token": 10**7}]}, "grammar_triggers[0].token"),
        ({"grammar_triggers": [{"type": "word", "value": "x", "more": 1}]}, "grammar_triggers[0].more"),
        ({"preserved_tokens": [3]}, "preserved_tokens[0]"),
        # llama-server aborts on this one: the prefilled text ends the answer before the grammar may
        (
            {"grammar": 'root ::= "a"', "grammar_type": "output_format", "generation_prompt": "<|im_end|>"},
            "generation_prompt",
        ),
        ({"grammar": 'root ::= "a"', "grammar_type": "tool_calls", "generation_prompt": "b"}, "generation_prompt"),
        ({"reasoning_budget_tokens": -2}, "reasoning_budget_tokens"),
        ({"thinking_end_tags": [""]}, "thinking_end_tags[0]"),
        ({"thinking_end_tags": "</think>"}, "thinking_end_tags"),
    ],
)
def test_refusals_name_the_field(engine: NativeEngine, fields: Fields, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(engine, json.dumps(fields))
    assert caught.value.param == field


def test_infill_ends_no_text_that_a_grammar_wants_longer(engine: NativeEngine) -> None:
    """By itself it would end the text, and llama.cpp's grammar would abort at that."""
    text = generate(engine, samplers="ki", top_k=256, grammar="root ::= [a-z]{400}", seed=1)
    assert len(text) >= 16
    assert text.decode().isalpha()


@pytest.mark.parametrize(
    "sampling", ["[]", "3", "{", '{"temperature": NaN}', '{"temperature": 1e999}', '{"a":' * 100_000]
)
def test_what_is_no_json_object(engine: NativeEngine, sampling: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(engine, sampling)
    assert caught.value.param == "sampling"


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a"{2,1}',
        'root ::= y root "b" | "c"\ny ::= x x\nx ::= "" | "a"',
        "root ::= a0\n" + "".join(f"a{n} ::= a{n + 1} | a{n + 1}\n" for n in range(60)) + 'a60 ::= "x"',
        'root ::= "' + "a" * 100_000 + '"{2000}',
        "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000,
        'root ::= q{0,300}\nq ::= r{0,300}\nr ::= "a" | ""',
    ],
    ids=["backwards", "hidden-recursion", "doubling", "long-repeat", "deep", "ways"],
)
def test_endless_grammars_are_refused_at_once(engine: NativeEngine, grammar: str) -> None:
    begun = time.thread_time()
    with pytest.raises(RequestError, match="grammar"):
        check(engine, json.dumps({"grammar": grammar}))
    assert time.thread_time() - begun < 5  # of a processor; those that are endless take for ever


def test_the_search_for_left_recursion_goes_through_a_rule_once(engine: NativeEngine) -> None:
    doubling = "".join(f"r{n} ::= r{n - 1} | r{n - 1}\n" for n in range(1, 23))
    unused = "".join(f"s{n} ::= r22\n" for n in range(200))
    begun = time.thread_time()
    check(engine, json.dumps({"grammar": f'root ::= "x"\nr0 ::= "a"\n{doubling}{unused}'}))
    assert time.thread_time() - begun < 2


def test_a_grammar_that_becomes_too_ambiguous_ends_its_request_alone(engine: NativeEngine) -> None:
    begun = time.process_time()
    with pytest.raises((AssertionError, RequestError), match="too ambiguous"):
        generate(engine, temperature=0, grammar="root ::= b{1,300} [y]\nb ::= [x]{0,300}")
    assert time.process_time() - begun < 10  # endless without a limit
    assert generate(engine, temperature=0, grammar='root ::= "yes"') == b"yes"


# ---- one list of fields ----

FIELDS = {field.name: field for field in dataclasses.fields(SamplingParams)}
# But for the seed, which Python folds into 32 bits before the library sees it.
NUMBERS = [name for name, field in FIELDS.items() if "range" in field.metadata and name != "seed"]


@pytest.fixture(scope="module")
def table() -> dict[str, Fields]:
    """dflash_sampling_fields() by name."""
    fields = {field.pop("name"): field for field in native.sampling_fields()}
    assert len(fields) == len(native.sampling_fields())
    return fields


def test_the_library_has_the_same_fields(engine: NativeEngine, table: dict[str, Fields]) -> None:
    assert table.keys() == FIELDS.keys()
    check(engine, json.dumps(dict.fromkeys(table)))  # null: it knows the name


@pytest.mark.parametrize("name", FIELDS)
def test_the_library_has_the_same_type_and_default(table: dict[str, Fields], name: str) -> None:
    hint = get_type_hints(SamplingParams)[name]
    types = {int: "integer", int | None: "integer", float: "number", bool: "boolean", str | None: "string"}
    assert table[name]["type"] == types.get(hint, "json")
    default: Any = FIELDS[name].default
    assert table[name]["default"] == (ctypes.c_float(default).value if hint is float else default)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_library_has_the_same_bounds(table: dict[str, Fields], name: str) -> None:
    ours = {key: FIELDS[name].metadata["range"].get(key, 0) for key in ("low", "high", "least_positive")}
    assert {key: table[name].get(key, 0) for key in ours} == ours


@pytest.mark.parametrize("name", NUMBERS)
def test_bounds_hold_on_both_sides(engine: NativeEngine, table: dict[str, Fields], name: str) -> None:
    low, high = table[name]["low"], table[name]["high"]
    for value in (low, high):
        SamplingParams(**{name: value})
        check(engine, json.dumps({name: value}))
    step = 1 if table[name]["type"] == "integer" else 1e-6
    for value in (low - step, high + step):
        with pytest.raises(RequestError) as ours:
            SamplingParams(**{name: value})
        with pytest.raises(RequestError) as theirs:
            check(engine, json.dumps({name: value}))
        assert ours.value.param == theirs.value.param == name


# ---- what the fields do ----


def test_what_is_above_nothing_has_a_least_value() -> None:
    with pytest.raises(RequestError, match="0 or at least 1e-30") as refused:
        SamplingParams(temperature=1e-35)
    assert refused.value.param == "temperature"
    assert SamplingParams(temperature=1e-30).temperature == 1e-30


def test_grammar_shapes_the_answer(engine: NativeEngine) -> None:
    assert generate(engine, temperature=0, grammar='root ::= "yes" | "no"') in {b"yes", b"no"}
    value = json.loads(generate(engine, temperature=1, seed=3, json_schema={"enum": ["red", "green"]}))
    assert value in {"red", "green"}


def test_seed_decides(engine: NativeEngine) -> None:
    first = generate(engine, temperature=2, top_k=0, top_p=1, min_p=0, seed=5)
    assert first == generate(engine, temperature=2, top_k=0, top_p=1, min_p=0, seed=5)
    assert first != generate(engine, temperature=2, top_k=0, top_p=1, min_p=0, seed=6)


def test_bias_decides(engine: NativeEngine) -> None:
    (token,) = engine.tokenize("<|im_start|>", False, True)
    assert generate(engine, temperature=0, logit_bias=[[token, 1e6]]) == b""  # control tokens have no text
    greedy = generate(engine, temperature=0)
    banned = engine.tokenize(greedy.decode(), False, False)[0]
    for key in (f"{banned}", f"00{banned}"):
        assert generate(engine, temperature=0, logit_bias={key: False})[:3] != greedy[:3]


@pytest.mark.parametrize("text", [" 4", "+4", "-4", "4 "])
def test_a_bias_of_a_text_with_a_number_is_no_id(engine: NativeEngine, text: str) -> None:
    asked: list[Any] = [{text: -2.5}, [[text, -2.5]]]
    assert len({generate(engine, temperature=0, logit_bias=bias) for bias in asked}) == 1
    check(engine, json.dumps({"logit_bias": {f"{text}{10**7}": 1}}))  # outside the vocabulary, as an id


def test_nothing_left_to_sample_fails_the_request(engine: NativeEngine) -> None:
    assert generate(engine, temperature=0, grammar='root ::= "ab"') == b"ab"
    with pytest.raises(AssertionError, match="no token is left to sample"):
        generate(engine, temperature=0, grammar='root ::= "ab"', ignore_eos=True)
    assert generate(engine, temperature=0, grammar='root ::= "ab"') == b"ab"


def test_lazy_grammar_waits_for_its_trigger(engine: NativeEngine) -> None:
    text = generate(engine, temperature=0)
    word = " ".join(text.decode().split()[:2])  # more than one token
    held = generate(
        engine,
        temperature=0,
        grammar=f'root ::= "{word}" "!"',
        grammar_lazy=True,
        grammar_triggers=[{"type": "word", "value": word}],
    )
    assert held.decode().rstrip() == text.decode()[: text.decode().index(word)] + word + "!"


def test_a_text_that_only_names_the_trigger_goes_on(engine: NativeEngine) -> None:
    """The mark ends within a token whose rest the grammar does not allow: nothing begins there, later it may."""
    lazy: Fields = {"temperature": 0, "grammar": 'root ::= "symb!" | "helium?"', "grammar_lazy": True}
    text = generate(engine, temperature=0).decode()
    assert " symbol of helium is" in text
    triggers = [{"type": "word", "value": "symb"}]
    assert generate(engine, **lazy, grammar_triggers=triggers).decode() == text
    triggers.append({"type": "word", "value": "heliu"})
    assert generate(engine, **lazy, grammar_triggers=triggers).decode() == text.split(" is")[0] + "?"


def test_a_trigger_token_that_the_grammar_does_not_begin_with(engine: NativeEngine) -> None:
    text = generate(engine, temperature=0)
    token = engine.tokenize(text.decode(), False, True)[0]
    triggers = [{"type": "token", "token": token}]
    assert generate(engine, temperature=0, **TRIGGER, grammar_triggers=triggers) == text


def test_reasoning_budget_forces_the_end(engine: NativeEngine) -> None:
    tags = {"thinking_start_tag": "<think>", "thinking_end_tags": ["</think>"], "generation_prompt": "<think>"}
    assert b"</think>" not in generate(engine, temperature=0, **tags)
    forced = generate(engine, temperature=0, reasoning_budget_tokens=2, **tags)
    assert forced.index(b"</think>") < 16
