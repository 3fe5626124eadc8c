# SPDX-License-Identifier: MIT
"""report.html: what it says, that it stands alone, and that nobody's text becomes part of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import KNOBS, answer, policy, request, seconds_of, smooth

from tuner.declarations import KnobDecl
from tuner.experiment.loop import run_study
from tuner.optimize.space import Space
from tuner.report import comparison, contenders, live, page, svg
from tuner.report.conclusion import Conclusion, steps
from tuner.report.curves import curves
from tuner.report.importance import importance
from tuner.report.progress import Live, Progress
from tuner.run.trial import Status
from tuner.study import log
from tuner.study.contender import Contender, Difference, Kind
from tuner.study.explanation import Effect, Explanation, Interaction
from tuner.study.log import StudyData, StudyHeader, StudyLog, TrialRecord
from tuner.study.request import StudySummary
from tuner.study.verdict import Advice, Elsewhere, Verdict, decide
from tuner.text import short

HOSTILE = "</title></svg><script>alert(1)</script>$\\frac{@x}\x1b[2J"


def study(folder: Path, trials: int, knobs: list[KnobDecl] = KNOBS) -> StudyData:
    """Random configurations of which every tenth fails; the first is the default."""
    wanted = request(folder, budget=trials, policy=policy("paper", knobs), tuned=knobs)
    header = StudyHeader(
        format=log.FORMAT, created=log.now(), request=wanted, fingerprints=wanted.fingerprints,
        stream="x", lag=1, initial=trials,
    )  # fmt: skip
    rng, space, records = np.random.default_rng(1), Space(KNOBS), []
    default = {knob.name: knob.default for knob in KNOBS}
    for number in range(trials):
        plain = space.sample(rng) if number else default
        values = {k.name: v for k, v in zip(knobs, plain.values(), strict=True)}
        result = answer(wanted.trial(number, values), seconds_of(plain))
        if number % 10 == 7:
            bad = {"status": Status.failed, "objective": None, "cost": None}
            result = result.model_copy(update=bad | {"error": HOSTILE, "log": HOSTILE})
        records.append(TrialRecord(number, "initial", values, "", "", result))
    return StudyData(folder, header, records)


def concluded(data: StudyData, *, gain: bool = True) -> Conclusion:
    best: list[float | None] = [1200.0, 1210.0, 1190.0] if gain else [1000.0, 1010.0, 990.0]
    contenders = [
        Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[900, 910, 890]),
        Contender(kind=Kind.untuned, policy="paper", page_bytes=4096, values=[1000, 1010, None]),
        Contender(kind=Kind.tuned, policy="paper", page_bytes=4096, values=best),
    ]
    verdict = decide(
        contenders,
        objective="throughput",
        trials=len(data.done),
        policy="paper",
        seeds=(2, 3, 4),
        references={"all-fast": 1500.0},
        not_run=["hemem"],
    )
    places = [
        Elsewhere(where="1:4", gain=Difference(gain=0.1, half_width=0.02, pairs=3)),
        Elsewhere(where="1:16"),
    ]
    verdict = verdict.model_copy(update={"elsewhere": places})
    names = [knob.name for knob in data.header.request.tuned]
    assert data.best is not None
    values = data.best.knobs
    effects = [
        Effect(knob=name, default=knob.default, best=values[name], share=share, half_width=0.02)
        for name, share, knob in zip(names, (0.7, 0.3), KNOBS, strict=False)
    ]
    explanation = Explanation(
        effects=effects,
        minimal={name: values[name] for name in names[:2]},
        kept=0.97,
        interactions=[Interaction(knobs=names[:2], part=0.4, half_width=0.1)],
        seeds=[2, 3, 4],
        runs=20,
    )
    return Conclusion(verdict, explanation if gain else None, importance(data))


class Elements(HTMLParser):
    """The elements of a page: names, attributes, and the text of scripts by their id or type."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            given = dict(attrs)
            self._script = given.get("id") or given.get("type") or "plain"
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] += data


def written(data: StudyData, conclusion: Conclusion) -> str:
    page.write(data, conclusion)
    return (data.directory / page.PAGE).read_text()


