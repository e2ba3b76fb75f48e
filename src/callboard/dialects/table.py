"""The dialects.

Owns one row for each, and is as long as there are dialects. Knows nothing of how they are read. Sources: the chat templates of the models, and
the parsers of vLLM 0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from callboard.dialects.dialect import Dialect, Fence, Frame, Reasoning
from callboard.dialects.grammars.code_calls import Commands, Program
from callboard.dialects.grammars.harmony import Channels, Recipients
from callboard.dialects.grammars.json_objects import CALL_KEYS, Objects, Role
from callboard.dialects.grammars.name_then_json import Named
from callboard.dialects.grammars.nested import Nested
from callboard.dialects.grammars.python_literals import PYTHON, Literals
from callboard.dialects.grammars.pythonic import Expressions
from callboard.dialects.grammars.react import Action, Label, Nothing
from callboard.dialects.grammars.xml_tags import Tags

THINK = Reasoning("<think>", "</think>")

# JSON objects, each in its own frame.

_OBJECT = Objects()
_PARAMETERS = Objects(call='{{"name": {name}, "parameters": {arguments}}}')
_TOOL_CALL = "<tool_call>\n{call}\n</tool_call>"

_FUNCTION = Tags(
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
    frames=(Frame((_OBJECT, _FUNCTION), each=_TOOL_CALL),),
    template=(("<tool_call>", '"arguments"'), ("<tool_call>", "tool_call.arguments")),
    result="<tool_response>\n{content}\n</tool_response>",
    drops=("<|im_end|>",),
)
GRANITE4 = replace(HERMES, name="granite4", summary="as hermes (Granite 4)", template=(), drops=("<|end_of_text|>",))
LONGCAT = Dialect(
    "longcat",
    summary="JSON objects in `<longcat_tool_call>` (LongCat)",
    frames=(Frame((_OBJECT,), each="<longcat_tool_call>\n{call}\n</longcat_tool_call>"),),
    reasoning=(Reasoning("<longcat_think>", "</longcat_think>"), THINK),
    template=(("<longcat_tool_call>",),),
)
ERNIE = Dialect(
    "ernie45",
    summary="JSON objects in `<tool_call>`, answers in `<response>` (ERNIE 4.5)",
    frames=(Frame((_OBJECT,), each=_TOOL_CALL),),
    drops=("<response>\n", "\n</response>", "<response>", "</response>"),
    template=(("<response>", "<tool_call>"),),
)
INTERNLM = Dialect(
    "internlm",
    summary="JSON objects behind `<|action_start|><|plugin|>` (InternLM 2.5, Intern-S1)",
    frames=(Frame((_PARAMETERS,), each="<|action_start|> <|plugin|>\n{call}<|action_end|>"),),
    drops=("<|im_end|>",),
    template=(("<|action_start|>",),),
)
GIGACHAT3 = Dialect(
    "gigachat3",
    summary="a JSON object behind `function call<|role_sep|>` (GigaChat 3)",
    frames=(
        Frame(
            (_OBJECT,),
            each="<|message_sep|>\n\nfunction call<|role_sep|>\n{call}",
            opens=("<|message_sep|>\n\nfunction call<|role_sep|>",),
            closes=("<|message_sep|>",),
        ),
        Frame((_OBJECT,), opens=("function call<|role_sep|>",), closes=("<|message_sep|>",), line=True),
        Frame((_OBJECT,), opens=("<|function_call|>",), closes=("<|message_sep|>",)),
    ),
    drops=("<|message_sep|>", "</s>"),
    template=(("function call<|role_sep|>",),),
)
_ARGS = Objects(call='{{"name": {name}, "args": {arguments}}}')
INKLING = Dialect(
    "inkling",
    summary='JSON objects with "args" in `<|content_invoke_tool_json|>` (Inkling)',
    frames=(
        Frame(
            (_ARGS,),
            each="<|message_model|><|content_invoke_tool_json|>{call}<|end_message|>",
            opens=("<|message_model|><|content_invoke_tool_json|>", "<|content_invoke_tool_json|>"),
        ),
        Frame(
            (replace(_ARGS, header="<|message_model|>{name}<|content_invoke_tool_json|>"),),
            each="{call}",
            opens=(),
            closes=("<|end_message|>",),
        ),
    ),
    reasoning=(Reasoning("<|content_thinking|>", "<|end_message|>"),),
    drops=("<|message_model|>", "<|content_text|>", "<|end_message|>"),
    answer=("<|content_text|>",),
    template=(("<|content_invoke_tool_json|>",),),
)
LLAMA3 = Dialect(
    "llama3_json",
    summary='a JSON object with "parameters", the whole message or behind `<|python_tag|>` (Llama 3.1 to 3.3, 4)',
    frames=(
        Frame((_PARAMETERS, Expressions()), each="<|python_tag|>{call}", section="{calls}", join="; "),
        Frame((_PARAMETERS,), opens=(), line=True, declared=True, join="; "),
    ),
    drops=("<|eom_id|>", "<|eot_id|>"),
    template=(("<|python_tag|>",), ('{"name": function name, "parameters"',)),
)
GRANITE_20B = Dialect(
    "granite_20b_fc",
    summary="JSON objects behind `<function_call>` (Granite 20B functioncalling)",
    frames=(Frame((_OBJECT,), each="<function_call> {call}", join=" "),),
    template=(("<function_call>",),),
)
MINIMAX_M1 = Dialect(
    "minimax_m1",
    summary="JSON objects, one a line, in `<tool_calls>` (MiniMax M1)",
    frames=(Frame((_OBJECT,), section="<tool_calls>\n{calls}\n</tool_calls>"),),
    template=(("<tool_calls>", "tojson"),),
)

# JSON objects in a list.

MISTRAL = Dialect(
    "mistral",
    summary="`[TOOL_CALLS]`, a name, `[ARGS]` and JSON; also the list of its older models (Mistral since v11)",
    frames=(
        Frame(
            (Named(("{name}[ARGS]", "{name}[CALL_ID]{id}[ARGS]")), _OBJECT),
            each="[TOOL_CALLS]{call}",
            join="",
        ),
        Frame((Named(("{name}",)),), each="[TOOL_CALLS]{call}", declared=True),
    ),
    reasoning=(Reasoning("[THINK]", "[/THINK]"), THINK),
    drops=("</s>",),
    template=(("[TOOL_CALLS]", "[ARGS]"),),
)
MISTRAL_V3 = replace(
    MISTRAL,
    name="mistral_v3",
    summary="a JSON list behind `[TOOL_CALLS]` (Mistral to v10)",
    frames=(Frame((_OBJECT, *MISTRAL.frames[0].bodies[:1]), section="[TOOL_CALLS] [{calls}]", join=", "),),
    template=(("[TOOL_CALLS]",),),
)
GRANITE3 = Dialect(
    "granite",
    summary="a JSON list behind `<|tool_call|>` (Granite 3)",
    frames=(Frame((_OBJECT,), section="<|tool_call|> [{calls}]", opens=("<|tool_call|>", "<tool_call>"), join=", "),),
    drops=("<|end_of_text|>",),
    template=(("<|tool_call|>",),),
)
JAMBA = Dialect(
    "jamba",
    summary="a JSON list in `<tool_calls>` (Jamba 1.5)",
    frames=(Frame((_OBJECT,), section="<tool_calls>[\n{calls}\n]</tool_calls>", join=",\n"),),
    template=(("<tool_calls>[",),),
)
PHI4 = Dialect(
    "phi4_mini",
    summary="a JSON list behind `functools` (Phi-4-mini)",
    frames=(Frame((_OBJECT,), section="functools[{calls}]", line=True, join=", "),),
    drops=("<|/tool_call|>", "<|tool_call|>", "<|end|>"),
    template=(("functools[",), ("<|tool|>", "<|/tool|>")),
)
FIREFUNCTION = replace(
    PHI4,
    name="firefunction",
    summary="as phi4_mini (Firefunction 2)",
    template=(),
    drops=("<|eot_id|>",),
)
XLAM = Dialect(
    "xlam",
    summary="a JSON list: bare, fenced, in `<tool_call>` or behind `[TOOL_CALLS]` (xLAM)",
    frames=(
        Frame((_OBJECT,), section="[{calls}]", line=True, declared=True, opens=(), join=", "),
        Frame((_OBJECT,), each="<tool_call>{call}</tool_call>"),
        Frame((_OBJECT,), each="[TOOL_CALLS]{call}"),
    ),
    fences=(Fence(frozenset({"", "json"}), Frame((_OBJECT,), declared=True)),),
)
HUNYUAN_A13B = Dialect(
    "hunyuan_a13b",
    summary="a JSON list in `<tool_calls>`, answers in `<answer>` (Hunyuan A13B)",
    frames=(Frame((_OBJECT,), section="<tool_calls>[{calls}]</tool_calls>", join=", "),),
    drops=("<answer>\n", "\n</answer>", "<answer>", "</answer>"),
    template=(("<answer>", "<tool_calls>"),),
)
COHERE = Dialect(
    "cohere_command",
    summary='a JSON list with "tool_call_id" in `<|START_ACTION|>` (Command R7B, Command A)',
    frames=(
        Frame(
            (Objects(call='{{"tool_call_id": {identifier}, "tool_name": {name}, "parameters": {arguments}}}'),),
            section="<|START_ACTION|>[\n    {calls}\n]<|END_ACTION|>",
            join=",\n    ",
        ),
    ),
    reasoning=(Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),),
    answer=("<|START_RESPONSE|>", "<|START_TEXT|>"),
    drops=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
    template=(("<|START_ACTION|>",),),
)
APERTUS = Dialect(
    "apertus",
    summary="a JSON list of objects whose one key is the name, in `<|tools_prefix|>` (Apertus)",
    frames=(
        Frame(
            (Objects(keys=MappingProxyType({}), call="{{{name}: {arguments}}}"),),
            section="<|tools_prefix|>[{calls}]<|tools_suffix|>",
            join=", ",
        ),
    ),
    reasoning=(Reasoning("<|inner_prefix|>", "<|inner_suffix|>"), THINK),
    drops=("<|assistant_end|>",),
    template=(("<|tools_prefix|>",),),
)

# A name, a separator, JSON.

_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>"
_DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"
_DEEPSEEK_END = ("<｜end▁of▁sentence｜>",)
DEEPSEEK_V3 = Dialect(
    "deepseek_v3",
    summary="a name and fenced JSON in `<｜tool▁calls▁begin｜>` (DeepSeek V3, R1)",
    frames=(
        Frame(
            (Named(("function<｜tool▁sep｜>{name}\n```json\n", "function<｜tool▁sep｜>{name}\n"), tail="\n```"),),
            each=_DEEPSEEK_CALL,
            section=_DEEPSEEK_CALLS,
        ),
    ),
    drops=_DEEPSEEK_END,
    template=(("<｜tool▁calls▁begin｜>", "```json"),),
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    summary="a name and JSON in `<｜tool▁calls▁begin｜>` (DeepSeek V3.1)",
    frames=(
        Frame(
            (Named(("{name}<｜tool▁sep｜>",), ends=("<｜tool▁call▁end｜>",)),),
            each=_DEEPSEEK_CALL,
            section=_DEEPSEEK_CALLS,
            join="",
        ),
    ),
    template=(("<｜tool▁calls▁begin｜>",),),
)
KIMI_K2 = Dialect(
    "kimi_k2",
    summary="an identifier that holds the name, and JSON (Kimi K2 to K2.6)",
    frames=(
        Frame(
            (Named(("{id}{_}<|tool_call_argument_begin|>",), ends=("<|tool_call_end|>",), name_from_id=True),),
            each="<|tool_call_begin|>{call}<|tool_call_end|>",
            section="<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>",
            join="",
        ),
    ),
    drops=("<|im_end|>", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
    template=(("<|tool_calls_section_begin|>",),),
)
FUNCTIONARY_V31 = Dialect(
    "functionary_v31",
    summary="`<function=NAME>` and JSON (Functionary 3.1)",
    frames=(Frame((Named(("<function={name}>",)),), each="{call}</function>", join="", opens=()),),
    drops=("<|eom_id|>", "<|eot_id|>"),
    template=(("<function=", "</function>", '{"'),),
)
_RECIPIENT = Named(("{name}{line}",), ends=(">>>", "<|eot_id|>"), raw=True)
FUNCTIONARY_V32 = Dialect(
    "functionary_v32",
    summary="`>>>`, a name, and JSON on the next line (Functionary 3.2)",
    frames=(Frame((_RECIPIENT,), each=">>>{call}", join="", closes=()),),
    prompted=Frame((_RECIPIENT, Label(("all{line}",), "text")), opens=(), declared=True),
    drops=(">>>all\n", "<|eot_id|>"),
    template=((">>>all",),),
)

# Tags with a raw text for each argument.

QWEN3_CODER = Dialect(
    "qwen3_coder",
    summary="`<function=NAME>` and `<parameter=KEY>` in `<tool_call>` (Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5)",
    frames=(
        Frame((_FUNCTION, _OBJECT), each=_TOOL_CALL),
        Frame((_FUNCTION,), declared=True, opens=(), closes=("</tool_call>",)),
    ),
    drops=("<|im_end|>",),
    template=(("<function=", "<parameter="),),
    result="<tool_response>\n{content}\n</tool_response>",
)
_SEED = replace(_FUNCTION, around=("</seed:tool_call>", "<seed:tool_call>"))
SEED_OSS = Dialect(
    "seed_oss",
    summary="as qwen3_coder, in `<seed:tool_call>` (Seed-OSS)",
    frames=(Frame((_SEED,), each="<seed:tool_call>\n{call}\n</seed:tool_call>"),),
    reasoning=(Reasoning("<seed:think>", "</seed:think>"),),
    drops=("<seed:eos>",),
    template=(("<seed:tool_call>",),),
)
MIMO = replace(
    QWEN3_CODER,
    name="mimo",
    summary="as qwen3_coder, each value as it stands (MiMo V2)",
    frames=tuple([replace(frame, bodies=(replace(_FUNCTION, newlines=False),)) for frame in QWEN3_CODER.frames]),
    template=(),
)


def _dsml(word: str, wrapper: str, *others: str) -> tuple[Frame, ...]:
    wrappers = (wrapper, *others)
    body = Tags(
        calls=(f'<{word}invoke name="{{name}}">',),
        arguments=(f'<{word}parameter name="{{key}}" string="{{string}}">', f'<{word}parameter name="{{key}}">'),
        argument_end=f"</{word}parameter>",
        ends=(f"</{word}invoke>",),
        around=tuple([f"</{each}>" for each in wrappers]),
        empty=(f'<{word}invoke name="{{name}}"/>',),
        after_head="\n",
    )
    return (
        Frame(
            (body,),
            section=f"<{wrapper}>\n{{calls}}\n</{wrapper}>",
            opens=tuple([f"<{each}>" for each in wrappers]),
            closes=tuple([f"</{each}>" for each in wrappers]),
        ),
        Frame((body,), opens=(), closes=tuple([f"</{each}>" for each in wrappers]), declared=True),
    )


GIGACHAT35 = Dialect(
    "gigachat35",
    summary="`<｜GCML｜invoke>` with typed parameters; also a JSON object behind `<|function_call|>` (GigaChat 3.5)",
    frames=(*_dsml("｜GCML｜", "｜GCML｜tool_calls"), Frame((_OBJECT,), each="<|function_call|>{call}")),
    drops=("<|message_sep|>", "</s>"),
    template=(("<|function_call|>",), ("<｜GCML｜tool_calls>",)),
)
DEEPSEEK_V32 = Dialect(
    "deepseek_v32",
    summary="DSML: `<｜DSML｜invoke>` with typed parameters (DeepSeek V3.2)",
    frames=_dsml("｜DSML｜", "｜DSML｜function_calls", "｜DSML｜tool_calls"),
    drops=_DEEPSEEK_END,
    template=(("｜DSML｜function_calls",), ("｜DSML｜", "function_calls")),
)
DEEPSEEK_V4 = replace(
    DEEPSEEK_V32,
    name="deepseek_v4",
    summary="as deepseek_v32, in `tool_calls` (DeepSeek V4)",
    frames=_dsml("｜DSML｜", "｜DSML｜tool_calls", "｜DSML｜function_calls"),
    template=(("｜DSML｜tool_calls",), ("｜DSML｜", "tool_calls")),
)
DEEPSEEK_V41 = replace(
    DEEPSEEK_V32,
    name="deepseek_v41",
    summary="as deepseek_v32, with a space before each word (DeepSeek V4.1)",
    frames=_dsml("｜DSML｜ ", "｜DSML｜ calls"),
    template=(("｜DSML｜ calls",),),
)


def _invoke(namespace: str = "", around: tuple[str, ...] = ()) -> Tags:
    return Tags(
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
        Frame(
            (_invoke(around=("</minimax:tool_call>",)),), section="<minimax:tool_call>\n{calls}\n</minimax:tool_call>"
        ),
    ),
    template=(("<minimax:tool_call>",),),
)
_M3 = "]<]minimax[>["
MINIMAX_M3 = Dialect(
    "minimax_m3",
    summary="a tag for each argument, nested, each behind `]<]minimax[>[` (MiniMax M3)",
    frames=(
        Frame(
            (Nested(_M3),),
            section=f"{_M3}<tool_call>\n{{calls}}\n{_M3}</tool_call>",
            opens=(f"{_M3}<tool_call>",),
            closes=(f"{_M3}</tool_call>",),
        ),
    ),
    reasoning=(Reasoning("<mm:think>", "</mm:think>"), THINK),
    template=((_M3,),),
)
_ANTHROPIC = _invoke(around=("</function_calls>",))
_NAMESPACE = "antml:"
_ANTHROPIC_NAMESPACE = _invoke(_NAMESPACE, around=(f"</{_NAMESPACE}function_calls>",))
ANTHROPIC = Dialect(
    "anthropic_xml",
    summary="`<invoke>` and `<parameter>` in `<function_calls>` (Claude in text)",
    frames=(
        Frame((_ANTHROPIC,), section="<function_calls>\n{calls}\n</function_calls>"),
        Frame(
            (_ANTHROPIC_NAMESPACE,),
            section=f"<{_NAMESPACE}function_calls>\n{{calls}}\n</{_NAMESPACE}function_calls>",
        ),
        Frame((_ANTHROPIC,), line=True, declared=True, closes=("</function_calls>",)),
    ),
    reasoning=(THINK, Reasoning("<thinking>", "</thinking>")),
    template=(("<function_calls>", "<invoke"),),
    result="<function_results>\n{content}\n</function_results>",
)
_ATEM = replace(_invoke("atem:", around=("</atem:function_calls>",)), namespaces=True)
MUSE = Dialect(
    "muse",
    summary="`<atem:invoke>` in channels with a recipient (Muse Glimmer)",
    frames=(
        Frame((_ATEM,), section="<atem:function_calls>\n{calls}\n</atem:function_calls>"),
        Frame((Recipients(),), opens=(), closes=()),
    ),
    prompted=Frame((Recipients(prompted=True),), opens=(), closes=()),
    headed=True,
    reasoning=(Reasoning("<|start|>assistant to=self<|message|>", "<|eom|>"), THINK),
    drops=("<|eom|>", "<|eot|>"),
    template=(("<atem:function_calls>",),),
)
_DOTS = _invoke(around=("</dots_function_call>",))
DOTS = Dialect(
    "dots",
    summary="`<invoke>` or JSON in `<dots_function_call>` (dots)",
    frames=(Frame((_DOTS, _OBJECT), each="<dots_function_call>\n{call}\n</dots_function_call>"),),
    template=(("<dots_function_call>",),),
)
_STEP3 = _invoke("steptml:", around=("<｜tool_call_end｜>",))
STEP3 = Dialect(
    "step3",
    summary="`<steptml:invoke>` in `<｜tool_calls_begin｜>` (Step 3)",
    frames=(
        Frame(
            (replace(_STEP3, calls=('function<｜tool_sep｜><steptml:invoke name="{name}">', *_STEP3.calls)),),
            each="<｜tool_call_begin｜>{call}<｜tool_call_end｜>",
            section="<｜tool_calls_begin｜>\n{calls}\n<｜tool_calls_end｜>",
        ),
    ),
    template=(("<steptml:invoke",),),
)
MINICPM5 = Dialect(
    "minicpm5",
    summary='`<function name="NAME">` and `<param>`, CDATA where it is needed (MiniCPM 5)',
    frames=(
        Frame(
            (
                Tags(
                    calls=('<function name="{name}">', '<functionname="{name}">', '<functionĠname="{name}">'),
                    arguments=('<param name="{key}">', '<paramname="{key}">', '<paramĠname="{key}">'),
                    argument_end="</param>",
                    ends=("</function>",),
                    cdata=True,
                    between="",
                ),
            ),
            declared=True,
        ),
    ),
    template=(('<function name="', "<param name="),),
)
KIMI_K3 = Dialect(
    "kimi_k3",
    summary="`<|open|>call` and typed `<|open|>argument` (Kimi K3)",
    frames=(
        Frame(
            (
                Tags(
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
    answer=("<|open|>response<|sep|>",),
    drops=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    template=(("<|open|>tools<|sep|>",), ("<|open|>", "<|sep|>")),
)

# A name, then pairs of tags.

_PAIRS = Tags(
    calls=("{name}", "{name}\\n"),  # where the newlines of GLM 4.5 were escaped
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
    frames=(Frame((_PAIRS,), each="<tool_call>{call}</tool_call>", join=""),),
    drops=("<|user|>", "<|observation|>", "<|endoftext|>"),
    template=(("<arg_key>",),),
    result="<tool_response>{content}</tool_response>",
)
GLM45 = replace(
    GLM47,
    name="glm45",
    summary="as glm47, with newlines between (GLM 4.5, 4.6)",
    frames=(Frame((replace(_PAIRS, between="\n", after_head="\n"),), each="<tool_call>{call}</tool_call>"),),
    template=(("<arg_key>", "\n<arg_value>"),),
)


def _hunyuan(separator: str, suffix: str = "") -> Frame:
    body = Tags(
        calls=(f"{{name}}{separator}",),
        arguments=(f"<arg_key{suffix}>{{key}}</arg_key{suffix}>\n<arg_value{suffix}>",),
        argument_end=f"</arg_value{suffix}>",
        ends=(),
        around=(f"</tool_call{suffix}>", f"<tool_call{suffix}>"),
        lasting=True,
        after_head="\n",
    )
    return Frame(
        (body,),
        each=f"<tool_call{suffix}>{{call}}</tool_call{suffix}>",
        section=f"<tool_calls{suffix}>\n{{calls}}\n</tool_calls{suffix}>",
    )


HUNYUAN_V3 = Dialect(
    "hunyuan_v3",
    summary="as glm45, with `<tool_sep>` and in `<tool_calls>` (Hunyuan V3)",
    frames=(_hunyuan("<tool_sep>"), _hunyuan("<tool_sep:opensource>", ":opensource")),
    template=(("<tool_sep>",),),
)
HUNYUAN_V4 = replace(
    HUNYUAN_V3,
    name="hunyuan_v4",
    summary="as hunyuan_v3, without `<tool_sep>` (Hunyuan V4)",
    frames=(_hunyuan(""), _hunyuan("", ":opensource")),
    template=(("<tool_calls>", "<arg_key>"),),
)

_IQUEST = replace(_PAIRS, around=("</iquest_tool_call>", "<iquest_tool_call>"))
IQUEST = Dialect(
    "iquest",
    summary="as glm47, in `<iquest_tool_call>` (IQuest Q1)",
    frames=(Frame((_IQUEST,), each="<iquest_tool_call>{call}</iquest_tool_call>", join=""),),
    template=(("<iquest_tool_call>",),),
)
_IFM = Tags(
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
        Frame(
            (_IFM, _OBJECT),
            each="<ifm|tool_call>{call}</ifm|tool_call>",
            section="<ifm|tool_calls>\n{calls}\n</ifm|tool_calls>",
        ),
    ),
    reasoning=(Reasoning("<ifm|think>", "</ifm|think>"), THINK),
    template=(("<ifm|tool_calls>",),),
)

# Expressions.

_PYTHON_LIST = Expressions(listed=True)
PYTHONIC = Dialect(
    "pythonic",
    summary="a Python list of calls with keyword arguments (Llama 3.2, ToolACE)",
    frames=(
        Frame((_PYTHON_LIST,), section="[{calls}]", join=", ", opens=(), line=True, declared=True),
        Frame((_PYTHON_LIST,), section="<|python_start|>[{calls}]<|python_end|>", join=", "),
    ),
    drops=("<|eom_id|>", "<|eot_id|>", "<|eot|>"),
)
LLAMA4_PYTHONIC = replace(
    PYTHONIC,
    name="llama4_pythonic",
    summary="as pythonic, in `<|python_start|>` (Llama 4)",
    frames=PYTHONIC.frames[::-1],
    template=(("<|python_start|>",),),
)
OLMO3 = Dialect(
    "olmo3",
    summary="Python calls, one a line, in `<function_calls>` (OLMo 3)",
    frames=(Frame((Expressions(),), section="<function_calls>\n{calls}\n</function_calls>"),),
    drops=("<|im_end|>",),
    template=(("<function_calls>",),),
)
_FORGETFUL_LIST = Expressions(listed=True, literals=replace(PYTHON, unescaped=True))
LFM2 = Dialect(
    "lfm2",
    summary="a list of Python calls or JSON in `<|tool_call_start|>` (LFM2)",
    frames=(Frame((_FORGETFUL_LIST, _OBJECT), section="<|tool_call_start|>[{calls}]<|tool_call_end|>", join=", "),),
    drops=("<|im_end|>",),
    template=(("<|tool_call_start|>",), ("<|tool_list_start|>",)),
)
FUNCTIONGEMMA = Dialect(
    "functiongemma",
    summary="`call:NAME{KEY:<escape>VALUE<escape>}` in `<start_function_call>` (FunctionGemma)",
    frames=(
        Frame(
            (Expressions(("call:{name}{{",), Literals(quotes=("<escape>",), escapes=frozenset(), bare=True), ":"),),
            each="<start_function_call>{call}<end_function_call>",
            join="",
        ),
    ),
    drops=("<start_function_response>", "<end_of_turn>"),
    template=(("<start_function_call>",),),
)
GEMMA4 = Dialect(
    "gemma4",
    summary='`call:NAME{KEY:<|"|>VALUE<|"|>}` in `<|tool_call>` (Gemma 4)',
    frames=(
        Frame(
            (
                Expressions(
                    ("call:{name}{{", ":{name}{{"),
                    Literals(quotes=('<|"|>', '"', "'"), escapes=frozenset({'"', "'"}), separators=":=", bare=True),
                    ":=",
                ),
            ),
            each="<|tool_call>{call}<tool_call|>",
            join="",
        ),
    ),
    reasoning=(Reasoning("<|channel>thought\n", "<channel|>"),),
    drops=("<turn|>", "<|tool_response>"),
    template=(("<|tool_call>",),),
)

# Channels, labels, code.

HARMONY = Dialect(
    "harmony",
    summary="messages with a channel and a recipient (gpt-oss)",
    frames=(Frame((Channels(),), opens=(), closes=("<|end|>", "<|call|>", "<|return|>"), join=""),),
    prompted=Frame((Channels(prompted=True),), opens=(), closes=("<|end|>", "<|call|>", "<|return|>")),
    headed=True,
    drops=("<|end|>", "<|call|>", "<|return|>"),
    template=(("<|channel|>",),),
)
_THOUGHT = Frame((Label(("Thought:",), "reasoning"),), opens=(), line=True)
_ACTION = Frame((Action(), Expressions(("Action:{_}{name}(",)), Nothing()), opens=(), line=True, declared=True)
_LABELS = (
    Frame((Label(("Final Answer:",), "text"),), opens=(), line=True),
    Frame((Label(("Observation:",), "nothing"),), opens=(), line=True),
)
REACT = Dialect(
    "react",
    summary="`Action:` and `Action Input:`, one call a reply (ReAct)",
    frames=(_ACTION, _THOUGHT, *_LABELS),
    result="Observation: {content}",
)
_PYTHON_TOOLS = ("python", "python_interpreter", "code_interpreter", "execute_python", "run_python", "ipython")
_STATEMENTS = Expressions(statements=True)
_CODE = Frame(
    (_STATEMENTS, Program(_PYTHON_TOOLS, ends=("</code>",))),
    section="<code>\n{calls}\n</code>",
    declared=True,
    noted=True,
)
SMOLAGENTS = Dialect(
    "smolagents",
    summary="Python statements in `<code>` (smolagents' CodeAct)",
    frames=(_CODE, _THOUGHT, Frame((Label(("Observation:",), "nothing"),), opens=(), line=True)),
    fences=(Fence(frozenset({"py", "python"}), replace(_CODE, section="{calls}", opens=(), closes=())),),
    drops=("<end_code>",),
    result="Observation:\n{content}",
)
_TOOL_CODE = Frame(
    (_STATEMENTS, Objects()), section="```tool_code\n{calls}\n```", opens=(), closes=(), declared=True, noted=True
)
GEMMA3 = Dialect(
    "gemma3",
    summary="Python statements or JSON in a fence `tool_code` (Gemma 3)",
    frames=(),
    fences=(Fence(frozenset({"tool_code"}), _TOOL_CODE),),
    spells=_TOOL_CODE,
    result="```tool_output\n{content}\n```",
)
_SHELL = Program(("bash", "sh", "shell"))
_COMMANDS = Frame((Commands(_SHELL),), each="```bash\n{call}\n```", opens=(), closes=(), declared=True, noted=True)
MARKDOWN_BASH = Dialect(
    "markdown_bash",
    summary="a fence `bash`: a command a line, or all of it for one tool (seed 003, option A)",
    frames=(),
    fences=(Fence(frozenset({"bash", "sh", "shell"}), _COMMANDS),),
    spells=_COMMANDS,
    manner=(
        "To call one, write a command in a fence, its name first, then its arguments in order or as flags:\n"
        "```bash\nthe_tool value --parameter value\n```\nYou are then told what it returned, and answer from that."
    ),
)

# Words around JSON, and JSON alone.

_TOOL_USE = Tags(
    calls=("<tool>{name}</tool>",),
    arguments=('<parameter name="{key}">',),
    argument_end="</parameter>",
    ends=(),
    around=("</tool_use>",),
    after_head="\n",
)
_TOOL_USE_ARGS = Tags(
    calls=("<tool>{name}</tool>{_}<args>",),
    arguments=("<{key}>",),
    argument_end="</{key}>",
    ends=("</args>",),
    around=("</tool_use>",),
)
TOOL_USE = Dialect(
    "tool_use_xml",
    summary="`<tool_use>` with lines, tags or JSON (PedroCLI; seed 003, option C)",
    frames=(
        Frame(
            (
                Named(("name: {name}\narguments: ", "name: {name}"), ends=("</tool_use>",)),
                Named(("<tool>{name}</tool>{_}<args>",), tail="</args>"),
                Named(("<tool>{name}</tool>{_}<params>",), tail="</params>"),
                _TOOL_USE,
                _TOOL_USE_ARGS,
            ),
            each="<tool_use>\n{call}\n</tool_use>",
        ),
    ),
    reasoning=(Reasoning("<thinking>", "</thinking>"), THINK),
    template=(("<tool_use>",),),
    result="<tool_result>\n{content}\n</tool_result>",
)

# Without this sentence Qwen2.5-Coder-0.5B answers from nothing; with it, it calls.
_NEVER_GUESS = "Never compute or guess what a tool can tell: call the tool."
_JSON_WORDS = frozenset(
    {"", "json", "jsonc", "json5", "tool", "tools", "tool_call", "tool_calls", "tool_use", "function"}
)
_BARE = Frame((_OBJECT,), opens=(), closes=(), line=True, declared=True, explained=True)
_FENCED = Frame((_OBJECT,), each="```json\n{call}\n```", opens=(), closes=(), declared=True, noted=True)
JSON = Dialect(
    "json",
    summary="a JSON object, fenced or bare at the beginning of a line, any key spelling",
    frames=(_BARE,),
    fences=(Fence(_JSON_WORDS, _FENCED),),
    spells=_FENCED,
    manner=(
        f"{_NEVER_GUESS} To call one, write only a JSON object with its name and arguments:\n"
        '```json\n{"name": "the tool", "arguments": {"parameter": "value"}}\n```\n'
        "You are then told what it returned, and answer from that in plain text."
    ),
)
MARKDOWN_JSON = replace(JSON, name="markdown_json", summary="a JSON object in a fence", frames=())
BARE_JSON = replace(
    JSON, name="bare_json", summary="a JSON object at the beginning of a line", fences=(), spells=None, manner=""
)
_THOUGHTS = replace(
    _FENCED,
    bodies=(Objects(call='{{"tool": {name}, "args": {arguments}}}'),),
    each="{call}",
    section='```json\n{"thoughts": "", "tool_calls": [{calls}]}\n```',
    join=", ",
)
THOUGHTS_JSON = replace(
    JSON,
    name="thoughts_json",
    summary='`{"thoughts", "tool_calls": [{"tool", "args"}]}` (seed 003, option B)',
    spells=_THOUGHTS,
    manner="",
)
ACTION_KEYS = MappingProxyType({**CALL_KEYS, "action": Role.WRAPPER, "answer": Role.TEXT, "scratchpad": Role.REASONING})
_ACTION_OBJECT = Frame(
    (Objects(ACTION_KEYS, '{{"action": {{"tool": {name}, "arguments": {arguments}}}}}'),),
    opens=(),
    closes=(),
    line=True,
    noted=True,
)
ACTION_FORMATS = (
    'Reply with one JSON object. To call a tool: {"action": {"tool": "its name", "arguments": {…}}}. '
    "You are then told what it returned. "
    'To answer: {"action": {"answer": "the answer"}}. To think first: {"action": {"scratchpad": "the thought"}}.'
)
ACTION = Dialect(
    "action",
    summary='{"tool", "arguments"}, {"answer"} or {"scratchpad"}, also inside {"action": …} (seed 001)',
    frames=(_ACTION_OBJECT,),
    fences=(Fence(_JSON_WORDS, _ACTION_OBJECT),),
    answers=True,
    manner=f"{_NEVER_GUESS} {ACTION_FORMATS}",
)

_SPOKEN = (
    JSON,
    HERMES,
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
    PYTHONIC,
    OLMO3,
    LFM2,
    FUNCTIONGEMMA,
    GEMMA3,
    GEMMA4,
    HARMONY,
    replace(REACT, frames=(_ACTION,)),
    TOOL_USE,
)
"""Those that `auto` looks for: not what reads code as calls, and not what other texts are full of."""
AUTO = replace(
    JSON,
    name="auto",
    summary="whichever of the others makes the first call; spelled as json",
    frames=(),
    fences=(),
    speaks=_SPOKEN,
    reasoning=tuple(dict.fromkeys(each for dialect in _SPOKEN for each in dialect.reasoning)),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            AUTO,
            *(dialect for dialect in _SPOKEN if dialect.name != REACT.name),
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
