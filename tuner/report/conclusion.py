# SPDX-License-Identifier: MIT
"""What a study came to, and how the terminal says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import NamedTuple

from tuner.emulate.trials import verifiable
from tuner.errors import one_line
from tuner.objective import OBJECTIVES
from tuner.report import front
from tuner.report.importance import Importance
from tuner.report.mechanism import mechanism
from tuner.report.risk import risk
from tuner.run.isolation import Live, simulates
from tuner.scenario import defaults
from tuner.study import best as best_file
from tuner.study.constraint import Judged, by_how_much
from tuner.study.contender import CONFIDENCE, Contender, Kind
from tuner.study.explanation import KEEP, Effect, Explanation
from tuner.study.log import StudyData
from tuner.study.near import near_best, sentences
from tuner.study.request import StudyRequest
from tuner.study.verdict import Advice, Verdict, chosen
from tuner.text import change, faster, page_size, quantity, shell, short, with_unit

LIVE = "--on live --command 'COMMAND' --metric M"
"""What `tune verify` needs to measure on a server."""
MOST = 5  # knobs in the terminal's summary
SEEN = 0.0005  # a smaller gain is not told
MOST_RIVALS = 5  # other policies with their defaults, there
UNTUNED = "untuned "
STEADY = 0.1  # between the held-out seeds: what differs by more is shown
MOST_TOGETHER = 2  # groups of changes, there
WIDTH = 100  # of the terminal's summary, where a list is long


@dataclass(frozen=True)
class Conclusion:
    """The verdict, the measured explanation if there is a gain to explain, and the forest's scores,
    which are no more than a hint."""

    verdict: Verdict
    explanation: Explanation | None
    forest: Importance

    def shares(self, study: StudyData) -> dict[str, float]:
        """Measured shares of the gain by tuned knob, highest first; empty if not explained."""
        if self.explanation is None:
            return {}
        return self.explanation.shares([knob.name for knob in study.header.request.tuned])


def text(study: StudyData, conclusion: Conclusion) -> str:
    """The verdict, the values that it compares, what made the difference, and what next."""
    request, verdict = study.header.request, conclusion.verdict
    failed = sum(not trial.succeeded for trial in study.done)
    lines = [verdict.headline]
    lines.append(f"{len(study.done)} trials" + (f", {failed} of them failed" if failed else ""))
    if study.ended:
        lines[-1] += f"; the search ended: {study.ended}"
    if study.best is None and verdict.constraints and study.default is not None:
        lines += [*_values(study, verdict), *constraint_lines(verdict)]
        lines.append(f"results  {one_line(study.directory)}")
        return "\n".join(lines)
    if study.best is None:
        reasons = {t.result.error for t in study.done if t.result is not None and t.result.error}
        lines += ["no trial succeeded", *(f"  {reason}" for reason in sorted(reasons)[:3])]
        lines.append(f"all of it is in {one_line(study.directory)}")
        return "\n".join(lines)
    lines += _values(study, verdict)
    lines += constraint_lines(verdict)
    if verdict.front is not None:
        told = [*front.told(verdict.front), front.reason(verdict.front)]
        lines += [f"{'' if k else 'front':<9}{line}" for k, line in enumerate(told)]
    lines += _headed("nearby", nearby(study, verdict))
    if verdict.uncovered:
        lines += wrap(verdict.uncovered, WIDTH)
    if request.emulated is None and simulates(request.isolation) and (known := risk()):
        lines.append(f"risk     {known}")
    lines += _explanation(study, conclusion)
    if conclusion.explanation is not None:
        near = near_best(study, verdict)
        lines += _headed("how", mechanism(study))
        lines += _headed("near", sentences(study, near) if near else [])
    lines.append(f"results  {one_line(study.directory)}")
    if reuse := _reuse(study, verdict):
        lines.append(f"reuse    {shell(reuse)}")
    if other := _search(study, verdict):
        lines.append(f"next     {shell(other)}")
    if verify := _verify(study):
        lines.append(f"verify   {shell(verify)}")
    return "\n".join(lines)


def _headed(word: str, told: Sequence[str]) -> list[str]:
    """Sentences with a word before the first; what is longer than a line goes on in the next."""
    return [
        line
        for k, sentence in enumerate(told)
        for line in wrap(
            sentence,
            WIDTH,
            initial_indent=f"{'' if k else word:<9}",
            subsequent_indent=" " * 11,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _verify(study: StudyData) -> list[str]:
    """The command that tries on a real kernel what was simulated; empty if that is not possible."""
    request = study.header.request
    able = simulates(request.isolation) and verifiable(request.scenario)
    return ["tune", "verify", str(study.directory)] if able else []


def steps(study: StudyData, verdict: Verdict) -> list[tuple[str, str]]:
    """What to do next, the first step first: why, and the command; it is empty where the step is
    the advice itself."""
    request, folder = study.header.request, str(study.directory)
    reuse, verify = _reuse(study, verdict), _verify(study)
    measure = "Measure it on a real kernel before a server depends on it"
    found: list[tuple[str, list[str] | str]] = []
    if verdict.advice is Advice.leave_off:
        found.append(("Leave tiering off: nothing has to be installed", []))
        measure = "Confirm on a real kernel that tiering does not pay here"
    elif reuse:
        found.append(("Run what is advised again", reuse))
    if other := _search(study, verdict):
        found.append(("Search that policy's knobs, which are at their defaults there", other))
    if verify:
        found.append((measure, verify))
    if verdict.advice is Advice.use_best:
        best = str(study.directory / best_file.FILE)
        if request.isolation is None and request.scenario.simulated:
            live = f"{shell(['tune', 'verify', folder])} {LIVE}"
            found.append(("Measure it on the server it is for, with a command of yours", live))
        server = ["tune", "apply", best, "--for", "TARGET"]
        found.append(("Make a server's files of it (tune apply --help has the targets)", server))
        found.append(("Check later that it still is the best", ["tune", "check", best]))
    if study.best is not None:
        found.append(("Read in a terminal why it is so", ["tune", "explain", folder]))
    found.append(("Give the study to others, as one file", ["tune", "export", folder]))
    return [(why, words if isinstance(words, str) else shell(words)) for why, words in found]


def _reuse(study: StudyData, verdict: Verdict) -> list[str]:
    """The command that runs what the study advises to use; empty if there is none."""
    request = study.header.request
    scenario = request.scenario
    if verdict.advice is Advice.use_best:
        config = str(study.directory / best_file.FILE)
        if isinstance(request.isolation, Live):
            return ["tune", "exec", config, "--", *request.isolation.command]
        return ["tune", "sim", "--workload", scenario.workload, "--config", config]
    use = chosen(verdict)
    if use is None or use.kind is not Kind.untuned or not simulates(request.isolation):
        return []
    return ["tune", "sim", *_as_it_ran(request, use.policy)]


def _search(study: StudyData, verdict: Verdict) -> list[str]:
    """The command that tunes the other policy whose defaults are advised; empty if none is."""
    request, use = study.header.request, chosen(verdict)
    if verdict.advice is not Advice.use_untuned or use is None:
        return []
    if not simulates(request.isolation) or not request.scenario.simulated:
        return []  # with more options than these
    words = [*_as_it_ran(request, use.policy), "--budget", request.budget_option]
    return ["tune", "run", *words, *request.judged_by]


def _as_it_ran(request: StudyRequest, name: str) -> list[str]:
    """The options of another policy's run beside the study, or of its own."""
    by_name = {policy.name: policy for policy in (request.policy, *request.alternatives)}
    policy = by_name[name]
    scenario = request.under(policy).scenario  # with pages and scale of its own
    usual = defaults(request.workload, policy, scenario.input, scenario.page_bytes)
    usual |= {"page_bytes": policy.page_bytes, "policy": ""}
    return scenario.command_line(usual)


