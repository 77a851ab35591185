"""Functions that are called in place of verbs of some objects, and not of others of the same class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any


class Watcher:
    """Functions for verbs of a class. An object that it is called with has them in their place.

    A function gets the object, the verb as it was before, and the arguments. They are methods of a subclass, which becomes the
    class of the object. Were they set on the object, it would have references to itself, and a span with its messages would stay
    until the garbage collector finds it. A weak reference is not enough: nothing holds the cursor of ``feed.shared("all").claim()``
    while its verb runs.
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self._functions = functions
        self._classes: dict[type, type] = {}

    def __call__(self, watched: object) -> None:
        for name, function in self._functions.items():
            if (before := vars(watched).get(name)) is not None:
                # What has watched this object before has set it, and it hides the method of the class.
                setattr(watched, name, partial(function, watched, before))
        watched.__class__ = self._classes.get(type(watched)) or self._subclass(type(watched))

    def _subclass(self, of: type) -> type:
        methods = {name: _method(getattr(of, name), function) for name, function in self._functions.items()}
        made = type(of.__name__, (of,), {"__module__": of.__module__, "__doc__": of.__doc__, **methods})
        return self._classes.setdefault(of, made)


def _method(verb: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def call(watched: Any, /, *args: Any, **options: Any) -> Any:
        return function(watched, partial(verb, watched), *args, **options)

    return call
