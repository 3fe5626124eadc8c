# SPDX-License-Identifier: MIT
"""size.json and size.csv, and the tables and sentences of the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from tuner.experiment.checks import OFF
from tuner.objective import OBJECTIVES
from tuner.pages import Table
from tuner.run.trial import Status
from tuner.size.measure import Found, Sized
from tuner.size.search import GRID, RESOLUTION, SEARCH_SEED, Slowdown
from tuner.study.contender import CONFIDENCE
from tuner.text import page_size, plural


def gib(value: float) -> str:
    """With three digits, without the unit."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:z.1f} %"


def off_of(found: Found, sized: Sized) -> Sized:
    """first-touch with the same pages."""
    size = sized.configuration.row.page_bytes
    rows = {each.configuration.row: each for each in found.sized}
    return next(each for row, each in rows.items() if row.policy == OFF and row.page_bytes == size)


def saved(found: Found, sized: Sized) -> float | None:
    """GiB of fast memory less than first-touch needs; None of first-touch itself."""
    mine, others = sized.answer_gib, off_of(found, sized).answer_gib
    if mine is None or others is None or sized.configuration.row.policy == OFF:
        return None
    return others - mine


def cost(found: Found, sized: Sized) -> tuple[float, float] | None:
    """Of the memory at the answer, and of fast memory alone."""
    prices, answer = found.plan.prices, sized.answer_gib
    if prices is None or answer is None:
        return None
    return prices.of(answer, sized.whole_gib), prices.of(sized.whole_gib, sized.whole_gib)


# --- Tables ---------------------------------------------------------------------------------------


def answers(found: Found) -> Table:
    priced = found.plan.prices is not None
    columns = [
        *("configuration", ">least GiB", ">of all", ">between, GiB", ">slower", ">knee, GiB"),
        *(">less than first-touch, GiB", *([">costs", ">all-fast costs"] if priced else [])),
    ]
    rows = []
    for sized in found.sized:
        less, knee, slower = saved(found, sized), sized.search.knee, sized.slowdown
        answer, price = sized.answer_gib, cost(found, sized)
        cells = [
            _least(sized),
            "-" if answer is None else percent(answer / sized.whole_gib),
            _between(sized),
            "-" if slower is None else _slower(slower),
            "-" if knee is None else gib(sized.gib(knee)),
            "-" if less is None else gib(less) if less > 0 else "none",
        ]
        if priced:
            cells += ["-", "-"] if price is None else [f"{price[0]:,.4g}", f"{price[1]:,.4g}"]
        rows.append([sized.configuration.row.name, *cells])
    return columns, rows


def _least(sized: Sized) -> str:
    if sized.failure:
        return "refused" if sized.status is Status.failed else str(sized.status)
    answer = sized.answer_gib
    if answer is None:
        return "none"
    return f"{'at most ' if sized.search.least_meets else ''}{gib(answer)}"


def _between(sized: Sized) -> str:
    if not sized.answer_gib:
        return "-"
    low, high = sized.search.bounds
    return f"{gib(sized.gib(low))} and {'?' if high is None else gib(sized.gib(high))}"


def _slower(found: Slowdown) -> str:
    spread = f" ± {100 * found.half_width:.1f}" if found.half_width else ""
    return f"{100 * found.mean:z.1f}{spread} %"


def curves(found: Found) -> list[Table]:
    """What was measured on the grid, for each size of pages."""
    made: list[Table] = []
    for size in found.bases:
        lines = [each for each in found.sized if each.configuration.row.page_bytes == size]
        first = lines[0]
        names = [gib(share * first.whole_gib) for share in GRID]
        columns = ["slower than all-fast at GiB", ">0", *(f">{name}" for name in names)]
        rows = [
            [
                each.configuration.row.name,
                percent(each.search.empty),
                *(_cell(each, round(share * each.search.whole)) for share in GRID),
            ]
            for each in lines
        ]
        made.append((columns, rows))
    return made


def _cell(sized: Sized, size: int) -> str:
    return percent(sized.search.at(size).mean) if size in sized.search.runs else "-"


# --- Sentences ------------------------------------------------------------------------------------