def test_a_report_says_what_to_do_first_and_shows_why(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    text = written(data, concluded(data))
    assert "<h1>use best.yaml: 19" in text
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == [
        "What to do", "What was compared", "What made the difference", "Knobs",
        "The objective over each knob", "The search", "Failed trials",
    ]  # fmt: skip
    found = Elements(text)
    named = [attrs["aria-label"] for tag, attrs in found.found if tag == "svg"]
    assert named[:3] == [
        "what was compared, with intervals",
        "what it is worth with other amounts of fast memory",
        "what each change adds to the gain",
    ]
    assert "throughput over period" in named
    assert named[-2:] == [
        "the objective of each trial and the best so far",
        "all configurations: a line through each one's values",
    ]
    assert "40 ± 10 % of the gain comes only if period and threshold are changed together" in text
    assert "hemem" in text and "first-touch" in text
    good = sum(trial.succeeded for trial in data.done)
    # A mark of the history and a line through all knobs tell each trial when they are pointed at.
    assert text.count("<title>trial 3 (initial): ") == 2
    assert len(re.findall(r"<title>trial \d+ \(initial\): ", text)) == 2 * good
    assert (data.directory / page.BARS).read_bytes().startswith(b"\x89PNG")


def test_steps_begin_with_what_is_advised(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    verdict = concluded(data).verdict
    why, command = steps(data, verdict)[0]
    assert why == "Run what is advised again"
    assert command.startswith("tune sim --workload synthetic --config ")
    off = Contender(kind=Kind.off, policy="first-touch", page_bytes=4096, values=[2000.0] * 3)
    left = decide([off, *verdict.contenders[1:]], objective="throughput", trials=24, policy="paper")
    assert steps(data, left)[0] == ("Leave tiering off: nothing has to be installed", "")


def test_without_a_gain_nothing_claims_to_explain_one(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    text = written(data, concluded(data, gain=False))
    assert "What made the difference" not in text
    assert "share of the gain</th>" not in text  # a column of nothing
    assert "No share was measured" in text


def test_a_report_forbids_itself_the_network_and_all_scripts_but_its_own(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    found = Elements(written(data, concluded(data)))
    (policy,) = (
        attrs["content"]
        for tag, attrs in found.found
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    library = gzip.decompress(base64.b64decode(found.scripts["bokeh-script"])).decode()
    for script in (found.scripts["module"], library):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "Bokeh Contributors" in library  # its licence goes with it
    for _, attrs in found.found:
        for name in ("href", "src", "action", "xlink:href"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/png;base64,"))
        assert not [name for name in attrs if name.startswith("on")]


def test_the_explorer_has_every_trial_that_succeeded(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    found = Elements(written(data, concluded(data)))
    packed = gzip.decompress(base64.b64decode(found.scripts["bokeh-document"]))
    content = json.loads(packed)
    ids = {attrs.get("id") for _, attrs in found.found}
    (item,) = content["items"]
    assert set(item["roots"].values()) <= ids and len(item["roots"]) == 1 + len(KNOBS)
    text = packed.decode()
    assert all(f"{knob.name}" in text for knob in KNOBS)
    assert text.count('"initial"') == sum(trial.succeeded for trial in data.done)


def test_nobodys_text_becomes_part_of_the_page(tmp_path: Path) -> None:
    knobs = [knob.model_copy(update={"meaning": HOSTILE}) for knob in KNOBS]
    knobs[0] = knobs[0].model_copy(update={"name": f"period{HOSTILE}"})
    data = study(tmp_path, 24, knobs)
    for trial in data.trials:
        trial.origin = HOSTILE
    text = written(data, concluded(data))
    found = Elements(text)
    assert set(found.scripts) == {"bokeh-script", "bokeh-document", "module"}
    assert "alert" not in found.scripts["module"] and "\x1b" not in text
    assert text.count("alert(1)") > 20  # it is shown
    assert text.count("</title>") - text.count("<title>") == 0
    assert sum(tag == "svg" for tag, _ in found.found) == text.count("</svg>")


def test_many_trials_become_an_image_and_do_not_make_the_page_grow(tmp_path: Path) -> None:
    """MLflow keeps a copy of each report: `study.mlflow_mb` of tests/bench."""
    sizes = {}
    for trials in (400, 900):
        data = study(tmp_path / str(trials), trials)
        data.directory.mkdir()
        sizes[trials] = len(written(data, concluded(data)))
    assert svg.MOST_MARKS < 400
    assert sizes[900] - sizes[400] < 5 * 15_000


def test_the_same_study_is_drawn_the_same_way(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    conclusion = concluded(data)
    one, other = (
        svg.drawn("standing", lambda: contenders.standing(data, conclusion.verdict))
        for _ in range(2)
    )
    assert one is not None and one == other
    assert "var(--best)" in one and "#0969da" not in one and "<style" not in one


def test_without_a_default_values_are_shown_themselves(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    verdict = concluded(data).verdict
    no_default = [c for c in verdict.contenders if c.kind is not Kind.untuned]
    drawn = svg.drawn(
        "standing",
        lambda: contenders.standing(data, verdict.model_copy(update={"contenders": no_default})),
    )
    assert drawn is not None and "difference from the default" not in drawn and "ops/s" in drawn


def test_a_study_of_failures_has_a_report(tmp_path: Path) -> None:
    data = study(tmp_path, 2)
    for trial in data.trials:
        assert trial.result is not None
        bad = {"status": Status.failed, "objective": None, "cost": None, "error": "<b>"}
        trial.result = trial.result.model_copy(update=bad)
    nothing = Verdict(advice=Advice.nothing, headline="no result", objective="throughput", trials=2)
    text = written(data, Conclusion(nothing, None, importance(data)))
    assert "&lt;b&gt;" in text and "<svg" not in text and "<script" not in text


def test_a_curve_is_what_the_forest_says_of_the_best(tmp_path: Path) -> None:
    data = study(tmp_path, 60)
    period = KNOBS[0]
    found = curves(data, [period])[period.name]
    assert (found.x[0], found.x[-1]) == (period.min, period.max)
    best = data.best
    assert best is not None and best.objective is not None
    nearest = min(range(len(found.x)), key=lambda k: abs(found.x[k] - float(best.knobs["period"])))
    assert found.y[nearest] == pytest.approx(best.objective, rel=0.1)
    assert curves(study(tmp_path, 5), [period]) == {}


def summary(data: StudyData, verdict: Verdict, name: str) -> StudySummary:
    scenario = replace(data.header.request.scenario, policy=name)
    return StudySummary(
        study=f"mine-{name}", scenario=scenario, trials=24, failed=0, default_objective=1000.0,
        best_objective=1200.0, gain=0.2, best_config=None, verdict=verdict, explanation=None,
        importance={}, importance_forest={}, seconds=1.0,
    )  # fmt: skip


def test_a_comparison_shows_all_contenders_and_every_search_it_finds(tmp_path: Path) -> None:
    data = study(tmp_path, 24)
    verdict = concluded(data).verdict
    rival = Contender(kind=Kind.tuned, policy="rival", page_bytes=4096, values=[1300, 1310, 1290])
    other = verdict.model_copy(update={"contenders": [verdict.contenders[0], rival]})
    at = tmp_path / "mine-compared"
    at.mkdir()
    summaries = [summary(data, verdict, "paper"), summary(data, other, "rival")]
    comparison.write(at, summaries)
    text = (at / comparison.PAGE).read_text()
    assert "tuned rival (advised)" in text and re.search(r"1\.3 k ops/s\s+\+44\.4 %", text)
    assert "difference from first-touch" in text
    assert text.count("<svg") == 1  # no study is there
    (tmp_path / "mine-paper").mkdir()
    header = data.header.model_copy(update={"request": request(tmp_path, study="mine-paper")})
    with StudyLog(tmp_path / "mine-paper", header) as written_now:
        for trial in data.trials[:3]:
            assert trial.result is not None
            written_now.asked(trial.number, "initial", trial.knobs)
            written_now.finished(trial.result)
    comparison.write(at, summaries)
    assert (at / comparison.PAGE).read_text().count("<svg") == 2


def logged(folder: Path, data: StudyData, trials: int) -> Path:
    """The study as a log, with so many of its trials, and the next one running."""
    wanted = request(folder, study="mine", budget=len(data.trials))
    header = data.header.model_copy(update={"request": wanted})
    (folder / "mine").mkdir()
    with StudyLog(folder / "mine", header) as made:
        for trial in data.trials[:trials]:
            assert trial.result is not None
            made.asked(trial.number, "initial", trial.knobs)
            made.finished(trial.result)
        made.asked(trials, "initial", data.trials[trials].knobs)
    return folder / "mine"


def test_a_study_that_runs_has_a_page_that_reads_itself_again(tmp_path: Path, run: Any) -> None:
    folder = logged(tmp_path, study(tmp_path, 24), 15)
    checked = run("check", str(folder)).out
    with StudyLog(folder):  # whoever runs it is not disturbed
        told = run("report", "mine", "--out", str(tmp_path))
    assert told.code == 0 and told.out.strip() == str(folder / live.PAGE)
    text = (folder / live.PAGE).read_text()
    assert f'<meta http-equiv="refresh" content="{live.SECONDS}">' in text
    assert "<h1>running, 15 of 24 trials: best " in text
    assert "Wait for its end" in text and "Explore the trials" not in text
    assert "Shares of the gain are measured at the end." in text
    assert not (folder / page.PAGE).exists()
    assert not live.ended(log.load(folder))
    assert run("check", str(folder)).out == checked, "the page is no damage"


def test_what_is_no_study_has_no_page(tmp_path: Path, run: Any) -> None:
    told = run("report", "nothing", "--out", str(tmp_path))
    assert told.code == 2 and "no study at" in told.err
    folder = logged(tmp_path, study(tmp_path, 24), 3)
    told = run("report", str(folder), "-o", "x.png")
    assert told.code == 2 and "--output: the page of a study stays in its folder" in told.err
    (tmp_path / "s.csv").write_text("second,a\n0,1\n")
    told = run("report", str(tmp_path / "s.csv"), "--watch")
    assert told.code == 2 and "--watch: needs a study" in told.err


def test_the_terminal_tells_what_the_best_changed_and_what_runs(tmp_path: Path) -> None:
    data = study(tmp_path, 12)
    progress = Progress(data.header.request)
    for trial in data.trials[:11]:
        progress.add(trial)
    running = TrialRecord(11, "model", data.trials[11].knobs, "")
    first, second, third = Live(progress, [*data.trials[:11], running])._caption()
    assert first.startswith("best ") and first.endswith("; 1 trial failed")
    assert progress.best is not None
    value = short(progress.best.knobs["period"])
    assert second.startswith(f"trial {progress.best.number} changes period 100 -> {value}, ")
    assert second.endswith(" and 1 more") or second.count(" -> ") <= 4
    assert third == "running: 11"


@pytest.mark.slow
def test_a_report_is_made_again_from_the_log_alone(tmp_path: Path, run: Any) -> None:
    run_study(
        request(tmp_path, budget=12, mlflow_uri=f"sqlite:///{tmp_path / 'm.db'}"), runner=smooth
    )
    folder = tmp_path / "synthetic-study"
    before = (folder / page.PAGE).read_text()
    (folder / page.PAGE).unlink()
    told = run("report", str(folder), "--tables", str(tmp_path / "t.csv"))
    assert told.code == 0 and told.out.splitlines()[-1] == str(folder / page.PAGE)
    packed = re.compile('id="bokeh-document">[^<]*<')  # Bokeh numbers its objects
    assert packed.sub("", (folder / page.PAGE).read_text()) == packed.sub("", before)
    names, *rows = (tmp_path / "t.csv").read_text().splitlines()
    assert names == 'contender,"throughput, ops/s",over the default'
    assert {"all-fast", "best", "default"} <= {row.partition(",")[0] for row in rows}
    assert live.ended(log.load(folder))
    (folder / live.PAGE).write_text("running")
    told = run("report", str(folder), "--watch", "--json")  # there is nothing to wait for
    assert 'content="0; url=report.html"' in (folder / live.PAGE).read_text()
    assert told.json == {"page": str(folder / page.PAGE), "ended": True}
