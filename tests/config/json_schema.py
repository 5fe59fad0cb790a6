"""A small JSON Schema validator of its own, for the keywords that the published schema uses.

A keyword it does not know is an error: it must never check less than the schema says.
"""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = {"$schema", "$defs", "title", "description", "default"}  # say nothing about an instance


def violations(schema: dict[str, Any], instance: Any, root: dict[str, Any], at: str = "$") -> list[str]:
    """Where and by which keyword the instance breaks the schema."""
    found: list[str] = []
    for keyword, value in schema.items():
        found += _check(keyword, value, schema, instance, root, at)
    return found


def _check(
    keyword: str, value: Any, schema: dict[str, Any], instance: Any, root: dict[str, Any], at: str
) -> list[str]:
    broken = [f"{at}: {keyword}"]
    match keyword:
        case "$ref":
            return violations(root["$defs"][value.removeprefix("#/$defs/")], instance, root, at)
        case "anyOf":
            return [] if any(not violations(option, instance, root, at) for option in value) else broken
        case "oneOf":  # told by the option that fits best
            return min((violations(option, instance, root, at) for option in value), key=len)
        case "type":
            return [] if _has_type(instance, value) else broken
        case "const":
            return [] if instance == value else broken
        case "enum":
            return [] if instance in value else broken
        case "pattern":
            return broken if isinstance(instance, str) and not re.search(value, instance) else []
        case "minLength":
            return broken if isinstance(instance, str) and len(instance) < value else []
        case "minItems":
            return broken if isinstance(instance, list) and len(instance) < value else []
        case "minimum":
            return broken if isinstance(instance, int) and instance < value else []
        case "maximum":
            return broken if isinstance(instance, int) and instance > value else []
        case "required":
            missing = [name for name in value if isinstance(instance, dict) and name not in instance]
            return [f"{at}.{name}: required" for name in missing]
        case "properties" | "additionalProperties":
            return _members(keyword, value, schema, instance, root, at)
        case "items":
            items = enumerate(instance if isinstance(instance, list) else [])
            return [v for i, item in items for v in violations(value, item, root, f"{at}[{i}]")]
        case _ if keyword in _WORDS:
            return []
    raise AssertionError(f"unknown keyword {keyword}")


def _has_type(instance: Any, names: str | list[str]) -> bool:
    wanted = [names] if isinstance(names, str) else names
    if isinstance(instance, bool):
        return "boolean" in wanted
    return any(isinstance(instance, _TYPES[name]) for name in wanted)


def _members(
    keyword: str, value: Any, schema: dict[str, Any], instance: Any, root: dict[str, Any], at: str
) -> list[str]:
    if not isinstance(instance, dict):
        return []
    known = schema.get("properties", {})
    if keyword == "properties":
        checks = [(name, value[name]) for name in instance if name in value]
    elif value is False:
        return [f"{at}.{name}: additionalProperties" for name in instance if name not in known]
    else:
        checks = [(name, value) for name in instance if name not in known]
    return [v for name, inner in checks for v in violations(inner, instance[name], root, f"{at}.{name}")]
