# SPDX-License-Identifier: MIT
"""A pool of Ray's workers: of a local instance of our own, or of a cluster."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tuner.errors import UserError
from tuner.run import cluster, local_ray
from tuner.run.cluster import Node, Watch, is_node
from tuner.run.local_ray import LocalRay, job_config, kept_handler
from tuner.run.pool import (
    MOST_HOSTS,
    SILENT_SECONDS,
    Flight,
    PoolLost,
    Runner,
    execute,
    hard_limit,
    line,
    overdue,
)
from tuner.run.trial import Status, Trial, TrialResult

logger = logging.getLogger(__name__)


def _on_node(runner: Runner, trial_json: str, repeated: bool) -> tuple[str, str]:
    """Runs in Ray's worker: the node's identity, and what `execute` returns."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return str(node), execute(runner, trial_json, repeated)


class RayPool:
    """Workers of a local Ray instance of our own, or of the cluster at `address`.

    A process that already has Ray initialised (a notebook, a test) shares it and keeps it.
    """

    def __init__(self, runner: Runner, *, workers: int, address: str | None = None) -> None:
        (local_ray if address is None else cluster).prepare_environment()
        import ray

        self._ray = ray
        self.workers = workers
        self._address = address
        self._local: LocalRay | None = None
        self._node: Node | None = None
        self._flights: dict[Any, Flight] = {}
        self._owner = not ray.is_initialized()
        if self._owner:
            self._connect(address)
        own: dict[str, float] = dict(getattr(runner, "resources", {}))
        self._takes = {"CPU": 1.0, **own}
        if own and address is not None:
            self._demand(own)
        # max_retries: Ray would run a trial that kills its worker three more times.
        self._execute = ray.remote(num_cpus=1, max_retries=0, resources=own)(_on_node)
        self._runner = ray.put(runner)
        self._unfit: set[str] = set()  # nodes that have failed trials for reasons of their own
        self._seen = time.monotonic()  # that the cluster had a CPU for each trial
        self._watch = Watch()
        self._look = self._seen + SILENT_SECONDS

    def _connect(self, address: str | None) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            try:
                self._local = LocalRay(self._ray, workers=self.workers, **quiet)
            except UserError:
                raise
            except Exception as error:  # Ray raises anything here, also a plain Exception
                self._ray.shutdown()
                raise UserError(
                    f"Ray does not start here: {line(error).splitlines()[0]}; it needs a short "
                    "TMPDIR with some room; --workers 1 runs without Ray"
                ) from error
            return
        try:
            with kept_handler():
                if not is_node(address):
                    self._node = Node(address)
                self._ray.init(address=address, job_config=job_config(), **quiet)
        except ConnectionError as error:
            self._leave()
            raise UserError(f"no Ray cluster answers at {address}: {line(error)}") from error
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        if self._node is not None:
            self._node.close()

    def submit(self, trial: Trial) -> None:
        self._launch(Flight(trial, time.monotonic()))

    def _launch(self, flight: Flight) -> None:
        remote = self._execute.options(**self._placed(flight))
        self._flights[remote.remote(self._runner, *flight.message())] = flight

    def _placed(self, flight: Flight) -> dict[str, Any]:
        """Ray's options: none, unless there are nodes to be avoided, and others."""
        if not self._unfit:
            return {}
        rooms = {node["NodeID"]: self._room(node) for node in self._nodes()}
        fit = {node: have for node, have in rooms.items() if have >= 1 and node not in self._unfit}
        if not fit:
            self._unfit.clear()  # they may have recovered, and nothing is left to lose
            return {}
        busy = Counter(each.node for each in self._flights.values())
        flight.node = min(fit, key=lambda node: busy[node] / fit[node])
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(flight.node, soft=False)}

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _room(self, node: dict[str, Any]) -> float:
        """How many trials a node can run at a time."""
        have: dict[str, float] = node["Resources"]
        return min(have.get(name, 0.0) / needed for name, needed in self._takes.items())

    def _demand(self, resources: Mapping[str, float]) -> None:
        """UserError if no node has them: its trials would wait for ever."""
        if not any(self._room(node) >= 1 for node in self._nodes()):
            wanted = json.dumps(dict(resources))
            self.close()
            raise UserError(
                f"no node of the Ray cluster has {', '.join(resources)}: start Ray with "
                f"`--resources '{wanted}'` on each host that may run such trials"
            )

    def wait(self, timeout: float) -> list[TrialResult]:
        if not self._flights:
            self._seen = time.monotonic()
            return []
        self._refuse_dead()
        clock = time.monotonic()
        left = min(f.started + hard_limit(f.trial) - clock for f in self._flights.values())
        ready, _ = self._ray.wait(
            list(self._flights), num_returns=1, timeout=max(0.0, min(timeout, left))
        )
        self._refuse_dead()  # it may be why they are ready
        results = [self._collect(reference) for reference in ready]
        self._tell_silent(bool(ready))
        self._excuse_waiting()
        clock = time.monotonic()
        for reference, flight in list(self._flights.items()):
            limit = hard_limit(flight.trial)
            if clock - flight.started >= limit:
                del self._flights[reference]
                self._ray.cancel(reference, force=True)
                results.append(flight.without_result(Status.timeout, overdue(limit)))
        return [result for result in results if result is not None]

    def _tell_silent(self, heard: bool) -> None:
        """Says which hosts do not answer, when nothing has been heard for a while."""
        now = time.monotonic()
        if not heard and now < self._look:
            return
        self._look = now + SILENT_SECONDS
        if heard or self._address is None:
            return
        for host in self._watch.look(self._nodes()):
            logger.warning(
                "host %s does not answer; if it stays away, Ray gives it up in a minute or two, "
                "and its trials start again on others",
                host,
            )

    def _excuse_waiting(self) -> None:
        """While a cluster has room for fewer trials than we have, some of them wait for it, and
        which is not known: the time counts for none."""
        now = time.monotonic()
        if (
            self._address is not None
            and any(f.trial.deadline_seconds for f in self._flights.values())
            and sum(map(self._room, self._nodes())) < len(self._flights)
        ):
            for flight in self._flights.values():
                flight.started += now - max(self._seen, flight.started)
        self._seen = now

    def _refuse_dead(self) -> None:
        if self._local is not None and not self._local.alive:
            raise PoolLost(
                "the local Ray instance has died (was it killed, or short of memory?); "
                "repeat the command to continue; `tune run` also needs --resume"
            )

    def _collect(self, reference: Any) -> TrialResult | None:
        """The result, or None if the trial was started again because its process or host died, or
        its host could not run it."""
        flight = self._flights.pop(reference)
        errors = self._ray.exceptions
        try:
            node, answer = self._ray.get(reference)
        except errors.WorkerCrashedError:
            reason = "its worker process died (killed, out of memory, or a fault in the engine)"
            if flight.repeated:
                return flight.without_result(Status.crashed, f"{reason}, twice")
            self._launch(flight.again(reason))
            return None
        except (
            errors.NodeDiedError,
            errors.LocalRayletDiedError,
            errors.OutOfMemoryError,
            errors.TaskUnschedulableError,
        ) as error:
            reason = f"its host failed ({type(error).__name__})"
            result = flight.without_result(Status.crashed, reason)
        except errors.RayError as error:
            return flight.without_result(Status.crashed, line(error).splitlines()[0])
        else:
            result = TrialResult.model_validate_json(answer)
            if not result.host_failed or self._local is not None:  # there is no other host
                return result
            reason = f"{result.host}: {result.error}"
            self._unfit.add(node)
        if flight.hosts + 1 == MOST_HOSTS:
            return result
        self._launch(flight.again(reason, host=True))
        return None

    def close(self) -> None:
        if self._local is None or self._local.alive:
            for reference in self._flights:
                self._ray.cancel(reference, force=True)
        self._flights.clear()
        if self._local is not None:
            self._local.close()
        elif self._owner:
            self._ray.shutdown()
        self._leave()