def headline(found: Found) -> str:
    setting = found.plan.setting
    scenario = setting.scenario
    whole = gib(found.sized[0].whole_gib)
    return (
        f"{setting.workload.name} ({scenario.input}) on {setting.machine.name}, {whole} GiB: least "
        f"fast memory for at most {_bound(found)} slower than all-fast ({scenario.objective})"
    )


def _bound(found: Found) -> str:
    return f"{100 * found.plan.bound:g} %"


def verdicts(found: Found) -> list[str]:
    """What the answers mean, what contradicts them, and what could not be measured."""
    said = []
    for size, base in found.bases.items():
        pages = f" ({page_size(size)} pages)" if len(found.bases) > 1 else ""
        slower = base.slowdown(base.slow)
        met = slower <= found.plan.bound
        end = ", which meets the bound: no fast memory is needed" if met else ""
        said.append(f"everything in slow memory{pages}: {percent(slower)} slower{end}")
    for sized in found.sized:
        name = sized.configuration.row.name
        said += [f"{name}: {line}" for line in _of(found, sized)]
    return said


def _of(found: Found, sized: Sized) -> list[str]:
    search = sized.search
    if sized.failure:
        return [f"not judged, {sized.failure}"]
    lines = []
    answer = search.answer
    if answer is None:
        slower = percent(search.at(search.whole).mean)
        lines.append(
            f"no size meets the bound: even with all {gib(sized.whole_gib)} GiB in fast memory it "
            f"is {slower} slower"
        )
    elif answer == search.whole:
        lines.append("no fast memory below the whole footprint meets the bound")
    elif search.least_meets:
        lines.append(
            f"less than {gib(sized.gib(answer))} GiB cannot be told at scale "
            f"{sized.configuration.setting.scenario.scale:g}; a smaller --scale can"
        )
    lines += _against_off(found, sized)
    if answer and search.bounds[1] is None:
        lines.append("no size meets the bound beyond chance; more --seeds tell more")
    if early := search.early:
        failing = search.failing
        assert failing is not None  # there is none before it otherwise
        lines.append(
            f"{_sizes(sized, early)} GiB meet the bound, but {gib(sized.gib(failing))} GiB do not: "
            "more fast memory is not always faster, and the answer is above all that fail"
        )
    for rise in search.rises:
        lines.append(
            f"slower with more fast memory: {percent(rise.before)} at "
            f"{gib(sized.gib(rise.smaller))} GiB, {percent(rise.after)} at "
            f"{gib(sized.gib(rise.larger))} GiB"
        )
    return lines


def _against_off(found: Found, sized: Sized) -> list[str]:
    less = saved(found, sized)
    if less is None or not sized.answer_gib:
        return []
    if less <= 0:
        return [f"tiering saves nothing here: it needs no less fast memory than {OFF}"]
    off = off_of(found, sized)
    low, high = off.gib(off.search.bounds[0]), sized.search.bounds[1]
    if high is None or sized.gib(high) > low:
        return [f"{gib(less)} GiB less than {OFF} are within what the search tells apart"]
    return []


def _sizes(sized: Sized, sizes: Sequence[int]) -> str:
    return ", ".join(gib(sized.gib(size)) for size in sizes)


def notes(found: Found) -> list[str]:
    """How it was measured."""
    plan = found.plan
    points = sum(len(each.search.runs) for each in found.sized)
    seeds = ", ".join(map(str, plan.seeds))
    said = [
        f"{plural(found.run, 'run')}, {found.kept} kept from before: {plural(points, 'size')} of "
        f"{plural(len(found.sized), 'configuration')}, all-fast and all-slow; engine "
        f"{plan.setting.engine_build}",
        f"searched with seed {SEARCH_SEED}, both sides of each answer run with the held-out seeds "
        f"{seeds}; one run where nothing is sampled, as of {OFF}",
        f"least: to {100 * RESOLUTION:g} % of itself; between: the nearest sizes that "
        f"{100 * CONFIDENCE:.0f} % intervals of the slowdown tell to miss and to meet the bound",
        "knee: past it more fast memory gains less than on average over the whole range",
    ]
    if plan.prices:
        said.append(
            f"costs: {plan.prices.fast:g} per GiB of fast memory and {plan.prices.slow:g} per GiB "
            "of slow memory for the rest of the footprint"
        )
    for sized in found.sized:
        if sized.configuration.source:
            row = sized.configuration.row
            said.append(
                f"{row.name}: the knobs of {sized.configuration.source} at all sizes, whatever the "
                "one that they were tuned at"
            )
    return said


