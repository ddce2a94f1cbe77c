"""Makes the files beside it with the real libraries, and what those libraries themselves read back, as *.expected.json.

    python -m venv venv && venv/bin/pip install torch tensorboard==2.21.0 wandb==0.31.0 trackio==0.43.0 mlflow==3.17.2 orjson
    venv/bin/pip install --no-deps verl==0.9.1     # for its FileLogger alone
    venv/bin/python make.py [tensorboard] [wandb] [verl] [trackio] [mlflow]

What is written differs in times and ids from one run to the next; what is expected is written with it.
"""

import json
import math
import os
import shutil
import struct
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def loss(step):
    return 2.0 / step + 0.125 * math.sin(step)


def number(value):
    """JSON has no NaN: as Lathe writes them."""
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def save(name, value):
    (HERE / name).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def fresh(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def tensorboard():
    import numpy
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util
    from torch.utils.tensorboard import SummaryWriter

    def read(path):
        events = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        series = {}
        for tag in events.Tags()["scalars"]:
            series[tag] = [[p.step, p.wall_time, number(p.value)] for p in events.Scalars(tag)]
        for tag in events.Tags()["tensors"]:
            if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
                series[tag] = [
                    [p.step, p.wall_time, number(tensor_util.make_ndarray(p.tensor_proto).item())]
                    for p in events.Tensors(tag)
                ]
        return series

    # TF1 values by torch: two sessions, the second one takes step 6 and later again.
    path = fresh("tensorboard-torch")
    writer = SummaryWriter(str(path), filename_suffix=".first")
    for step in range(1, 9):
        writer.add_scalar("actor/pg_loss", loss(step), step, walltime=1000.0 + step)
        writer.add_scalar("critic/score/mean", step / 8, step, walltime=1000.0 + step)
    writer.add_scalar("odd", float("nan"), 3, walltime=1009.0)
    writer.add_scalar("odd", float("inf"), 4, walltime=1009.5)
    writer.add_text("note", "the first session", 1, walltime=1009.6)
    writer.add_histogram("weights", numpy.array([0.0, 1.0, 2.0]), 1, walltime=1009.7)
    writer.close()
    time.sleep(1.1)  # The file's name has its second.
    writer = SummaryWriter(str(path), purge_step=6, filename_suffix=".second")
    for step in range(6, 11):
        writer.add_scalar("actor/pg_loss", -loss(step), step, walltime=2000.0 + step)
        writer.add_scalar("critic/score/mean", step / 10, step, walltime=2000.0 + step)
    writer.close()
    save("tensorboard-torch.expected.json", read(path))

    # TF2 values: tensors whose plugin is named once.
    path = fresh("tensorboard-tf2")
    writer = EventFileWriter(str(path))
    seen = set()
    for step in range(0, 12):
        for tag, value in [("train/loss", loss(step + 1)), ("train/lr", 1e-6 * step)]:
            summary = scalar_pb(tag, value)
            if tag in seen:
                summary.value[0].ClearField("metadata")
            seen.add(tag)
            writer.add_event(Event(wall_time=3000.0 + step, step=step, summary=summary))
    writer.close()
    save("tensorboard-tf2.expected.json", read(path))

    path = fresh("tensorboard-hparams")
    writer = SummaryWriter(str(path))
    writer.add_hparams({"lr": 0.5, "name": "a b", "fast": True}, {"hparam/accuracy": 0.75}, run_name=".")
    writer.close()


def wandb_records(data):
    """The SDK has no reader in Python any more; records are decoded by its own protobuf classes."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        crc, length, kind = struct.unpack("<IHB", data[at : at + 7])
        chunk = data[at + 7 : at + 7 + length]
        assert crc == zlib.crc32(bytes([kind]) + chunk), at
        whole += chunk
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def wandb():
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ENTITY="", WANDB_API_KEY="0" * 40)
    import wandb
    from wandb.proto import wandb_internal_pb2

    path = fresh("wandb-run")
    settings = wandb.Settings(x_stats_sampling_interval=0.5, disable_git=True, x_save_requirements=False, host="host-1", disable_code=True, console="wrap")
    os.chdir("/tmp")
    run = wandb.init(
        project="demo", name="blue-sky", dir=str(path), config={"lr": 1e-6, "actor": {"clip": 0.2, "name": "a"}, "long": "x" * 40_000},
        settings=settings,
    )
    for step in range(1, 31):
        row = {"actor/pg_loss": loss(step), "nested": {"a": step, "b": step / 4}}
        if step == 3:
            row["odd"] = float("nan")
        if step == 4:
            row["odd"] = float("inf")
        if step == 5:
            row["word"] = "text is no number"
            row["flag"] = True
        run.log(row, step=step)
    print("a line of the console")
    run.config.update({"late": 7})
    run.alert(title="reward fell", text="from 0.9 to 0.1", level=wandb.AlertLevel.WARN)
    time.sleep(3.0)
    run.finish(exit_code=3)
    found = list(path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(found) == 1, found
    history, configs, kinds = [], {}, {}
    for data in wandb_records(found[0].read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "history":
            row = {"/".join(i.nested_key) if i.nested_key else i.key: json.loads(i.value_json) for i in record.history.item}
            history.append({k: number(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for k, v in row.items()})
        if kind in ("run", "config"):
            update = record.run.config.update if kind == "run" else record.config.update
            for item in update:
                configs[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    configs.pop("_wandb", None)
    # The run alone: logs, requirements and the machine's description are nothing that is read.
    target = HERE / "wandb-run.tmp"
    target.mkdir()
    directory = found[0].parent
    (target / directory.name).mkdir()
    shutil.copy(found[0], target / directory.name / found[0].name)
    shutil.rmtree(path)
    target.rename(path)
    save("wandb-run.expected.json", {"history": history, "config": configs, "kinds": kinds})


def verl():
    from verl.utils.logger import LocalLogger
    from verl.utils.tracking import FileLogger

    path = fresh("verl")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(path / "metrics.jsonl")
    logger = FileLogger("demo", "run")
    console = LocalLogger(print_to_console=True)
    out = open(path / "console.log", "w")
    stdout, sys.stdout = sys.stdout, out
    print("TaskRunner hostname: host-1, PID: 77")
    rows = []
    for step in range(0, 13):
        data = {"training/global_step": step, "val-core/openai/gsm8k/acc/mean@1": 0.25 + step / 100} if step % 4 == 0 else {}
        if step > 0:
            data |= {
                "actor/pg_loss": loss(step), "critic/score/mean": step / 12, "timing_s/step": 2.5, "perf/time_per_step": 2.5,
                "perf/total_num_tokens": 1000 + step, "training/global_step": step, "training/epoch": 0,
            }
        if step == 5:
            data["actor/grad_norm"] = float("nan")
        logger.log(data, step)
        console.log(data, step)
        rows.append([step, {k: number(v) for k, v in data.items()}])
        if step == 6:
            print("(TaskRunner pid=77) WARNING: something worth a line")
    logger.finish()
    sys.stdout = stdout
    out.close()
    save("verl.expected.json", rows)


def keep_tables(path, kept):
    """Tables that are not read are most of a database's pages."""
    import sqlite3

    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA foreign_keys = OFF")
    for kind, name in database.execute("SELECT type, name FROM sqlite_master").fetchall():
        if kind == "table" and name not in kept and not name.startswith("sqlite_"):
            database.execute(f'DROP TABLE "{name}"')
    for kind, name in database.execute("SELECT type, name FROM sqlite_master").fetchall():
        if kind == "index" and not name.startswith("sqlite_"):
            database.execute(f'DROP INDEX "{name}"')
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def trackio():
    os.environ["TRACKIO_DIR"] = str(fresh("trackio"))
    import sqlite3

    import trackio

    run = trackio.init(project="demo", name="calm-1", config={"lr": 0.5, "model": {"name": "m"}}, embed=False)
    for step in range(1, 21):
        row = {"train/loss": loss(step), "reward": step / 20}
        if step == 3:
            row["odd"] = float("nan")
        if step == 4:
            row["odd"] = float("-inf")
        trackio.log(row, step=step)
    trackio.alert(title="fell", text="reward fell", level=trackio.AlertLevel.WARN)
    trackio.log_system({"gpu/0/utilization": 55.0, "gpu/0/power": 100.0})
    trackio.finish()
    second = trackio.init(project="demo", name="calm-2", config={}, embed=False)
    trackio.log({"train/loss": 1.5})
    trackio.finish()
    path = HERE / "trackio"
    for extra in list(path.iterdir()):
        if extra.suffix != ".db" and not extra.name.startswith("demo.db"):
            shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
    database = sqlite3.connect(path / "demo.db")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rows = {}
    for run_name, step, metrics in database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"):
        rows.setdefault(run_name, []).append([step, json.loads(metrics)])
    save("trackio.expected.json", rows)
    database.close()
    keep_tables(path / "demo.db", {"metrics", "configs", "system_metrics", "alerts"})


def mlflow():
    import logging

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_TRACKING_USERNAME"] = "user"
    import mlflow

    for name, uri in [("mlflow-files", f"file://{HERE}/mlflow-files/mlruns"), ("mlflow-sqlite", f"sqlite:///{HERE}/mlflow-sqlite/mlflow.db")]:
        path = fresh(name)
        mlflow.set_tracking_uri(uri)
        client = mlflow.MlflowClient(uri)
        experiment = client.create_experiment("demo", artifact_location="artifacts")
        run = client.create_run(experiment, run_name="green-field", start_time=1_700_000_000_000)
        for step in range(1, 16):
            client.log_metric(run.info.run_id, "actor/pg_loss", loss(step), timestamp=1_700_000_000_000 + 500 * step, step=step)
            client.log_metric(run.info.run_id, "reward", step / 15, timestamp=1_700_000_000_000 + 500 * step, step=step)
        client.log_metric(run.info.run_id, "odd", float("nan"), timestamp=1_700_000_009_000, step=3)
        client.log_metric(run.info.run_id, "odd", float("inf"), timestamp=1_700_000_009_500, step=4)
        client.log_param(run.info.run_id, "lr", "1e-6")
        client.log_param(run.info.run_id, "model/name", "a: b")
        client.set_terminated(run.info.run_id, status="FINISHED", end_time=1_700_000_010_000)
        other = client.create_run(experiment, run_name="red-field", start_time=1_700_000_100_000)
        client.log_metric(other.info.run_id, "reward", 0.5, timestamp=1_700_000_101_000, step=1)
        client.set_terminated(other.info.run_id, status="FAILED", end_time=1_700_000_102_000)
        expected = {}
        for each in (run, other):
            info = client.get_run(each.info.run_id)
            expected[info.info.run_name] = {
                "status": info.info.status,
                "params": info.data.params,
                "metrics": {
                    key: [[m.step, m.timestamp, number(m.value)] for m in client.get_metric_history(each.info.run_id, key)]
                    for key in info.data.metrics
                },
            }
        save(f"{name}.expected.json", expected)
    keep_tables(
        HERE / "mlflow-sqlite/mlflow.db",
        {"alembic_version", "experiments", "runs", "metrics", "params", "tags"},
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ["tensorboard", "wandb", "verl", "trackio", "mlflow"]:
        globals()[name]()
