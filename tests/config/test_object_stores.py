"""`data_path` and `storage`: s3:// and what speaks S3 is taken, anything else is refused where it stands."""

from __future__ import annotations

import pytest

from tests.config.pipelines import VALID, Folder, changed
from truecut.lake import lake_of
from truecut.object_store import Storage

REFUSED = {
    "another store": ("az://lakes/acme", "no object store that Truecut knows"),
    "Hadoop's word": ("s3a://lakes/acme", "did you mean s3://?"),
    "a URL": ("https://lakes/acme", "no object store that Truecut knows"),
    "a file's URL": ("file:///lakes/acme", "write the path alone"),
    "no bucket": ("s3:///acme", "expected s3://BUCKET/PREFIX"),
    "a key in a query": ("s3://lakes/acme?s3_secret_access_key=hush", "credentials go into `storage`"),
    "a key before the bucket": ("s3://id:hush@lakes/acme", "credentials go into `storage`"),
}
WRONG_STORAGE = {
    "{key_id: a}": "TC1014  sinks.acme.storage: key_id and secret belong together",
    "{endpoint: 'http://h:1', use_ssl: true}": "TC1014  sinks.acme.storage: endpoint and use_ssl contradict",
    "{endpoint: 'h/path'}": "TC1014  sinks.acme.storage.endpoint: expected HOST:PORT",
    "{endpoint: 'id:hush@h'}": "TC1014  sinks.acme.storage.endpoint: expected HOST:PORT",
    "{region: 'eu {x}'}": "TC1014  sinks.acme.storage.region: expected a region's name",
    "{regionn: eu}": 'TC1010  sinks.acme.storage.regionn: unknown key; did you mean "region"?',
    "{url_style: host}": "TC1012  sinks.acme.storage.url_style: expected path or vhost",
}


def in_store(data_path: str, storage: str = "{}") -> str:
    """The sink acme, elsewhere; `storage` stands on line 19."""
    return changed(VALID, "data_path: ./acme-data", f'data_path: "{data_path}"\n      storage: {storage}')


@pytest.mark.parametrize("case", REFUSED)
def test_any_other_place_is_refused(folder: Folder, case: str) -> None:
    """At source and sink, with the line, and without what may be a secret."""
    data_path, reason = REFUSED[case]
    for old in ("./source-data", "./acme-data"):
        (line,) = folder.lines(changed(VALID, f"data_path: {old}", f'data_path: "{data_path}"'))
        assert "TC1014" in line
        assert "data_path: " in line
        assert reason in line
        assert "hush" not in line


@pytest.mark.parametrize("storage", WRONG_STORAGE)
def test_a_wrong_storage_is_one_finding_at_its_place(folder: Folder, storage: str) -> None:
    """What contradicts itself, or is no address."""
    text = in_store("s3://lakes/acme", storage)
    (line,) = folder.lines(text)
    assert line.startswith(f"p.yaml:19  {WRONG_STORAGE[storage]}"), line
    assert "hush" not in line


def test_storage_is_for_stores_alone(folder: Folder) -> None:
    """Beside a folder it would mean nothing."""
    (line,) = folder.lines(in_store("./acme-data", "{region: eu-west-1}"))
    assert "storage: is for a data_path that begins with s3://" in line


@pytest.mark.parametrize(
    "catalog", ["s3://lakes/acme.ducklake", "sqlite:s3://lakes/acme.db", "https://h/a.db"]
)
def test_a_catalog_is_no_object(folder: Folder, catalog: str) -> None:
    """Catalogs are files of this machine, or in PostgreSQL."""
    (line,) = folder.lines(changed(VALID, "./acme.ducklake", f'"{catalog}"'))
    assert "catalog: not a catalog" in line


def test_what_is_left_out_follows_from_the_rest(folder: Folder) -> None:
    """An endpoint of one's own is spoken to by path, and as its protocol says; secrets stay secrets."""
    own = "{endpoint: 'http://127.0.0.1:9000/', key_id: '${KEY}', secret: '${HUSH}'}"
    pipeline = folder.load(in_store("s3://lakes/acme", own), {"KEY": "id", "HUSH": "hush"})
    storage = lake_of(pipeline.sinks[0].address).storage
    assert storage is not None
    assert (storage.endpoint, storage.url_style, storage.use_ssl) == ("127.0.0.1:9000", "path", False)
    assert dict(storage.options())["SECRET"] == "hush"
    assert "hush" not in repr(pipeline)
    plain = folder.load(in_store("s3://lakes/acme", "{region: eu-west-1}"))
    assert lake_of(plain.sinks[0].address).storage == Storage(region="eu-west-1")
