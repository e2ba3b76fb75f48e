"""Which names of models may be sent to an endpoint.

A client of the gateway chooses the name, and Gemini's wire puts it into the URL beside the operator's key. So a name
is letters and digits of any script and a few signs; characters that could leave a path or end it (`..`, `?`, `#`, `%`,
a backslash, control characters) are refused on every wire.
"""

from __future__ import annotations

from callboard.errors import CallerError

LONGEST = 500
"""Characters. Names of files, such as vLLM and llama.cpp have them, are names of models as well."""
_SIGNS = frozenset("-_.:/@+=,~()[] ")


def check_model_name(name: str) -> None:
    """Checks the name of a model before it is sent.

    Args:
        name: The name, without a provider's prefix.

    Raises:
        CallerError: The name is empty or too long, or has something in it that no name has.
    """
    if not name.strip():
        raise CallerError("no model is named", path="model")
    if len(name) > LONGEST:
        raise CallerError(f"a name of {len(name)} characters", path="model", hint=f"at most {LONGEST} are taken")
    wrong = next((each for each in name if not (each.isalnum() or each in _SIGNS)), ".." if ".." in name else "")
    if wrong:
        hint = "letters, digits and - _ . : / @ + = , ~ ( ) [ ] are"
        raise CallerError(f"{wrong!a} is in no model's name", path="model", hint=hint)