# --- As data --------------------------------------------------------------------------------------


def content(found: Found) -> dict[str, Any]:
    plan, setting = found.plan, found.plan.setting
    scenario, objective = setting.scenario, OBJECTIVES[setting.scenario.objective]
    return {
        "name": plan.name,
        "workload": setting.workload.name,
        "input": scenario.input,
        "machine": setting.machine.name,
        "objective": scenario.objective,
        "unit": objective.unit,
        "max_slowdown": plan.bound,
        "search_seed": SEARCH_SEED,
        "seeds": list(plan.seeds),
        "resolution": RESOLUTION,
        "engine_build": setting.engine_build,
        "runs": {"made": found.run, "kept": found.kept},
        "prices": None if plan.prices is None else vars(plan.prices),
        "references": [
            {
                "page_bytes": size,
                "all_fast": base.fast,
                "all_slow": base.slow,
                "all_slow_slowdown": base.slowdown(base.slow),
                "whole_gib": base.whole_bytes / 2**30,
            }
            for size, base in found.bases.items()
        ],
        "configurations": [_configuration(found, each) for each in found.sized],
        "notes": [*verdicts(found), *notes(found)],
    }


def _configuration(found: Found, sized: Sized) -> dict[str, Any]:
    row, search, price = sized.configuration.row, sized.search, cost(found, sized)
    low, high = search.bounds if sized.answer_gib else (None, None)
    return {
        "configuration": row.name,
        **row.model_dump(),
        "source": sized.configuration.source,
        "knobs": dict(sized.configuration.knobs),
        "status": sized.status,
        "reason": sized.failure,
        "least_gib": sized.answer_gib,
        "below_whole": sized.below_whole,
        "least_that_can_be_told": not sized.failure and search.least_meets,
        "fails_at_gib": None if low is None else sized.gib(low),
        "meets_at_gib": None if high is None else sized.gib(high),
        "whole_gib": sized.whole_gib,
        "slowdown": _plain(sized.slowdown),
        "knee_gib": None if search.knee is None else sized.gib(search.knee),
        "less_than_first_touch_gib": saved(found, sized),
        "cost": None if price is None else {"memory": price[0], "all_fast": price[1]},
        "meets_below_a_size_that_fails_gib": [sized.gib(size) for size in search.early],
        "slower_with_more": [
            {
                "from_gib": sized.gib(rise.smaller),
                "to_gib": sized.gib(rise.larger),
                "from_slowdown": rise.before,
                "to_slowdown": rise.after,
            }
            for rise in search.rises
        ],
        "curve": [
            {"fast_gib": sized.gib(size), **(_plain(search.at(size)) or {})}
            for size in search.sizes
        ],
    }


def _plain(found: Slowdown | None) -> dict[str, Any] | None:
    """A single run has no interval; what is exact has one of no width."""
    return None if found is None else {"mean": found.mean, "half_width": found.half_width}


def json_text(found: Found) -> str:
    return json.dumps(content(found), indent=1) + "\n"


def csv_text(found: Found) -> str:
    """A row for each run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("configuration", "policy", "page_bytes", "tuned", "fast_gib", "share", "seed"),
            *("held_out", "objective", "slowdown", "meets"),
        ]
    )
    for sized in found.sized:
        row = sized.configuration.row
        for run in sorted(sized.runs, key=lambda run: (run.size, run.seed)):
            slower = sized.base.slowdown(run.objective)
            writer.writerow(
                [
                    *(row.name, row.policy, row.page_bytes, row.tuned, sized.gib(run.size)),
                    *(run.size / sized.search.whole, run.seed, run.seed != SEARCH_SEED),
                    *(run.objective, slower, slower <= sized.search.bound),
                ]
            )
    return text.getvalue()
