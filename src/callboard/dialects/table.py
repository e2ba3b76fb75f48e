"""The dialects: one row for each way in which models write calls.

Dialects differ only in their rows, so this file is as long as there are dialects. The sources of each row are the chat
template of its models, and the parsers of vLLM 0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from callboard.dialects.dialect import CallFrame, Dialect, Fence, Reasoning
from callboard.dialects.grammars.code_calls import CodeCall, ShellCommands
from callboard.dialects.grammars.harmony import HarmonyChannels, HarmonyRecipients
from callboard.dialects.grammars.json_objects import CALL_KEYS, JsonObjects, Role
from callboard.dialects.grammars.name_then_json import NameThenJson
from callboard.dialects.grammars.nested import NestedTags
from callboard.dialects.grammars.python_literals import PYTHON, LiteralSyntax
from callboard.dialects.grammars.pythonic import PythonicCalls
from callboard.dialects.grammars.react import ReactAction, ReactLabel, ReactNoCall
from callboard.dialects.grammars.xml_tags import XmlTags

THINK = Reasoning("<think>", "</think>")

# Without this sentence Qwen2.5-Coder-0.5B does not call and makes its answer up.
_NEVER_GUESS = "Never compute or guess what a tool can tell: call the tool."

# JSON objects, each in its own frame.

_OBJECT = JsonObjects()
_PARAMETERS = JsonObjects(call='{{"name": {name}, "parameters": {arguments}}}')
_TOOL_CALL = "<tool_call>\n{call}\n</tool_call>"

_FUNCTION = XmlTags(
    calls=("<function={name}>",),
    arguments=("<parameter={key}>",),
    argument_end="</parameter>",
    ends=("</function>",),
    around=("</tool_call>", "<tool_call>"),
    newlines=True,
    after_head="\n",
)
HERMES = Dialect(
    "hermes",
    summary="JSON objects in `<tool_call>` (Hermes 2 and 3, Qwen2.5, QwQ, Qwen3)",
    frames=(CallFrame((_OBJECT, _FUNCTION), each=_TOOL_CALL),),
    template_words=(("<tool_call>", '"arguments"'), ("<tool_call>", "tool_call.arguments")),
    result="<tool_response>\n{content}\n</tool_response>",
    ignored=("<|im_end|>",),
)
# The models' template lists the declared tools in the same tag, with "parameters": so only "arguments" make a call.
_ARGUMENTS_OBJECT = JsonObjects(MappingProxyType({"name": Role.NAME, "arguments": Role.ARGUMENTS}))
QWEN25_CODER = Dialect(
    "qwen25_coder",
    summary="JSON objects in `<tools>` (Qwen2.5-Coder, if the prompt has examples)",
    frames=(CallFrame((_ARGUMENTS_OBJECT,), each="<tools>\n{call}\n</tools>", declared_only=True),),
    ignored=("<|im_end|>",),
    instructions=(
        f"{_NEVER_GUESS} To call one, write its name and arguments in <tools>, and nothing else. "
        "Two examples, with tools get_weather and translate:\n"
        "How warm is it in Oslo?\n"
        '<tools>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tools>\n'
        "What is a tree called in French?\n"
        '<tools>\n{"name": "translate", "arguments": {"text": "tree", "language": "French"}}\n</tools>\n'
        "You are then told what the tool returned, and answer from that."
    ),
)
GRANITE4 = replace(
    HERMES, name="granite4", summary="as hermes (Granite 4)", template_words=(), ignored=("<|end_of_text|>",)
)
LONGCAT = Dialect(
    "longcat",
    summary="JSON objects in `<longcat_tool_call>` (LongCat)",
    frames=(CallFrame((_OBJECT,), each="<longcat_tool_call>\n{call}\n</longcat_tool_call>"),),
    reasoning=(Reasoning("<longcat_think>", "</longcat_think>"), THINK),
    template_words=(("<longcat_tool_call>",),),
)
ERNIE = Dialect(
    "ernie45",
    summary="JSON objects in `<tool_call>`, answers in `<response>` (ERNIE 4.5)",
    frames=(CallFrame((_OBJECT,), each=_TOOL_CALL),),
    ignored=("<response>\n", "\n</response>", "<response>", "</response>"),
    template_words=(("<response>", "<tool_call>"),),
)
INTERNLM = Dialect(
    "internlm",
    summary="JSON objects after `<|action_start|><|plugin|>` (InternLM 2.5, Intern-S1)",
    frames=(CallFrame((_PARAMETERS,), each="<|action_start|> <|plugin|>\n{call}<|action_end|>"),),
    ignored=("<|im_end|>",),
    template_words=(("<|action_start|>",),),
)
GIGACHAT3 = Dialect(
    "gigachat3",
    summary="a JSON object after `function call<|role_sep|>` (GigaChat 3)",
    frames=(
        CallFrame(
            (_OBJECT,),
            each="<|message_sep|>\n\nfunction call<|role_sep|>\n{call}",
            opens=("<|message_sep|>\n\nfunction call<|role_sep|>",),
            closes=("<|message_sep|>",),
        ),
        CallFrame((_OBJECT,), opens=("function call<|role_sep|>",), closes=("<|message_sep|>",), at_line_start=True),
        CallFrame((_OBJECT,), opens=("<|function_call|>",), closes=("<|message_sep|>",)),
    ),
    ignored=("<|message_sep|>", "</s>"),
    template_words=(("function call<|role_sep|>",),),
)
_ARGS = JsonObjects(call='{{"name": {name}, "args": {arguments}}}')
INKLING = Dialect(
    "inkling",
    summary='JSON objects with "args" in `<|content_invoke_tool_json|>` (Inkling)',
    frames=(
        CallFrame(
            (_ARGS,),
            each="<|message_model|><|content_invoke_tool_json|>{call}<|end_message|>",
            opens=("<|message_model|><|content_invoke_tool_json|>", "<|content_invoke_tool_json|>"),
        ),
        CallFrame(
            (replace(_ARGS, header="<|message_model|>{name}<|content_invoke_tool_json|>"),),
            each="{call}",
            opens=(),
            closes=("<|end_message|>",),
        ),
    ),
    reasoning=(Reasoning("<|content_thinking|>", "<|end_message|>"),),
    ignored=("<|message_model|>", "<|content_text|>", "<|end_message|>"),
    answer_markers=("<|content_text|>",),
    template_words=(("<|content_invoke_tool_json|>",),),
)
LLAMA3 = Dialect(
    "llama3_json",
    summary='a JSON object with "parameters", the whole message or after `<|python_tag|>` (Llama 3.1 to 3.3, 4)',
    frames=(
        CallFrame((_PARAMETERS, PythonicCalls()), each="<|python_tag|>{call}", section="{calls}", join="; "),
        CallFrame((_PARAMETERS,), opens=(), at_line_start=True, declared_only=True, join="; "),
    ),
    ignored=("<|eom_id|>", "<|eot_id|>"),
    template_words=(("<|python_tag|>",), ('{"name": function name, "parameters"',)),
)
GRANITE_20B = Dialect(
    "granite_20b_fc",
    summary="JSON objects after `<function_call>` (Granite 20B functioncalling)",
    frames=(CallFrame((_OBJECT,), each="<function_call> {call}", join=" "),),
    template_words=(("<function_call>",),),
)
MINIMAX_M1 = Dialect(
    "minimax_m1",
    summary="JSON objects, one a line, in `<tool_calls>` (MiniMax M1)",
    frames=(CallFrame((_OBJECT,), section="<tool_calls>\n{calls}\n</tool_calls>"),),
    template_words=(("<tool_calls>", "tojson"),),
)

# JSON objects in a list.

MISTRAL = Dialect(
    "mistral",
    summary="`[TOOL_CALLS]`, a name, `[ARGS]` and JSON; also the list of its older models (Mistral since v11)",
    frames=(
        CallFrame(
            (NameThenJson(("{name}[ARGS]", "{name}[CALL_ID]{id}[ARGS]")), _OBJECT),
            each="[TOOL_CALLS]{call}",
            join="",
        ),
        CallFrame((NameThenJson(("{name}",)),), each="[TOOL_CALLS]{call}", declared_only=True),
    ),
    reasoning=(Reasoning("[THINK]", "[/THINK]"), THINK),
    ignored=("</s>",),
    template_words=(("[TOOL_CALLS]", "[ARGS]"),),
)
MISTRAL_V3 = replace(
    MISTRAL,
    name="mistral_v3",
    summary="a JSON list after `[TOOL_CALLS]` (Mistral to v10)",
    frames=(CallFrame((_OBJECT, *MISTRAL.frames[0].grammars[:1]), section="[TOOL_CALLS] [{calls}]", join=", "),),
    template_words=(("[TOOL_CALLS]",),),
)
GRANITE3 = Dialect(
    "granite",
    summary="a JSON list after `<|tool_call|>` (Granite 3)",
    frames=(
        CallFrame((_OBJECT,), section="<|tool_call|> [{calls}]", opens=("<|tool_call|>", "<tool_call>"), join=", "),
    ),
    ignored=("<|end_of_text|>",),
    template_words=(("<|tool_call|>",),),
)
JAMBA = Dialect(
    "jamba",
    summary="a JSON list in `<tool_calls>` (Jamba 1.5)",
    frames=(CallFrame((_OBJECT,), section="<tool_calls>[\n{calls}\n]</tool_calls>", join=",\n"),),
    template_words=(("<tool_calls>[",),),
)
PHI4 = Dialect(
    "phi4_mini",
    summary="a JSON list after `functools` (Phi-4-mini)",
    frames=(CallFrame((_OBJECT,), section="functools[{calls}]", at_line_start=True, join=", "),),
    ignored=("<|/tool_call|>", "<|tool_call|>", "<|end|>"),
    template_words=(("functools[",), ("<|tool|>", "<|/tool|>")),
)
FIREFUNCTION = replace(
    PHI4,
    name="firefunction",
    summary="as phi4_mini (Firefunction 2)",
    template_words=(),
    ignored=("<|eot_id|>",),
)
XLAM = Dialect(
    "xlam",
    summary="a JSON list: bare, fenced, in `<tool_call>` or after `[TOOL_CALLS]` (xLAM)",
    frames=(
        CallFrame((_OBJECT,), section="[{calls}]", at_line_start=True, declared_only=True, opens=(), join=", "),
        CallFrame((_OBJECT,), each="<tool_call>{call}</tool_call>"),
        CallFrame((_OBJECT,), each="[TOOL_CALLS]{call}"),
    ),
    fences=(Fence(frozenset({"", "json"}), CallFrame((_OBJECT,), declared_only=True)),),
)
HUNYUAN_A13B = Dialect(
    "hunyuan_a13b",
    summary="a JSON list in `<tool_calls>`, answers in `<answer>` (Hunyuan A13B)",
    frames=(CallFrame((_OBJECT,), section="<tool_calls>[{calls}]</tool_calls>", join=", "),),
    ignored=("<answer>\n", "\n</answer>", "<answer>", "</answer>"),
    template_words=(("<answer>", "<tool_calls>"),),
)
COHERE = Dialect(
    "cohere_command",
    summary='a JSON list with "tool_call_id" in `<|START_ACTION|>` (Command R7B, Command A)',
    frames=(
        CallFrame(
            (JsonObjects(call='{{"tool_call_id": {identifier}, "tool_name": {name}, "parameters": {arguments}}}'),),
            section="<|START_ACTION|>[\n    {calls}\n]<|END_ACTION|>",
            join=",\n    ",
        ),
    ),
    reasoning=(Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),),
    answer_markers=("<|START_RESPONSE|>", "<|START_TEXT|>"),
    ignored=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
    template_words=(("<|START_ACTION|>",),),
)
APERTUS = Dialect(
    "apertus",
    summary="a JSON list of objects whose one key is the name, in `<|tools_prefix|>` (Apertus)",
    frames=(
        CallFrame(
            (JsonObjects(keys=MappingProxyType({}), call="{{{name}: {arguments}}}"),),
            section="<|tools_prefix|>[{calls}]<|tools_suffix|>",
            join=", ",
        ),
    ),
    reasoning=(Reasoning("<|inner_prefix|>", "<|inner_suffix|>"), THINK),
    ignored=("<|assistant_end|>",),
    template_words=(("<|tools_prefix|>",),),
)

# A name, a separator, JSON.

_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>"
_DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"
_DEEPSEEK_END = ("<｜end▁of▁sentence｜>",)
DEEPSEEK_V3 = Dialect(
    "deepseek_v3",
    summary="a name and fenced JSON in `<｜tool▁calls▁begin｜>` (DeepSeek V3, R1)",
    frames=(
        CallFrame(
            (
                NameThenJson(
                    ("function<｜tool▁sep｜>{name}\n```json\n", "function<｜tool▁sep｜>{name}\n"), tail="\n```"
                ),
            ),
            each=_DEEPSEEK_CALL,
            section=_DEEPSEEK_CALLS,
        ),
    ),
    ignored=_DEEPSEEK_END,
    template_words=(("<｜tool▁calls▁begin｜>", "```json"),),
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    summary="a name and JSON in `<｜tool▁calls▁begin｜>` (DeepSeek V3.1)",
    frames=(
        CallFrame(
            (NameThenJson(("{name}<｜tool▁sep｜>",), ends=("<｜tool▁call▁end｜>",)),),
            each=_DEEPSEEK_CALL,
            section=_DEEPSEEK_CALLS,
            join="",
        ),
    ),
    template_words=(("<｜tool▁calls▁begin｜>",),),
)
KIMI_K2 = Dialect(
    "kimi_k2",
    summary="an identifier that holds the name, and JSON (Kimi K2 to K2.6)",
    frames=(
        CallFrame(
            (NameThenJson(("{id}{_}<|tool_call_argument_begin|>",), ends=("<|tool_call_end|>",), name_from_id=True),),
            each="<|tool_call_begin|>{call}<|tool_call_end|>",
            section="<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>",
            join="",
        ),
    ),
    ignored=("<|im_end|>", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
    template_words=(("<|tool_calls_section_begin|>",),),
)
FUNCTIONARY_V31 = Dialect(
    "functionary_v31",
    summary="`<function=NAME>` and JSON (Functionary 3.1)",
    frames=(CallFrame((NameThenJson(("<function={name}>",)),), each="{call}</function>", join="", opens=()),),
    ignored=("<|eom_id|>", "<|eot_id|>"),
    template_words=(("<function=", "</function>", '{"'),),
)
_RECIPIENT = NameThenJson(("{name}{line}",), ends=(">>>", "<|eot_id|>"), raw=True)
FUNCTIONARY_V32 = Dialect(
    "functionary_v32",
    summary="`>>>`, a name, and JSON on the next line (Functionary 3.2)",
    frames=(CallFrame((_RECIPIENT,), each=">>>{call}", join="", closes=()),),
    prefilled=CallFrame((_RECIPIENT, ReactLabel(("all{line}",), "text")), opens=(), declared_only=True),
    ignored=(">>>all\n", "<|eot_id|>"),
    template_words=((">>>all",),),
)

# Tags with a raw text for each argument.

QWEN3_CODER = Dialect(
    "qwen3_coder",
    summary="`<function=NAME>` and `<parameter=KEY>` in `<tool_call>` (Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5)",
    frames=(
        CallFrame((_FUNCTION, _OBJECT), each=_TOOL_CALL),
        CallFrame((_FUNCTION,), declared_only=True, opens=(), closes=("</tool_call>",)),
    ),
    ignored=("<|im_end|>",),
    template_words=(("<function=", "<parameter="),),
    result="<tool_response>\n{content}\n</tool_response>",
)
_SEED = replace(_FUNCTION, around=("</seed:tool_call>", "<seed:tool_call>"))
SEED_OSS = Dialect(
    "seed_oss",
    summary="as qwen3_coder, in `<seed:tool_call>` (Seed-OSS)",
    frames=(CallFrame((_SEED,), each="<seed:tool_call>\n{call}\n</seed:tool_call>"),),
    reasoning=(Reasoning("<seed:think>", "</seed:think>"),),
    ignored=("<seed:eos>",),
    template_words=(("<seed:tool_call>",),),
)
MIMO = replace(
    QWEN3_CODER,
    name="mimo",
    summary="as qwen3_coder, each value unchanged (MiMo V2)",
    frames=tuple([replace(frame, grammars=(replace(_FUNCTION, newlines=False),)) for frame in QWEN3_CODER.frames]),
    template_words=(),
)


def _dsml(word: str, wrapper: str, *others: str) -> tuple[CallFrame, ...]:
    wrappers = (wrapper, *others)
    body = XmlTags(
        calls=(f'<{word}invoke name="{{name}}">',),
        arguments=(f'<{word}parameter name="{{key}}" string="{{string}}">', f'<{word}parameter name="{{key}}">'),
        argument_end=f"</{word}parameter>",
        ends=(f"</{word}invoke>",),
        around=tuple([f"</{each}>" for each in wrappers]),
        empty=(f'<{word}invoke name="{{name}}"/>',),
        after_head="\n",
    )
    return (
        CallFrame(
            (body,),
            section=f"<{wrapper}>\n{{calls}}\n</{wrapper}>",
            opens=tuple([f"<{each}>" for each in wrappers]),
            closes=tuple([f"</{each}>" for each in wrappers]),
        ),
        CallFrame((body,), opens=(), closes=tuple([f"</{each}>" for each in wrappers]), declared_only=True),
    )


GIGACHAT35 = Dialect(
    "gigachat35",
    summary="`<｜GCML｜invoke>` with typed parameters; also a JSON object after `<|function_call|>` (GigaChat 3.5)",
    frames=(*_dsml("｜GCML｜", "｜GCML｜tool_calls"), CallFrame((_OBJECT,), each="<|function_call|>{call}")),
    ignored=("<|message_sep|>", "</s>"),
    template_words=(("<|function_call|>",), ("<｜GCML｜tool_calls>",)),
)
DEEPSEEK_V32 = Dialect(
    "deepseek_v32",
    summary="DSML: `<｜DSML｜invoke>` with typed parameters (DeepSeek V3.2)",
    frames=_dsml("｜DSML｜", "｜DSML｜function_calls", "｜DSML｜tool_calls"),
    ignored=_DEEPSEEK_END,
    template_words=(("｜DSML｜function_calls",), ("｜DSML｜", "function_calls")),
)
DEEPSEEK_V4 = replace(
    DEEPSEEK_V32,
    name="deepseek_v4",
    summary="as deepseek_v32, in `tool_calls` (DeepSeek V4)",
    frames=_dsml("｜DSML｜", "｜DSML｜tool_calls", "｜DSML｜function_calls"),
    template_words=(("｜DSML｜tool_calls",), ("｜DSML｜", "tool_calls")),
)
DEEPSEEK_V41 = replace(
    DEEPSEEK_V32,
    name="deepseek_v41",
    summary="as deepseek_v32, with a space before each word (DeepSeek V4.1)",
    frames=_dsml("｜DSML｜ ", "｜DSML｜ calls"),
    template_words=(("｜DSML｜ calls",),),
)


def _invoke(namespace: str = "", around: tuple[str, ...] = ()) -> XmlTags:
    return XmlTags(
        calls=(f'<{namespace}invoke name="{{name}}">',),
        arguments=(f'<{namespace}parameter name="{{key}}">',),
        argument_end=f"</{namespace}parameter>",
        ends=(f"</{namespace}invoke>",),
        around=around,
        after_head="\n",
    )


MINIMAX_M2 = Dialect(
    "minimax_m2",
    summary="`<invoke>` and `<parameter>` in `<minimax:tool_call>` (MiniMax M2)",
    frames=(
        CallFrame(
            (_invoke(around=("</minimax:tool_call>",)),), section="<minimax:tool_call>\n{calls}\n</minimax:tool_call>"
        ),
    ),
    template_words=(("<minimax:tool_call>",),),
)
_M3 = "]<]minimax[>["
MINIMAX_M3 = Dialect(
    "minimax_m3",
    summary="a tag for each argument, nested, each after `]<]minimax[>[` (MiniMax M3)",
    frames=(
        CallFrame(
            (NestedTags(_M3),),
            section=f"{_M3}<tool_call>\n{{calls}}\n{_M3}</tool_call>",
            opens=(f"{_M3}<tool_call>",),
            closes=(f"{_M3}</tool_call>",),
        ),
    ),
    reasoning=(Reasoning("<mm:think>", "</mm:think>"), THINK),
    template_words=((_M3,),),
)
_ANTHROPIC = _invoke(around=("</function_calls>",))
_NAMESPACE = "antml:"
_ANTHROPIC_NAMESPACE = _invoke(_NAMESPACE, around=(f"</{_NAMESPACE}function_calls>",))
ANTHROPIC = Dialect(
    "anthropic_xml",
    summary="`<invoke>` and `<parameter>` in `<function_calls>` (Claude in text)",
    frames=(
        CallFrame((_ANTHROPIC,), section="<function_calls>\n{calls}\n</function_calls>"),
        CallFrame(
            (_ANTHROPIC_NAMESPACE,),
            section=f"<{_NAMESPACE}function_calls>\n{{calls}}\n</{_NAMESPACE}function_calls>",
        ),
        CallFrame((_ANTHROPIC,), at_line_start=True, declared_only=True, closes=("</function_calls>",)),
    ),
    reasoning=(THINK, Reasoning("<thinking>", "</thinking>")),
    template_words=(("<function_calls>", "<invoke"),),
    result="<function_results>\n{content}\n</function_results>",
)
_ATEM = replace(_invoke("atem:", around=("</atem:function_calls>",)), namespaces=True)
MUSE = Dialect(
    "muse",
    summary="`<atem:invoke>` in channels with a recipient (Muse Glimmer)",
    frames=(
        CallFrame((_ATEM,), section="<atem:function_calls>\n{calls}\n</atem:function_calls>"),
        CallFrame((HarmonyRecipients(),), opens=(), closes=()),
    ),
    prefilled=CallFrame((HarmonyRecipients(prefilled=True),), opens=(), closes=()),
    prefill_identifies=True,
    reasoning=(Reasoning("<|start|>assistant to=self<|message|>", "<|eom|>"), THINK),
    ignored=("<|eom|>", "<|eot|>"),
    template_words=(("<atem:function_calls>",),),
)
_DOTS = _invoke(around=("</dots_function_call>",))
DOTS = Dialect(
    "dots",
    summary="`<invoke>` or JSON in `<dots_function_call>` (dots)",
    frames=(CallFrame((_DOTS, _OBJECT), each="<dots_function_call>\n{call}\n</dots_function_call>"),),
    template_words=(("<dots_function_call>",),),
)
_STEP3 = _invoke("steptml:", around=("<｜tool_call_end｜>",))
STEP3 = Dialect(
    "step3",
    summary="`<steptml:invoke>` in `<｜tool_calls_begin｜>` (Step 3)",
    frames=(
        CallFrame(
            (replace(_STEP3, calls=('function<｜tool_sep｜><steptml:invoke name="{name}">', *_STEP3.calls)),),
            each="<｜tool_call_begin｜>{call}<｜tool_call_end｜>",
            section="<｜tool_calls_begin｜>\n{calls}\n<｜tool_calls_end｜>",
        ),
    ),
    template_words=(("<steptml:invoke",),),
)
MINICPM5 = Dialect(
    "minicpm5",
    summary='`<function name="NAME">` and `<param>`, CDATA where it is needed (MiniCPM 5)',
    frames=(
        CallFrame(
            (
                XmlTags(
                    calls=('<function name="{name}">', '<functionname="{name}">', '<functionĠname="{name}">'),
                    arguments=('<param name="{key}">', '<paramname="{key}">', '<paramĠname="{key}">'),
                    argument_end="</param>",
                    ends=("</function>",),
                    cdata=True,
                    between="",
                ),
            ),
            declared_only=True,
        ),
    ),
    template_words=(('<function name="', "<param name="),),
)
KIMI_K3 = Dialect(
    "kimi_k3",
    summary="`<|open|>call` and typed `<|open|>argument` (Kimi K3)",
    frames=(
        CallFrame(
            (
                XmlTags(
                    calls=(
                        '<|open|>call tool="{attribute}" index="{index}"<|sep|>',
                        '<|open|>call tool="{attribute}"<|sep|>',
                    ),
                    arguments=(
                        '<|open|>argument key="{key}" type="{type}"<|sep|>',
                        '<|open|>argument key="{key}"<|sep|>',
                    ),
                    argument_end="<|close|>argument<|sep|>",
                    ends=("<|close|>call<|sep|>",),
                    around=("<|close|>tools<|sep|>",),
                    escapes=True,
                    between="",
                ),
            ),
            section="<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>",
            join="",
        ),
    ),
    reasoning=(Reasoning("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
    answer_markers=("<|open|>response<|sep|>",),
    ignored=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    template_words=(("<|open|>tools<|sep|>",), ("<|open|>", "<|sep|>")),
)

# A name, then pairs of tags.

_PAIRS = XmlTags(
    calls=("{name}", "{name}\\n"),  # with the escaped newlines of GLM 4.5
    arguments=("<arg_key>{key}</arg_key>{_}<arg_value>", "\\n<arg_key>{key}</arg_key>\\n<arg_value>"),
    argument_end="</arg_value>",
    ends=(),
    around=("</tool_call>", "<tool_call>"),
    lasting=True,
    valueless=("<arg_key>{key}</arg_key>",),
    between="",
)
GLM47 = Dialect(
    "glm47",
    summary="a name and `<arg_key>`, `<arg_value>` in `<tool_call>` (GLM 4.7, 5)",
    frames=(CallFrame((_PAIRS,), each="<tool_call>{call}</tool_call>", join=""),),
    ignored=("<|user|>", "<|observation|>", "<|endoftext|>"),
    template_words=(("<arg_key>",),),
    result="<tool_response>{content}</tool_response>",
)
GLM45 = replace(
    GLM47,
    name="glm45",
    summary="as glm47, with newlines between (GLM 4.5, 4.6)",
    frames=(CallFrame((replace(_PAIRS, between="\n", after_head="\n"),), each="<tool_call>{call}</tool_call>"),),
    template_words=(("<arg_key>", "\n<arg_value>"),),
)


def _hunyuan(separator: str, suffix: str = "") -> CallFrame:
    body = XmlTags(
        calls=(f"{{name}}{separator}",),
        arguments=(f"<arg_key{suffix}>{{key}}</arg_key{suffix}>\n<arg_value{suffix}>",),
        argument_end=f"</arg_value{suffix}>",
        ends=(),
        around=(f"</tool_call{suffix}>", f"<tool_call{suffix}>"),
        lasting=True,
        after_head="\n",
    )
    return CallFrame(
        (body,),
        each=f"<tool_call{suffix}>{{call}}</tool_call{suffix}>",
        section=f"<tool_calls{suffix}>\n{{calls}}\n</tool_calls{suffix}>",
    )


HUNYUAN_V3 = Dialect(
    "hunyuan_v3",
    summary="as glm45, with `<tool_sep>` and in `<tool_calls>` (Hunyuan V3)",
    frames=(_hunyuan("<tool_sep>"), _hunyuan("<tool_sep:opensource>", ":opensource")),
    template_words=(("<tool_sep>",),),
)
HUNYUAN_V4 = replace(
    HUNYUAN_V3,
    name="hunyuan_v4",
    summary="as hunyuan_v3, without `<tool_sep>` (Hunyuan V4)",
    frames=(_hunyuan(""), _hunyuan("", ":opensource")),
    template_words=(("<tool_calls>", "<arg_key>"),),
)

_IQUEST = replace(_PAIRS, around=("</iquest_tool_call>", "<iquest_tool_call>"))
IQUEST = Dialect(
    "iquest",
    summary="as glm47, in `<iquest_tool_call>` (IQuest Q1)",
    frames=(CallFrame((_IQUEST,), each="<iquest_tool_call>{call}</iquest_tool_call>", join=""),),
    template_words=(("<iquest_tool_call>",),),
)
_IFM = XmlTags(
    calls=("{name}",),
    arguments=(
        "<ifm|arg_key>{key}</ifm|arg_key>{_}<ifm|arg_value>",
        "<ifm|arg_key>{key}</ifm|arg_key>{_}<ifm|arg_type>{type}</ifm|arg_type>{_}<ifm|arg_value>",
    ),
    argument_end="</ifm|arg_value>",
    ends=(),
    around=("</ifm|tool_call>", "<ifm|tool_call>"),
    lasting=True,
    between="",
)
K2_HORIZON = Dialect(
    "k2_horizon",
    summary="as glm47 or JSON objects, in `<ifm|tool_calls>` (K2 Horizon)",
    frames=(
        CallFrame(
            (_IFM, _OBJECT),
            each="<ifm|tool_call>{call}</ifm|tool_call>",
            section="<ifm|tool_calls>\n{calls}\n</ifm|tool_calls>",
        ),
    ),
    reasoning=(Reasoning("<ifm|think>", "</ifm|think>"), THINK),
    template_words=(("<ifm|tool_calls>",),),
)

# Expressions.

_PYTHON_LIST = PythonicCalls(listed=True)
PYTHONIC = Dialect(
    "pythonic",
    summary="a Python list of calls with keyword arguments (Llama 3.2, ToolACE)",
    frames=(
        CallFrame((_PYTHON_LIST,), section="[{calls}]", join=", ", opens=(), declared_only=True),
        CallFrame((_PYTHON_LIST,), section="<|python_start|>[{calls}]<|python_end|>", join=", "),
    ),
    ignored=("<|eom_id|>", "<|eot_id|>", "<|eot|>"),
)
LLAMA4_PYTHONIC = replace(
    PYTHONIC,
    name="llama4_pythonic",
    summary="as pythonic, in `<|python_start|>` (Llama 4)",
    frames=PYTHONIC.frames[::-1],
    template_words=(("<|python_start|>",),),
)
OLMO3 = Dialect(
    "olmo3",
    summary="Python calls, one a line, in `<function_calls>` (OLMo 3)",
    frames=(CallFrame((PythonicCalls(),), section="<function_calls>\n{calls}\n</function_calls>"),),
    ignored=("<|im_end|>",),
    template_words=(("<function_calls>",),),
)
_FORGETFUL_LIST = PythonicCalls(listed=True, literals=replace(PYTHON, unescaped=True))
LFM2 = Dialect(
    "lfm2",
    summary="a list of Python calls or JSON in `<|tool_call_start|>` (LFM2)",
    frames=(CallFrame((_FORGETFUL_LIST, _OBJECT), section="<|tool_call_start|>[{calls}]<|tool_call_end|>", join=", "),),
    ignored=("<|im_end|>",),
    template_words=(("<|tool_call_start|>",), ("<|tool_list_start|>",)),
)
FUNCTIONGEMMA = Dialect(
    "functiongemma",
    summary="`call:NAME{KEY:<escape>VALUE<escape>}` in `<start_function_call>` (FunctionGemma)",
    frames=(
        CallFrame(
            (
                PythonicCalls(
                    ("call:{name}{{",), LiteralSyntax(quotes=("<escape>",), escapes=frozenset(), bare=True), ":"
                ),
            ),
            each="<start_function_call>{call}<end_function_call>",
            join="",
        ),
    ),
    ignored=("<start_function_response>", "<end_of_turn>"),
    template_words=(("<start_function_call>",),),
)
GEMMA4 = Dialect(
    "gemma4",
    summary='`call:NAME{KEY:<|"|>VALUE<|"|>}` in `<|tool_call>` (Gemma 4)',
    frames=(
        CallFrame(
            (
                PythonicCalls(
                    ("call:{name}{{", ":{name}{{"),
                    LiteralSyntax(
                        quotes=('<|"|>', '"', "'"), escapes=frozenset({'"', "'"}), separators=":=", bare=True
                    ),
                    ":=",
                ),
            ),
            each="<|tool_call>{call}<tool_call|>",
            join="",
        ),
    ),
    reasoning=(Reasoning("<|channel>thought\n", "<channel|>"),),
    ignored=("<turn|>", "<|tool_response>"),
    template_words=(("<|tool_call>",),),
)

# Channels, labels, code.

HARMONY = Dialect(
    "harmony",
    summary="messages with a channel and a recipient (gpt-oss)",
    frames=(CallFrame((HarmonyChannels(),), opens=(), closes=("<|end|>", "<|call|>", "<|return|>"), join=""),),
    prefilled=CallFrame((HarmonyChannels(prefilled=True),), opens=(), closes=("<|end|>", "<|call|>", "<|return|>")),
    prefill_identifies=True,
    ignored=("<|end|>", "<|call|>", "<|return|>"),
    template_words=(("<|channel|>",),),
)
_THOUGHT = CallFrame((ReactLabel(("Thought:",), "reasoning"),), opens=(), at_line_start=True)
_ACTION = CallFrame(
    (ReactAction(), PythonicCalls(("Action:{_}{name}(",)), ReactNoCall()),
    opens=(),
    at_line_start=True,
    declared_only=True,
)
_LABELS = (
    CallFrame((ReactLabel(("Final Answer:",), "text"),), opens=(), at_line_start=True),
    CallFrame((ReactLabel(("Observation:",), "nothing"),), opens=(), at_line_start=True),
)
REACT = Dialect(
    "react",
    summary="`Action:` and `Action Input:`, one call a reply (ReAct)",
    frames=(_ACTION, _THOUGHT, *_LABELS),
    result="Observation: {content}",
)
_PYTHON_TOOLS = ("python", "python_interpreter", "code_interpreter", "execute_python", "run_python", "ipython")
_STATEMENTS = PythonicCalls(statements=True)
_CODE = CallFrame(
    (_STATEMENTS, CodeCall(_PYTHON_TOOLS, ends=("</code>",))),
    section="<code>\n{calls}\n</code>",
    declared_only=True,
    drops_rest=True,
)
SMOLAGENTS = Dialect(
    "smolagents",
    summary="Python statements in `<code>` (smolagents' CodeAct)",
    frames=(_CODE, _THOUGHT, CallFrame((ReactLabel(("Observation:",), "nothing"),), opens=(), at_line_start=True)),
    fences=(Fence(frozenset({"py", "python"}), replace(_CODE, section="{calls}", opens=(), closes=())),),
    ignored=("<end_code>",),
    result="Observation:\n{content}",
)
_TOOL_CODE = CallFrame(
    (_STATEMENTS, JsonObjects()),
    section="```tool_code\n{calls}\n```",
    opens=(),
    closes=(),
    declared_only=True,
    drops_rest=True,
)
GEMMA3 = Dialect(
    "gemma3",
    summary="Python statements or JSON in a fence `tool_code` (Gemma 3)",
    frames=(),
    fences=(Fence(frozenset({"tool_code"}), _TOOL_CODE),),
    rendered_as=_TOOL_CODE,
    result="```tool_output\n{content}\n```",
)
_SHELL = CodeCall(("bash", "sh", "shell"))
_COMMANDS = CallFrame(
    (ShellCommands(_SHELL),), each="```bash\n{call}\n```", opens=(), closes=(), declared_only=True, drops_rest=True
)
MARKDOWN_BASH = Dialect(
    "markdown_bash",
    summary="a fence `bash`: a command a line, or all of it for one tool",
    frames=(),
    fences=(Fence(frozenset({"bash", "sh", "shell"}), _COMMANDS),),
    rendered_as=_COMMANDS,
    instructions=(
        "To call one, write a command in a fence, its name first, then its arguments in order or as flags:\n"
        "```bash\nthe_tool value --parameter value\n```\nYou are then told what it returned, and answer from that."
    ),
)
_TOOL_LINES = replace(_COMMANDS, grammars=(ShellCommands(CodeCall(())),))
TOOL_COMMANDS = replace(
    MARKDOWN_BASH, fences=tuple([replace(each, frame=_TOOL_LINES) for each in MARKDOWN_BASH.fences])
)
"""Commands only if each line of the block begins with a declared tool; any other block stays text."""

# Words around JSON, and JSON alone.

_TOOL_USE = XmlTags(
    calls=("<tool>{name}</tool>",),
    arguments=('<parameter name="{key}">',),
    argument_end="</parameter>",
    ends=(),
    around=("</tool_use>",),
    after_head="\n",
)
_TOOL_USE_ARGS = XmlTags(
    calls=("<tool>{name}</tool>{_}<args>",),
    arguments=("<{key}>",),
    argument_end="</{key}>",
    ends=("</args>",),
    around=("</tool_use>",),
)
TOOL_USE = Dialect(
    "tool_use_xml",
    summary="`<tool_use>` with lines, tags or JSON (PedroCLI)",
    frames=(
        CallFrame(
            (
                NameThenJson(("name: {name}\narguments: ", "name: {name}"), ends=("</tool_use>",)),
                NameThenJson(("<tool>{name}</tool>{_}<args>",), tail="</args>"),
                NameThenJson(("<tool>{name}</tool>{_}<params>",), tail="</params>"),
                _TOOL_USE,
                _TOOL_USE_ARGS,
            ),
            each="<tool_use>\n{call}\n</tool_use>",
        ),
    ),
    reasoning=(Reasoning("<thinking>", "</thinking>"), THINK),
    template_words=(("<tool_use>",),),
    result="<tool_result>\n{content}\n</tool_result>",
)

_JSON_WORDS = frozenset(
    {"", "json", "jsonc", "json5", "tool", "tools", "tool_call", "tool_calls", "tool_use", "function"}
)
_BARE = CallFrame((_OBJECT,), opens=(), closes=(), at_line_start=True, declared_only=True)
_FENCED = CallFrame((_OBJECT,), each="```json\n{call}\n```", opens=(), closes=(), declared_only=True, drops_rest=True)
JSON = Dialect(
    "json",
    summary="a JSON object, fenced or bare at the beginning of a line, any key spelling",
    frames=(_BARE,),
    fences=(Fence(_JSON_WORDS, _FENCED),),
    rendered_as=_FENCED,
    instructions=(
        f"{_NEVER_GUESS} To call one, write only a JSON object with its name and arguments:\n"
        '```json\n{"name": "the tool", "arguments": {"parameter": "value"}}\n```\n'
        "You are then told what it returned, and answer from that in plain text."
    ),
)
MARKDOWN_JSON = replace(JSON, name="markdown_json", summary="a JSON object in a fence", frames=())
BARE_JSON = replace(
    JSON,
    name="bare_json",
    summary="a JSON object at the beginning of a line",
    fences=(),
    rendered_as=None,
    instructions="",
)
_THOUGHTS = replace(
    _FENCED,
    grammars=(JsonObjects(call='{{"tool": {name}, "args": {arguments}}}'),),
    each="{call}",
    section='```json\n{"thoughts": "", "tool_calls": [{calls}]}\n```',
    join=", ",
)
THOUGHTS_JSON = replace(
    JSON,
    name="thoughts_json",
    summary='`{"thoughts", "tool_calls": [{"tool", "args"}]}`',
    rendered_as=_THOUGHTS,
    instructions="",
)
ACTION_KEYS = MappingProxyType({**CALL_KEYS, "action": Role.WRAPPER, "answer": Role.TEXT, "scratchpad": Role.REASONING})
_ACTION_OBJECT = CallFrame(
    (JsonObjects(ACTION_KEYS, '{{"action": {{"tool": {name}, "arguments": {arguments}}}}}'),),
    opens=(),
    closes=(),
    at_line_start=True,
    drops_rest=True,
)
ACTION_FORMATS = (
    'Reply with one JSON object. To call a tool: {"action": {"tool": "its name", "arguments": {…}}}. '
    "You are then told what it returned. "
    'To answer: {"action": {"answer": "the answer"}}. To think first: {"action": {"scratchpad": "the thought"}}.'
)
ACTION = Dialect(
    "action",
    summary='{"tool", "arguments"}, {"answer"} or {"scratchpad"}, also inside {"action": …}',
    frames=(_ACTION_OBJECT,),
    fences=(Fence(_JSON_WORDS, _ACTION_OBJECT),),
    is_only_format=True,
    instructions=f"{_NEVER_GUESS} {ACTION_FORMATS}",
)

_SPOKEN = (
    JSON,
    HERMES,
    QWEN25_CODER,
    QWEN3_CODER,
    GLM47,
    LONGCAT,
    ERNIE,
    INTERNLM,
    GIGACHAT3,
    GIGACHAT35,
    INKLING,
    LLAMA3,
    GRANITE_20B,
    MISTRAL,
    GRANITE3,
    JAMBA,
    PHI4,
    COHERE,
    APERTUS,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    FUNCTIONARY_V31,
    FUNCTIONARY_V32,
    SEED_OSS,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    DEEPSEEK_V41,
    MINIMAX_M2,
    MINIMAX_M3,
    ANTHROPIC,
    MUSE,
    DOTS,
    STEP3,
    MINICPM5,
    KIMI_K3,
    HUNYUAN_V3,
    HUNYUAN_V4,
    IQUEST,
    K2_HORIZON,
    replace(PYTHONIC, frames=(replace(PYTHONIC.frames[0], at_line_start=True), *PYTHONIC.frames[1:])),
    OLMO3,
    LFM2,
    FUNCTIONGEMMA,
    GEMMA3,
    GEMMA4,
    HARMONY,
    replace(REACT, frames=(_ACTION,)),
    TOOL_USE,
)
"""The dialects that `auto` looks for: without dialects that read code as calls or match ordinary text."""
AUTO = replace(
    JSON,
    name="auto",
    summary="the dialect of the first call; Callboard writes json",
    frames=(),
    fences=(),
    alternatives=_SPOKEN,
    reasoning=tuple(dict.fromkeys(each for dialect in _SPOKEN for each in dialect.reasoning)),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            AUTO,
            *(dialect for dialect in _SPOKEN if dialect.name not in {PYTHONIC.name, REACT.name}),
            PYTHONIC,
            GRANITE4,
            MINIMAX_M1,
            MISTRAL_V3,
            FIREFUNCTION,
            XLAM,
            HUNYUAN_A13B,
            MIMO,
            GLM45,
            LLAMA4_PYTHONIC,
            REACT,
            SMOLAGENTS,
            MARKDOWN_BASH,
            MARKDOWN_JSON,
            BARE_JSON,
            THOUGHTS_JSON,
            ACTION,
        )
    }
)
