"""What published chat templates write of a call is read back as that call."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rolloutgym.server.environments.toolcall.equality import equal
from rolloutgym.server.environments.toolcall.parsing import parse

TEMPLATES = {
    "deepseekv3_training": "deepseek",
    "gemma4": "gemma",
    "gemma4_v5": "gemma",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "lfm2_2_5_vl": "pythonic",
    "lfm2_v2": "pythonic",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "nemotron_3_nano": "qwen3_coder",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_5_nothink": "qwen3_coder",
    "qwen3_5_think": "qwen3_coder",
    "qwen3_6": "qwen3_coder",
    "qwen3_8": "qwen3_coder",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
}
"""Chat templates of released models, as TRL carries them."""

SINGLE_CALL = {"gptoss", "llama3_1", "llama3_2"}


def rendered(template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]], generate: bool) -> str:
    """What a chat template makes of messages. Generation marks of training templates are passed over."""
    trl = find_spec("trl")
    if trl is None or trl.origin is None:
        pytest.skip("needs trl")
    source = (Path(trl.origin).parent / "chat_templates" / f"{template}.jinja").read_text(encoding="utf-8")
    source = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", source)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals["strftime_now"] = lambda _: "2026-01-01"
    environment.globals["raise_exception"] = pytest.fail
    compiled = environment.from_string(source)
    return compiled.render(
        messages=messages, tools=tools, add_generation_prompt=generate, bos_token="<s>", eos_token="</s>"
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_chat_templates_write_is_read_back(template: str) -> None:
    arguments: dict[str, Any] = {
        "city": 'P\'aris "x" é',
        "days": 3,
        "flag": True,
        "scale": 2.5,
        "list": [1, "b"],
        "map": {"a": [True]},
    }
    types = {
        key: {"type": name}
        for key, name in zip(arguments, ("string", "integer", "boolean", "number", "array", "object"), strict=True)
    }
    schemas: dict[str, dict[str, Any]] = {
        "get_weather": {"type": "object", "properties": types},
        "now": {"type": "object", "properties": {}},
    }
    tools = [
        {"type": "function", "function": {"name": n, "description": "d", "parameters": s}} for n, s in schemas.items()
    ]
    calls = [("get_weather", arguments), ("now", {})][: 1 if template in SINGLE_CALL else 2]
    made = [
        {"id": f"abcdefgh{i}", "type": "function", "function": {"name": n, "arguments": a}}
        for i, (n, a) in enumerate(calls)
    ]
    user = [{"role": "user", "content": "hi"}]
    prompt = rendered(template, user, tools, True)
    whole = rendered(template, [*user, {"role": "assistant", "content": "", "tool_calls": made}], tools, False)
    same_to = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    reply = parse(whole[same_to:], schemas)
    assert equal([[call.name, call.arguments] for call in reply.calls], [list(call) for call in calls])
    assert reply.problems == ()
    assert reply.family == TEMPLATES[template]
