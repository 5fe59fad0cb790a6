"""A private Kafka, as durable as our log: brokers that sync every message set before they answer.

Three of them keep two copies of a topic, and a write is answered once both are on disk
(`min.insync.replicas=2`, `acks=all`), as a replicated log's is; one alone keeps one, as a folder does. The
jars come from Maven once, by the Ivy that Spark brings, into a folder of the user's cache. The JVM's options
are those of Kafka's own start script. Producer and consumer are `confluent-kafka` (librdkafka).
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from benchmarks.journal.logs import Write
from tests.maven import jars, java
from tests.ports import free_port

VERSION = "4.3.1"
START_S = 180.0  # three JVMs at once, on a machine that may be busy
_MESSAGE_BYTES_MAX = 16 << 20
_POLL_S = 1.0
_CRITICAL = 2  # of syslog: what a client retries is not said
_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True)
class KafkaLog:
    """A topic with one partition."""

    address: str
    topic: str
    served_by: tuple[int, ...]

    @contextmanager
    def writing(self) -> Iterator[Write]:
        producer = Producer(
            {
                **_client(self.address),
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "none",
                "linger.ms": 0,
                "message.max.bytes": _MESSAGE_BYTES_MAX,
            }
        )
        yield lambda payloads, window: self._produce(producer, payloads, window)

    def _produce(self, producer: Producer, payloads: Iterable[bytes], window: int) -> None:
        under_way = 0

        def delivered(error: KafkaError | None, _: Any) -> None:
            nonlocal under_way
            assert error is None, error
            under_way -= 1

        for payload in payloads:
            while under_way == window:
                producer.poll(_POLL_S)
            producer.produce(self.topic, payload, partition=0, on_delivery=delivered)
            under_way += 1
        while under_way:
            producer.poll(_POLL_S)

    def follow(self) -> Iterator[bytes]:
        consumer = Consumer(
            {
                **_client(self.address),
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,  # as our readers do
                "fetch.message.max.bytes": _MESSAGE_BYTES_MAX,
            }
        )
        partition = TopicPartition(self.topic, 0, 0)
        consumer.get_watermark_offsets(partition, timeout=START_S)
        return _records(consumer, partition)


def _records(consumer: Consumer, partition: TopicPartition) -> Iterator[bytes]:
    with closing(consumer):
        consumer.assign([partition])
        while True:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            payload = message.value()
            assert message.error() is None, message.error()
            assert isinstance(payload, bytes)
            yield payload


@dataclass(frozen=True)
class Brokers:
    """A running Kafka."""

    address: str  # of all of them
    copies: int
    processes: tuple[int, ...]

    def make(self, topic: str) -> KafkaLog:
        """A new topic, which is there when this returns."""
        admin = AdminClient(_client(self.address))
        config = {"flush.messages": "1", "min.insync.replicas": str(self.copies)}
        new = NewTopic(topic, num_partitions=1, replication_factor=self.copies, config=config)
        admin.create_topics([new])[topic].result()
        return KafkaLog(self.address, topic, self.processes)


@dataclass(frozen=True)
class _Place:
    """Where a broker is, and the controller within it."""

    id: int
    folder: Path
    broker: str
    controller: str

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"


@contextmanager
def kafka(folder: Path, *, brokers: int, copies: int) -> Iterator[Brokers]:
    """Brokers on free ports, each a controller, too, with their data in this folder."""
    classes = f"{jars('org.apache.kafka', 'kafka_2.13', VERSION, name='kafka')}/*"
    places = [_Place(n, folder / str(n), _free(), _free()) for n in range(1, brokers + 1)]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")  # no option
    with ExitStack() as stack:
        running = [stack.enter_context(_broker(place, places, copies, classes, cluster)) for place in places]
        address = ",".join(place.broker for place in places)
        _wait_for(address, places, running)
        yield Brokers(address, copies, tuple(one.pid for one in running))


@contextmanager
def _broker(
    place: _Place, places: Sequence[_Place], copies: int, classes: str, cluster: str
) -> Iterator[subprocess.Popen[bytes]]:
    place.folder.mkdir(parents=True)
    place.settings.write_text(_settings(place, places, copies))
    formatting = [java(), "-cp", classes, "kafka.tools.StorageTool", "format", "-t", cluster]
    subprocess.run([*formatting, "-c", str(place.settings)], check=True, capture_output=True)
    with place.log.open("wb") as log:
        running = subprocess.Popen(
            [java(), *_JVM, "-cp", classes, "kafka.Kafka", str(place.settings)], stdout=log, stderr=log
        )
    try:
        yield running
    finally:
        running.kill()  # its data is thrown away
        running.wait()


def _free() -> str:
    return f"127.0.0.1:{free_port()}"


def _settings(place: _Place, places: Sequence[_Place], copies: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": place.id,
        "controller.quorum.voters": ",".join(f"{one.id}@{one.controller}" for one in places),
        "listeners": f"PLAINTEXT://{place.broker},CONTROLLER://{place.controller}",
        "advertised.listeners": f"PLAINTEXT://{place.broker}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": place.folder / "data",
        "log.flush.interval.messages": 1,
        "min.insync.replicas": copies,
        "message.max.bytes": _MESSAGE_BYTES_MAX,
        "replica.fetch.max.bytes": _MESSAGE_BYTES_MAX,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": copies,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _wait_for(address: str, places: Sequence[_Place], running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until all of them answer, and say that they sync every message set."""
    admin = AdminClient(_client(address))
    deadline = time.monotonic() + START_S
    while all(one.poll() is None for one in running) and time.monotonic() < deadline:
        try:
            if len(admin.list_topics(timeout=1.0).brokers) == len(places):
                for place in places:
                    _require_syncs(admin, place)
                return
        except KafkaException:
            pass
        time.sleep(0.2)
    raise SystemExit("Kafka did not start:\n" + "".join(place.log.read_text()[-1000:] for place in places))


def _require_syncs(admin: AdminClient, place: _Place) -> None:
    (settings,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(place.id))]).values()
    assert settings.result()["log.flush.interval.messages"].value == "1"


def _client(address: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": address, "log_level": _CRITICAL}