class Row(NamedTuple):
    """Something that was compared: its objective, how it stands to the default, and what else there
    is to tell of it. The texts may be empty."""

    name: str
    value: float
    change: str
    more: str

    @property
    def words(self) -> str:
        return ", ".join(filter(None, (self.change, self.more)))


def rows(study: StudyData, verdict: Verdict) -> list[Row]:
    """What was compared, the best first. Contenders have the mean of the held-out seeds; what no
    verdict depends on has its one run."""
    name = study.header.request.scenario.objective
    objective = OBJECTIVES[name]
    policy = study.header.request.policy.name
    contenders = {
        c.name if c.policy != policy else {"untuned": "default", "tuned": "best"}[c.kind]: c
        for c in verdict.contenders
        if c.kind is not Kind.off and c.mean is not None
    }
    pages = study.header.request.scenario.page_bytes
    values = {f"{UNTUNED}{other}": value for other, value in verdict.untuned.items()}
    values |= {
        f"{c.name} with {page_size(c.page_bytes)} pages": c.mean
        for c in verdict.contenders
        if c.kind is Kind.off and c.page_bytes != pages and c.mean is not None
    }
    values |= verdict.references
    values |= {key: c.mean for key, c in contenders.items() if c.mean is not None}
    default = values.get("default")

    def row(key: str, value: float) -> Row:
        more = []
        if key == "best" and study.best is not None:
            more.append(f"trial {study.best.number}")
            more += ["without what adds nothing"] if study.lean is not None else []
        if key in contenders:
            more += _unsteady(contenders[key], objective.unit)
        told = change(value / default - 1) if default is not None and key != "default" else ""
        return Row(key, value, told, ", ".join(more))

    ordered = sorted(values.items(), key=lambda item: (objective.cost(item[1]), item[0]))
    return [row(key, value) for key, value in ordered]


