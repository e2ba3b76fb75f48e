"""The invokers of a conversation by the names that models call them.

A name is plain where it is unique, else it begins with the ensemble's. The registry is frozen once made, so that a name
means one tool for the whole conversation. Which characters a provider takes is its wire's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import is_

from callboard.core import ToolDeclaration
from callboard.tools.ensemble import Ensemble, refuse_clashes
from callboard.tools.invoker import Invoker
from callboard.tools.permissions import Policy


class InvokerRegistry(Mapping[str, Invoker]):
    """Name to invoker, in the order of the ensembles; `declarations` is what models are told.

    Raises DescriptorError for two ensembles of one name, unless they are parts of one.
    """

    def __init__(self, ensembles: Iterable[Ensemble]) -> None:
        ensembles = [*ensembles]
        refuse_clashes([(f"ensembles[{at}]", each) for at, each in enumerate(ensembles)])
        every = _every(ensembles)
        taken = Counter(invoker.name for _, invoker in every)
        self._invokers: dict[str, Invoker] = {}
        for ensemble, invoker in every:
            name = invoker.name if taken[invoker.name] == 1 else f"{ensemble.name}__{invoker.name}"
            while name in self._invokers:
                name += "_"
            self._invokers[name] = invoker
        self.declarations: tuple[ToolDeclaration, ...] = tuple(
            invoker.declare(name) for name, invoker in self._invokers.items()
        )

    def is_made_of(self, ensembles: Iterable[Ensemble]) -> bool:
        """Whether these ensembles still have the very invokers that it was made of."""
        every = [invoker for _, invoker in _every(ensembles)]
        return len(every) == len(self) and all(map(is_, every, self._invokers.values()))

    def allowed_declarations(self, policy: Policy) -> tuple[ToolDeclaration, ...]:
        """The declarations without those of tools that the policy forbids altogether."""
        hidden = {name for name, invoker in self._invokers.items() if policy.forbids(invoker)}
        return tuple([each for each in self.declarations if each.name not in hidden]) if hidden else self.declarations

    def names_behind_search(self, offered: Iterable[ToolDeclaration], limit: int, keep: str = "") -> frozenset[str]:
        """The names of the offered tools that are declared only once they were found (see `callboard.tools.search`).

        Those of ensembles whose configuration says `search` are. Where the others are more than a model takes, so are
        those of the largest ensembles, whole, until half of the limit is left for what is found: what people added by
        the hundred does not crowd out what they wrote themselves. An ensemble that says `search = false` comes last.

        Args:
            offered: What the policy does not forbid.
            limit: How many tools the model takes, 0 for any number.
            keep: The name of one that has to be declared.
        """
        groups: dict[int, list[str]] = {}
        wishes: dict[int, bool | None] = {}
        for each in offered:
            ensemble = self._invokers[each.name].ensemble
            groups.setdefault(id(ensemble), []).append(each.name)
            wishes[id(ensemble)] = ensemble.configuration.get("search") if ensemble else None
        searched = {name for group, names in groups.items() if wishes[group] for name in names}
        remaining = sum(map(len, groups.values())) - len(searched)
        if limit and remaining + bool(searched) > limit:
            others = [group for group in groups if not wishes[group]]
            for group in sorted(others, key=lambda each: (wishes[each] is False, -len(groups[each]))):
                if remaining < (limit if wishes[group] is False else limit // 2):
                    break
                searched.update(groups[group])
                remaining -= len(groups[group])
        return frozenset(searched - {keep})

    def __getitem__(self, name: str) -> Invoker:
        return self._invokers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._invokers)

    def __len__(self) -> int:
        return len(self._invokers)


def _every(ensembles: Iterable[Ensemble]) -> list[tuple[Ensemble, Invoker]]:
    return [(ensemble, invoker) for ensemble in ensembles for invoker in ensemble.invokers.values()]
