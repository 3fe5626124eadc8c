# SPDX-License-Identifier: MIT
"""Studies from Python, by the code of the commands:

    import tuner
    study = tuner.tune("gups", policy="freqtier", budget=60, ratio="1:4")
    study.verdict.headline, study.best, study.explain()

A program needs `if __name__ == "__main__":` around it, since trials run in processes of their own.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from tuner import cli, foreign
from tuner.commands.run import study_request
from tuner.declarations import KnobValue
from tuner.errors import UserError
from tuner.experiment.loop import run_study
from tuner.experiment.recall import recall
from tuner.report.conclusion import Conclusion, text
from tuner.report.mechanism import mechanism
from tuner.run import limits
from tuner.study import best as best_file
from tuner.study import log
from tuner.study.explanation import Explanation
from tuner.study.log import StudyLog
from tuner.study.verdict import Verdict

OUT = "results"


def tune(
    workload: str,
    *,
    policy: str | None = None,
    budget: int | str = 100,
    out: str | Path = OUT,
    resume: bool = False,
    **options: str | int | float | bool | None,
) -> Study:
    """Runs or resumes a study, as `tune run` does, and returns it.

    Args:
        workload: its name or file.
        policy: a policy's name; by default that of `tune run`.
        budget: trials, or "auto".
        out: folder of studies.
        resume: whether to go on with a study of the same name, if there is one.
        options: those of `tune run`, with `_` for `-`: `ratio="1:4"`, `fast_gib=16`, `workers=4`,
            `machine="testbed.yaml"`, `rivals="all"`, `explain=False`. None is as if left out.

    Raises:
        UserError: an option is not one of `tune run`, or has a value that it cannot have; or
            anything for which the command ends with a message.
    """
    given = {"workload": workload, "policy": policy, "budget": budget, "out": out, "resume": resume}
    words = [word for name, value in (given | options).items() for word in _words(name, value)]
    with foreign.kept_out():
        request = study_request(cli.arguments_of(["run", *words]))
        limits.check(request.workers, cluster=request.ray_address is not None)
        run_study(request.model_copy(update={"json_output": True}))
    return Study(Path(request.out) / request.study)


def load(study: str | Path, out: str | Path = OUT) -> Study:
    """A study by the path of its folder, or by its name in `out`. UserError if there is none."""
    folder = log.folder_of(str(study), Path(out))
    if not log.exists(folder):
        raise UserError(log.missing(folder))
    return Study(folder)


def _words(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None:
        return []
    if value is True:
        return [flag]
    if value is False:
        return ["--no-explain"] if name == "explain" else []
    return [flag, str(value)]


class Study:
    """A study as it is on disk now. Of one that has not ended there are trials, and no verdict."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with StudyLog(folder) as study:
            self._conclusion = recall(study)
            self._data = study.data

    def __repr__(self) -> str:
        state = self.verdict.headline if self._conclusion else "it has not ended"
        return f"<study {self.name}: {len(self.trials)} trials; {state}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        if self._conclusion is None:
            return f"<p>{html.escape(repr(self))}</p>"
        return f"<pre>{html.escape(text(self._data, self._conclusion))}</pre>"

    @property
    def name(self) -> str:
        return self._data.header.request.study

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Of each trial that has ended, in order: number, where its configuration came from, its
        status, its objective (in the unit of the workload's; None if it failed) and each tuned
        knob by `knob.NAME`. `pandas.DataFrame(study.trials)` is a table of them."""
        return [
            {
                "number": trial.number,
                "origin": trial.origin,
                "status": trial.result.status.value,
                "objective": trial.objective,
                **{f"knob.{name}": value for name, value in trial.knobs.items()},
            }
            for trial in self._data.done
            if trial.result is not None
        ]

    @property
    def best(self) -> dict[str, KnobValue]:
        """Every knob of the best configuration. UserError if no trial succeeded."""
        return best_file.read(self.config).knobs

    @property
    def config(self) -> Path:
        """best.yaml, which `tune sim --config`, `tune apply` and `tune check` take. UserError if no
        trial succeeded."""
        return best_file.path_of(str(self.folder.absolute()), self.folder.parent)

    @property
    def verdict(self) -> Verdict:
        """What to do. UserError if the study has not ended."""
        return self._ended().verdict

    def explain(self) -> Explanation | None:
        """What made the difference, measured: shares of the gain, alone and together; None if there
        is no gain to explain, or the study was run with `explain=False`. UserError if it has not
        ended."""
        return self._ended().explanation

    def mechanism(self) -> list[str]:
        """How the best configuration gains what it gains, as sentences."""
        return mechanism(self._data)

    @property
    def report(self) -> Path:
        """report.html."""
        return self.folder / "report.html"

    def _ended(self) -> Conclusion:
        if self._conclusion is None:
            raise UserError(
                f"{self.folder}: the study has not ended; `tuner.tune(..., resume=True)` goes on"
            )
        return self._conclusion
