"""`truecut certificate list|show|export`: what was certified, for people and for auditors."""

from __future__ import annotations

import os
from pathlib import Path

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import ExitCode, TruecutError


@click.group()
def command() -> None:
    """What was certified: list, show, export."""


@command.command("list")
@pipeline_argument
@click.option("--json", "as_json", is_flag=True, help="As JSON (truecut.certificates/v1) on stdout.")
def list_(file: Path, as_json: bool) -> None:
    """The certificates of FILE, oldest first."""
    import json

    from truecut.certificate.issue import certificate_paths

    documents = [json.loads(path.read_bytes()) for path in certificate_paths(_folder(file))]
    if as_json:
        from truecut.cli.output import print_json

        print_json({"schema": "truecut.certificates/v1", "certificates": documents})
        return
    for one in documents:
        copies = one["copies"]["rows"]
        click.echo(f"{one['number']:>6}  {one['issued_at']}  {one['frontier']}  {copies} copies")
    if not documents:
        click.echo("no certificate has been issued yet")


@command.command()
@pipeline_argument
@click.option("--number", type=int, help="Which one; left out: the newest.")
def show(file: Path, number: int | None) -> None:
    """A certificate of FILE in words: what it claims of each copy, and what it does not say."""
    from truecut.certificate.issue import certificate_paths, read_issued
    from truecut.certificate.words import shown

    paths = [path for path in certificate_paths(_folder(file)) if number in (None, int(path.stem))]
    if not paths:
        raise _none(file)
    click.echo("\n".join(shown(read_issued(paths[-1]))))


@command.command()
@pipeline_argument
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: PIPELINE.zip.")
def export(file: Path, output: Path | None) -> None:
    """One archive with the certificates of FILE, their evidence, the public key and a page that explains them
    (index.html); never the secret or the signing key."""
    import zipfile

    from truecut.certificate.issue import COPIES, certificate_paths, read_issued
    from truecut.certificate.segment import EVIDENCE
    from truecut.certificate.sign import PUBLIC
    from truecut.certificate.words import page

    folder = _folder(file)
    found = certificate_paths(folder)
    if not found:
        raise _none(file)
    explained = page(read_issued(found[-1]), certificates=len(found))
    found += [folder / PUBLIC, *sorted((folder / COPIES).glob("*.parquet"))]
    found += sorted((folder / EVIDENCE).glob("*/*.parquet"))
    target = output or Path(f"{file.stem}-certificates.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in found:
            archive.write(path, path.relative_to(folder))
        archive.writestr("index.html", explained)
    click.echo(
        f"wrote {target}: {len(found)} files and index.html, which explains them; "
        "the auditor also needs the secret, by another way"
    )


def _folder(file: Path) -> Path:
    from truecut.config.load import load

    settings = load(file, environ=os.environ).certificate
    if settings is None:
        raise TruecutError(
            "TC7004",
            "this pipeline issues no certificates",
            fix="Add a section `certificate` to the pipeline file, and run it.",
            exit_code=ExitCode.WRONG_INPUT,
        )
    return settings.path


def _none(file: Path) -> TruecutError:
    return TruecutError(
        "TC7005",
        "there is no such certificate",
        fix=f"`truecut certificate list {file}` shows those that were issued.",
        exit_code=ExitCode.FAILED,
    )
