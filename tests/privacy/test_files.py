"""Files of reports carry their channel; labels keep their type; a false description is an error."""

from __future__ import annotations

import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairpremium.privacy import (
    Channel,
    RandomizedResponse,
    attach_descriptor,
    read_descriptor,
    read_reports,
    write_reports,
)

SEX = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture(params=["csv", "xlsx", "parquet"])
def path(request, tmp_path):
    return tmp_path / f"reports.{request.param}"


@pytest.mark.parametrize(
    "groups",
    [["F", "M"], [1, 2], [False, True], [0.5, 1.0], ["NA", "null", "nan"], ["1", "2"], ["a,b", 'say "x"'], [1, "one"]],
    ids=repr,
)
def test_round_trip(path, groups):
    channel = RandomizedResponse(groups, keep=0.75)
    values = [groups[i % len(groups)] for i in range(60)]
    table = pd.DataFrame({"policy": range(60), "report": channel.privatize(values)})
    if groups == [1, "one"] and path.suffix == ".parquet":
        with pytest.raises(ValueError, match="Write CSV instead"):
            write_reports(path, table, channel)
        return
    write_reports(path, table, channel)
    again, its_channel = read_reports(path)
    assert its_channel == channel
    assert again["report"].tolist() == table["report"].tolist()
    assert list(map(type, again["report"].tolist())) == list(map(type, table["report"].tolist()))
    assert again["policy"].tolist() == list(range(60))


def test_missing_reports_stay_missing(path):
    for channel, reports in ((SEX, ["F", None, "M"]), (RandomizedResponse([0, 1], keep=0.8), [0, None, 1])):
        write_reports(path, pd.DataFrame({"report": reports}), channel)
        again, _ = read_reports(path)
        assert channel.encode(again["report"]).tolist() == [0, -1, 1]


def test_products(path):
    both = Channel.product(SEX, RandomizedResponse([1, 2], keep=0.9))
    table = pd.DataFrame({"policy": [7, 8, 9], "s": ["F", "M", "F"], "c": [2, 1, 1]})
    write_reports(path, table, both, column=["s", "c"])
    again, its_channel = read_reports(path)
    assert its_channel == both
    pd.testing.assert_frame_equal(again, table)


def test_any_frame(path):
    columns = {"policy": [1, 2], "report": ["F", "M"]}
    for frame in (pl.DataFrame(columns), pa.table(columns)):
        write_reports(path, frame, SEX)
        again, channel = read_reports(str(path))
        assert channel == SEX
        assert again["report"].tolist() == ["F", "M"]


def test_files_without_a_description(path):
    table = pd.DataFrame({"report": ["F", "M"]})
    {".csv": table.to_csv, ".xlsx": table.to_excel, ".parquet": table.to_parquet}[path.suffix](path, index=False)
    again, channel = read_reports(path)
    assert channel is None
    assert again["report"].tolist() == ["F", "M"]


def test_what_is_refused_when_writing(path):
    with pytest.raises(ValueError, match="not among the declared") as caught:
        write_reports(path, pd.DataFrame({"report": ["F", "secret"]}), SEX)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="among them"):
        write_reports(path, pd.DataFrame({"S": ["F"]}), SEX)
    assert not path.exists()
    with pytest.raises(ValueError, match=r"\.csv, \.xlsx or \.parquet"):
        write_reports(path.with_suffix(".ods"), pd.DataFrame({"report": ["F"]}), SEX)


@pytest.mark.parametrize("groups", [["", "x"], [1, "1"], [True, "True"]], ids=repr)
def test_labels_that_csv_cannot_tell_apart(tmp_path, groups):
    channel = RandomizedResponse(groups, keep=0.8)
    with pytest.raises(ValueError, match="Write Parquet instead"):
        write_reports(tmp_path / "reports.csv", pd.DataFrame({"report": [groups[0]]}), channel)


def write(path, text):
    path.with_name(path.name + ".channel.json").write_text(text)


def envelope(**changes):
    return json.dumps(
        {"format": "fairpremium reports 1", "columns": ["report"], "channel": SEX.descriptor(), **changes}
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        "[" * 100_000,
        '{"format": "x"}',
        envelope(extra=1),
        envelope(format="fairpremium reports 2"),
        envelope(columns=[]),
        envelope(columns=["other"]),
        envelope(columns=["report", "report"]),
        envelope(channel={}),
        envelope(channel={**SEX.descriptor(), "a": 5}),
        envelope(channel=RandomizedResponse([1, 2], keep=0.8).descriptor()),
    ],
    ids=range(15),
)
def test_descriptions_that_do_not_parse(path, text):
    table = pd.DataFrame({"report": ["F", "M"]})
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
        write(path, text)
    else:
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(arrow.replace_schema_metadata({b"fairpremium.channel": text.encode()}), path)
    with pytest.raises(ValueError):
        read_reports(path)


def test_edited_reports_are_noticed(path):
    write_reports(path, pd.DataFrame({"report": ["F", "M"]}), SEX)
    if path.suffix == ".csv":
        path.write_text("report\nF\nsecret\n")
    elif path.suffix == ".xlsx":
        pd.DataFrame({"report": ["F", "secret"]}).to_excel(path, index=False)
    else:
        edited = pa.table({"report": ["F", "secret"]}).replace_schema_metadata(pq.read_schema(path).metadata)
        pq.write_table(edited, path)
    with pytest.raises(ValueError) as caught:
        read_reports(path)
    assert "secret" not in str(caught.value)


def test_an_old_description_does_not_outlive_its_data(tmp_path, monkeypatch):
    path = tmp_path / "reports.csv"
    write_reports(path, pd.DataFrame({"report": ["F", "M"]}), SEX)

    def broken(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", broken)
    with pytest.raises(OSError, match="disk full"):
        write_reports(path, pd.DataFrame({"report": ["F", "M"]}), RandomizedResponse(["F", "M"], keep=0.9))
    assert not (tmp_path / "reports.csv.channel.json").exists()


def test_arrow_metadata():
    table = pa.table({"report": ["F", "M"]}).replace_schema_metadata({b"owner": b"me"})
    assert read_descriptor(table) is None
    described = attach_descriptor(table, SEX)
    assert read_descriptor(described) == SEX.descriptor()
    assert read_descriptor(described.schema) == SEX.descriptor()
    assert described.schema.metadata[b"owner"] == b"me"
    assert read_descriptor(pa.schema([])) is None