def _unsteady(contender: Contender, unit: str) -> list[str]:
    """From where to where it comes, by held-out seed, if that is far apart."""
    values = [value for value in contender.values if value is not None]
    low, high = min(values), max(values)
    if high <= low * (1 + STEADY):
        return []
    return [f"{quantity(low, unit)} to {quantity(high, unit)} by seed"]


def _values(study: StudyData, verdict: Verdict) -> list[str]:
    objective = OBJECTIVES[study.header.request.scenario.objective]
    found = rows(study, verdict)
    rivals = [row for row in found if row.name.startswith(UNTUNED)]
    left_out = rivals[MOST_RIVALS:] if len(rivals) > MOST_RIVALS + 1 else []
    cells = [
        (row.name, quantity(row.value, objective.unit), row.words)
        for row in found
        if row not in left_out
    ]
    widths = [max(len(cell[k]) for cell in cells) for k in range(2)] if cells else [0, 0]
    lines = [
        f"  {name:<{widths[0]}}  {value:>{widths[1]}}{f'  ({text})' if text else ''}"
        for name, value, text in cells
    ]
    if left_out:
        ends = [quantity(row.value, objective.unit) for row in (left_out[0], left_out[-1])]
        lines.append(f"  {len(left_out)} more untuned: {' to '.join(ends)} (the report has all)")
    return [f"{objective.name} (contenders: mean of {len(verdict.seeds)} held-out seeds)", *lines]


def constraint_lines(verdict: Verdict) -> list[str]:
    """For the terminal: what became of the constraints."""
    return _headed("bounds", constrained(verdict))


def constrained(verdict: Verdict) -> list[str]:
    """What became of the constraints, as sentences without a full stop: what the default and the
    best measure on the held-out seeds, who breaks what there, and what came nearest."""
    found = verdict.constraints
    if found is None:
        return []
    policy = found.policy
    lines = []
    own = {
        "default": verdict.contender(Kind.untuned, policy),
        "best": verdict.contender(Kind.tuned, policy),
    }
    for place, text_ in enumerate(found.constraints):
        parts = [
            f"{name} {each.judged[place]}{_on_how_many(each.judged[place])}"
            for name, each in own.items()
            if each is not None and each.judged
        ]
        lines.append(f"{text_}: {', '.join(parts)}" if parts else f"{text_}: nothing ran")
    if found.default_breaks:
        lines.append(f"on the study's seed the default breaks {by_how_much(found.default_breaks)}")
    if found.nearest is not None:
        lines.append(
            f"none of {verdict.trials} trials meets {found.text}; trial {found.nearest} comes "
            f"nearest: it breaks {by_how_much(found.missed)}"
        )
    else:
        lines.append(f"{found.met_by} of {verdict.trials} trials meet {found.text}")
    others = [c for c in verdict.contenders if c not in own.values() and c.broken]
    lines += [f"{c.name} breaks {c.broken[0].constraint}: {c.broken[0]}" for c in others]
    return lines


def _on_how_many(judged: Judged) -> str:
    if not judged.broken:
        return ""
    where = f"on {judged.broken} of {judged.seeds} held-out seeds"
    return f", which breaks it{'' if judged.missed > 1 else ', though not on the mean,'} {where}"


