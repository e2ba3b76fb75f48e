"""What of a comparison becomes facts of a profile."""

from callboard.evaluation.profile_choice import choose_profile
from callboard.evaluation.report import Report, VariantScore
from callboard.evaluation.statistics import Score, choose_best

TASKS = tuple(f"t{at}" for at in range(48))


def compare(**results):
    """A report of variants: how many they solved, the seconds of a task, and their facts."""
    scores = {
        name: Score({task: at < solved for at, task in enumerate(TASKS)}, seconds * len(TASKS))
        for name, (solved, seconds, _) in results.items()
    }
    variants = [
        VariantScore(
            name, results[name][2], each.count, each.total, each.share, each.interval, (), {}, 0, None, None,
            each.seconds_per_task, 0.0, 0.0,
        )
        for name, each in scores.items()
    ]  # fmt: skip
    return Report("m", TASKS, tuple(variants), (), (), choose_best(scores))


def test_the_best_variant_is_written_with_its_figures():
    chosen = choose_profile(compare(default=(20, 1.0, {}), thought=(44, 1.4, {"max_tokens": 16})), "native")
    assert chosen.facts == {"max_tokens": 16}
    assert chosen.evidence == "44 of 48 solved (80-97 %), 1.4 s each, the best of 2 variants on 48 tasks"


def test_what_stays_for_its_latency_says_so():
    chosen = choose_profile(compare(default=(40, 1.0, {}), thought=(42, 2.0, {"max_tokens": 16})), "native")
    assert chosen.facts == {"mode": "native"}
    assert "stays for its latency (effort)" in chosen.evidence
    assert "thought 42 at 2.0 times its seconds" in chosen.evidence


def test_what_is_best_anyway_needs_no_facts():
    assert choose_profile(compare(default=(44, 1.0, {}), other=(20, 1.0, {"mode": "native"})), "native").facts == {}


def test_what_wins_within_noise_is_not_written():
    tie = compare(default=(40, 1.0, {}), other=(42, 1.0, {"mode": "native"}))
    chosen = choose_profile(tie, "native")
    assert chosen.facts == {}
    assert chosen.evidence.startswith("other beats default only within noise: 42 of 48 solved")


def test_a_tie_with_another_variant_does_not_hide_a_win_over_the_default():
    report = compare(default=(20, 1.0, {}), first=(43, 1.0, {"mode": "native"}), second=(44, 1.0, {"dialect": "json"}))
    assert choose_profile(report, "native").facts == {"dialect": "json"}


def test_the_fastest_of_those_that_solve_nothing_is_not_written():
    chosen = choose_profile(compare(default=(0, 4.0, {}), quick=(0, 1.0, {"mode": "native"})), "native")
    assert chosen.facts == {}
    assert chosen.evidence == "no variant solved any of 48 tasks"


def test_less_time_for_as_many_solved_tasks_is_a_reason():
    report = compare(default=(40, 4.0, {}), quick=(40, 1.0, {"mode": "native"}))
    assert choose_profile(report, "native").facts == {"mode": "native"}


def test_without_a_comparison_nothing_is_chosen():
    assert choose_profile(Report("m", TASKS, (), (), ()), "native") is None
