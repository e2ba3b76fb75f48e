from callboard.core import Why, pipe


class Pairs:
    """Numbers in twos; an odd one is given at the end."""

    def __init__(self):
        self.held = []

    def feed(self, item, /):
        self.held.append(item)
        if len(self.held) < 2:
            return []
        pair, self.held = tuple(self.held), []
        return [pair]

    def finish(self, why: Why = "stop", /):
        return [(item, why) for item in self.held]


class Twice:
    def feed(self, item, /):
        return [item, item]

    def finish(self, why: Why = "stop", /):
        return ["end"]


def test_what_each_gives_is_fed_to_the_next():
    stages = pipe(Twice(), Pairs(), Twice())
    assert stages.feed(1) == [(1, 1), (1, 1)]
    assert pipe(Pairs(), Pairs()).feed(1) == []


def test_finishing_goes_from_the_first_to_the_last():
    stages = pipe(Pairs(), Twice())
    stages.feed(1)
    assert stages.finish("cut") == [(1, "cut"), (1, "cut"), "end"]


def test_an_empty_pipe_changes_nothing():
    assert pipe().feed(1) == [1]
    assert pipe().finish() == []
