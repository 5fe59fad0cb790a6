"""`truecut certificate list|show|export|rotate`: what was certified, for people and for auditors."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from truecut.cli.parameters import pipeline_argument
from truecut.errors import ExitCode, TruecutError


@click.group()
def command() -> None:
    """What was certified: list, show, export; and the key that signs: rotate."""


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
    from truecut.certificate.issue import certificate_paths, read_issued, with_units
    from truecut.certificate.words import shown

    folder = _folder(file)
    paths = [path for path in certificate_paths(folder) if number in (None, int(path.stem))]
    if not paths:
        raise _none(file)
    click.echo("\n".join(shown(with_units(folder, read_issued(paths[-1])))))


@command.command()
@pipeline_argument
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: FILE's name, -certificates.zip.",
)
def export(file: Path, output: Path | None) -> None:
    """One archive with the certificates of FILE, their evidence, the public key and a page that explains them
    (index.html); never the secret or the signing key."""
    import zipfile

    from truecut.certificate.issue import COPIES, certificate_paths, read_issued, with_units
    from truecut.certificate.segment import EVIDENCE
    from truecut.certificate.sign import PUBLIC
    from truecut.certificate.words import page

    folder = _folder(file)
    found = certificate_paths(folder)
    if not found:
        raise _none(file)
    explained = page(with_units(folder, read_issued(found[-1])), certificates=len(found))
    # A run may trim meanwhile: evidence first, then the certificate, the oldest first. What is written in the
    # opposite order is a chain with all that its certificates name.
    files = [*sorted((folder / EVIDENCE).glob("*/*.parquet")), *sorted((folder / COPIES).glob("*.parquet"))]
    files += [*reversed(found), folder / PUBLIC]
    written = 0
    target = output or Path(f"{file.stem}-certificates.zip")
    try:
        archive = zipfile.ZipFile(target, "w", zipfile.ZIP_STORED)
    except OSError as error:
        raise TruecutError(
            "TC7011",
            f"{target} cannot be written ({error.strerror})",
            fix="Choose another place with --output.",
            exit_code=ExitCode.WRONG_INPUT,
        ) from None
    with archive:
        for path in files:
            with suppress(FileNotFoundError):
                archive.write(path, path.relative_to(folder))
                written += 1
        archive.writestr("index.html", explained)
    click.echo(
        f"wrote {target}: {written} files and index.html, which explains them; "
        "the auditor also needs the secret, by another way"
    )


@command.command()
@pipeline_argument
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="An Ed25519 key in PEM; left out: a new one is made.",
)
def rotate(file: Path, key: Path | None) -> None:
    """Let another key sign the certificates of FILE, by a hand-over that the present one signs."""
    import secrets

    from truecut.config.load import load
    from truecut.runtime.rotation import rotate as hand_over

    folder = _folder(file)
    runner = f"rotate-{secrets.token_hex(4)}"
    done = hand_over(load(file, environ=os.environ), folder=folder, runner=runner, given=key)
    click.echo(
        f"certificate {done.number} hands over; the new public key is the last in {folder / 'public.pem'}"
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
