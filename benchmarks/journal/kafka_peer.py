"""A private Kafka, as durable as our log: one broker that syncs every message set before it answers.

Its jars come from Maven once, by the Ivy that Spark brings, into a folder of the user's cache. The JVM's
options are those of Kafka's own start script. Producer and consumer are `confluent-kafka` (librdkafka).
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from benchmarks.journal.logs import Write
from tests.maven import jars, java
from tests.ports import free_port

VERSION = "4.3.1"
START_S = 60.0
_MESSAGE_BYTES_MAX = 16 << 20
_POLL_S = 1.0
_CRITICAL = 2  # of syslog: what a client retries is not said
_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True)
class KafkaLog:
    """A topic with one partition."""

    address: str
    topic: str

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
class Broker:
    """A running Kafka."""

    address: str

    def make(self, topic: str) -> KafkaLog:
        """A new topic."""
        admin = AdminClient(_client(self.address))
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result()
        return KafkaLog(self.address, topic)


@contextmanager
def kafka(folder: Path) -> Iterator[Broker]:
    """A broker on a free port, with its data in this folder."""
    classes = f"{jars('org.apache.kafka', 'kafka_2.13', VERSION, name='kafka')}/*"
    folder.mkdir(parents=True)
    address, controller = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = folder / "server.properties"
    settings.write_text(_settings(folder / "data", address, controller))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatting = [java(), "-cp", classes, "kafka.tools.StorageTool", "format", "-t", cluster]
    subprocess.run([*formatting, "-c", str(settings)], check=True, capture_output=True)
    with (folder / "log.txt").open("wb") as log:
        running = subprocess.Popen(
            [java(), *_JVM, "-cp", classes, "kafka.Kafka", str(settings)], stdout=log, stderr=log
        )
    try:
        _wait_for(address, running, folder / "log.txt")
        yield Broker(address)
    finally:
        running.terminate()
        running.wait()


def _settings(data: Path, address: str, controller: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "log.flush.interval.messages": "1",
        "message.max.bytes": str(_MESSAGE_BYTES_MAX),
        "replica.fetch.max.bytes": str(_MESSAGE_BYTES_MAX),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _wait_for(address: str, running: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers, and says that it syncs every message set."""
    admin = AdminClient(_client(address))
    deadline = time.monotonic() + START_S
    while running.poll() is None and time.monotonic() < deadline:
        try:
            if admin.list_topics(timeout=1.0).brokers:
                (settings,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
                assert settings.result()["log.flush.interval.messages"].value == "1"
                return
        except KafkaException:
            time.sleep(0.2)
    raise SystemExit(f"Kafka did not start:\n{log.read_text()[-2000:]}")


def _client(address: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": address, "log_level": _CRITICAL}
