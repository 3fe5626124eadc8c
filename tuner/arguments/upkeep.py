# SPDX-License-Identifier: MIT
"""The arguments of the commands that list and look after what there is."""

from __future__ import annotations

import argparse

from tuner.arguments.options import (
    address,
    count,
    json,
    mlflow_uri,
    out,
)
from tuner.limits import OPTUNA, SMAC3


def export(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes a study (its request, log, time series, best configuration, report and pictures) "
        "to one file, which `tune unpack` reads. The same study gives the same bytes. Recordings "
        "and documents of your own are not included: their contents are noted, but --resume needs "
        "the files; the command names them. A study that a process is writing is refused. With "
        "--format it writes a copy of the trials for other viewers, of a running study as well."
    )
    parser.add_argument("study", metavar="STUDY", help="name, or path of its folder")
    parser.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="file to write (default: STUDY.tar.gz in the current folder; by --format "
        "STUDY.optuna.db, or the folder STUDY.smac3)",
    )
    parser.add_argument(
        "--format",
        choices=(OPTUNA, SMAC3),
        help="what other viewers read: `optuna`, an SQLite storage for optuna-dashboard; `smac3`, "
        "the folder of a SMAC3 run for DeepCAVE (default: the study as one file)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    out(parser)
    json(parser)


def unpack(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads a study from a file of `tune export` into a folder of studies, and adds it to the "
        "MLflow store. Everything is checked first: a file that is damaged, too large or not of "
        "`tune export`, and a study that exists, are refused, and nothing is left behind."
    )
    parser.add_argument("file", metavar="FILE", help="a file of `tune export`")
    out(parser)
    mlflow_uri(parser)
    json(parser)


def doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints versions, paths and their free space, limits, optional tools, Ray's network, the "
        "MLflow store and clocks, each with what is wrong; starts a container, if there is the "
        "image. Exit code 1 if something would stop a study. Asks a cluster and an MLflow server "
        "if they are named, for two minutes each at most."
    )
    out(parser)
    parser.add_argument(
        "--ray-address",
        type=address,
        metavar="HOST:PORT",
        help="whether this Ray cluster lets us in, and which CPUs, engine and Ray its nodes have",
    )
    parser.add_argument(
        "--mlflow-uri",
        type=address,
        metavar="URI",
        help="whether this MLflow server answers, takes our login and can be written; what is "
        "written is removed",
    )
    parser.add_argument(
        "--workload",
        "-w",
        metavar="W",
        help="of your own: whether its recordings are here, and on all nodes of the cluster",
    )
    json(parser)


def knobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY")
    json(parser)


def machines(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the machines, or prints one of them with the values that it inherits from "
        "its base, each with the place where it is written."
    )
    parser.add_argument("machine", nargs="?", metavar="M", help="a name, or the path of a file")
    json(parser)


def cache(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists or clears the access streams in TIERTUNE_CACHE (default: ~/.cache/tiertune). The "
        "cache is kept below TIERTUNE_CACHE_GIB (default: 32): streams that this engine's kernels "
        "would not make are removed first, then the least recently used."
    )
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    parser.add_argument("--stale", action="store_true", help="clear only what other kernels made")
    json(parser)


def ui(parser: argparse.ArgumentParser) -> None:
    out(parser)
    mlflow_uri(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=count(65535), default=5000, help="port (default: %(default)s)"
    )


def repair(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Adds what the MLflow store lacks of the folder's studies, from their logs, which hold "
        "everything: for a store that was deleted, damaged or unreachable. Nothing is added twice. "
        "A damaged OUT/mlflow.db is kept under another name and replaced by a new one."
    )
    out(parser)
    mlflow_uri(parser)
    json(parser)
