"""For mkdocstrings: functions that a class takes from another module, as in `call = calling.call`, become methods.

Must not import what it reads: it sees the source as griffe does.
"""

from typing import Any

import griffe


class Borrowed(griffe.Extension):
    """Puts a method in the place of each attribute whose value is a function of the same package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Once everything is read."""
        self._look_into(pkg)

    def _look_into(self, within: griffe.Module | griffe.Class) -> None:
        for member in list(within.members.values()):
            if isinstance(member, griffe.Module | griffe.Class):
                self._look_into(member)
            elif isinstance(within, griffe.Class) and isinstance(member, griffe.Attribute):
                lent = _lent(member)
                if lent is not None:
                    within.set_member(member.name, _method(member, lent))


def _lent(attribute: griffe.Attribute) -> griffe.Function | None:
    """The function that is the attribute's value; None where it is something else."""
    if not isinstance(attribute.value, griffe.ExprAttribute):
        return None
    first, _, rest = str(attribute.value).partition(".")
    try:
        # Of the module, not of the class, where the attribute itself may have the module's name.
        lent = attribute.modules_collection[f"{attribute.module.resolve(first)}.{rest}"]
    except (KeyError, griffe.NameResolutionError):
        return None
    return lent if isinstance(lent, griffe.Function) else None


def _method(attribute: griffe.Attribute, function: griffe.Function) -> griffe.Function:
    """The function as a method: its first parameter is who it is called on."""
    of = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    method = griffe.Function(
        attribute.name,
        parameters=griffe.Parameters(of, *list(function.parameters)[1:]),
        returns=function.returns,
        docstring=function.docstring,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
    )
    method.labels |= function.labels
    return method