def nearby(study: StudyData, verdict: Verdict) -> list[str]:
    """Why another trial than the best one is recommended, and what it is worth elsewhere."""
    name, best, top = verdict.objective, study.best, study.top
    lines = []
    if best and top and best.number != top.number and best.objective and top.objective:
        gain = OBJECTIVES[name].gain(top.objective, best.objective)
        ahead = faster(gain, None, name) if gain >= SEEN else "as good"
        shared = study.header.request.together
        elsewhere = "on the mean of a fresh one and of the sizes below"
        lines.append(
            f"trial {best.number}, not {top.number}: that one is {ahead} on the study's seed, "
            f"but gains less {f'by {shared.by}' if shared else elsewhere}"
        )
    for place in verdict.elsewhere:
        told = [
            f"{faster(each.gain, each.half_width, name)} than {whom}"
            for each, whom in ((place.gain, "the default"), (place.over_first_touch, "first-touch"))
            if each is not None
        ]
        lines.append(f"at {place.where}: {', '.join(told) or 'it does not run'}")
    return lines


def share(value: float, half_width: float | None) -> str:
    """0.81 ± 0.04 as `81 ± 4 %`, 0.381 ± 0.002 as `38.1 ± 0.2 %`."""
    if half_width is None:
        return f"{round(100 * value)} %"
    places = 0 if half_width >= 0.01 else 1
    return f"{100 * value:.{places}f} ± {100 * half_width:.{places}f} %"


def parts(effect: Effect) -> list[str]:
    """What a change gains alone and what is lost without it; alone is measured of needed ones."""
    alone = "" if effect.share is None else _part(effect.alone)
    return [alone, _part(effect.without)]


def _part(value: float | None) -> str:
    return "fails" if value is None else share(value, None)


def moves(study: StudyData, effects: Sequence[Effect]) -> list[str]:
    """What each changed: `160 -> 5.012 s`."""
    units = {knob.name: knob.unit for knob in study.header.request.policy.knobs}
    return [
        f"{short(effect.default)} -> {with_unit(effect.best, units[effect.knob])}"
        for effect in effects
    ]


def together(explanation: Explanation) -> list[str]:
    """What the needed changes do with one another, and what would do instead, as sentences."""
    lines = []
    for each in explanation.interactions[:MOST_TOGETHER]:
        part, names = share(abs(each.part), each.half_width), listed(each.knobs)
        lines.append(
            f"{part} of the gain comes only if {names} are changed together"
            + (": more than all of it, as other sets of changes lose" if each.part > 1 else "")
            if each.part > 0
            else f"{names} overlap: {part} of the gain comes with "
            f"{'either' if len(each.knobs) == 2 else 'fewer of them'}"
        )
    losing = [
        effect.knob
        for effect in explanation.needed
        if effect.share is not None and effect.share + (effect.half_width or 0) < 0
    ]
    if losing:
        costs, it = ("costs", "it") if len(losing) == 1 else ("cost", "them")
        lines.append(
            f"{listed(losing)} {costs} on average over all orders of the changes, but without "
            f"{it} the gain is smaller"
        )
    lines += [
        f"{each.knob} does as well instead of {each.instead_of}: "
        f"{100 * each.kept:.0f} % of the gain"
        for each in explanation.alternatives
    ]
    return lines


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _explanation(study: StudyData, conclusion: Conclusion) -> list[str]:
    explanation = conclusion.explanation
    if explanation is None:
        return []
    top = explanation.needed[:MOST]
    cells = [
        (effect.knob, share(effect.share or 0, effect.half_width), values)
        for effect, values in zip(top, moves(study, top), strict=True)
    ]
    width = max(len(name) for name, _, _ in cells)
    wide = max(len(part) for _, part, _ in cells)
    lines = [
        f"what made the difference: shares of the gain ({100 * CONFIDENCE:.0f} % intervals), and "
        "default -> best"
    ]
    lines += [f"  {name:<{width}}  {part:>{wide}}  {values}" for name, part, values in cells]
    lines += [f"  {line}" for line in together(explanation)]
    lines.append(fewest(study, explanation))
    return lines


def fewest(study: StudyData, explanation: Explanation) -> str:
    """What the fewest changes are worth, and whether they are what is recommended."""
    few, changes = len(explanation.minimal), len(explanation.effects)
    if few == changes:
        return f"all {changes} changes are needed to keep {100 * KEEP:.0f} % of the gain"
    kept = share(explanation.kept, explanation.half_width)
    if explanation.breaks:
        return (
            f"{few} of {changes} changes keep {kept} of the gain, but break "
            f"{' and '.join(explanation.breaks)}: there is no {best_file.MINIMAL}"
        )
    if explanation.lean and study.best is not None:
        return (
            f"{best_file.FILE} has {few} of the {changes} changes of trial {study.best.number}, "
            f"with {kept} of its gain: the others add nothing"
        )
    return f"{best_file.MINIMAL} keeps {kept} of the gain with {few} of {changes} changes"
