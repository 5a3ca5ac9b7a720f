"""Tables and the report of the doctor as HTML, for notebooks."""

from html.parser import HTMLParser

import pyarrow as pa
import usmq


class Cells(HTMLParser):
    """Collects the text of each cell, and checks that all tags are closed."""

    def __init__(self, html):
        super().__init__()
        self.open = []
        self.rows = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def test_a_table_shows_names_types_and_its_first_rows():
    table = usmq.from_arrow(
        pa.table({
            "n": [1, None, -3],
            "x": pa.array([0.5, 1e30, None], "f4"),
            "flag": [True, False, None],
            "<text>": ["a<b", None, "x" * 500],
            "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
            "list": [[1], [], None],
        })
    )  # fmt: skip
    html = table._repr_html_()
    cells = Cells(html).rows
    assert cells[0] == [
        "nint64", "xfloat", "flagbool", "<text>string",
        "kinddictionary<values=string, indices=int32, ordered=0>", "listlist<item: int64>",
    ]  # fmt: skip
    assert cells[1:] == [
        ["1", "0.5", "true", "a<b", "u", "…"],
        ["null", "1e+30", "false", "null", "v", "…"],
        ["-3", "null", "null", "x" * 60 + "…", "u", "null"],
    ]
    assert "3 rows</p>" in html


def test_only_the_first_rows_are_copied():
    table = usmq.Table({"x": usmq.arange(1 << 20), "y": usmq.zeros(1 << 20)})
    table.wait()
    with usmq.profile() as recorded:
        html = table[5:]._repr_html_()
    assert [row[0] for row in Cells(html).rows[1:]] == [str(number) for number in range(5, 15)]
    assert f"{(1 << 20) - 5} rows, of which the first 10 are shown" in html
    assert sum(event.bytes for event in recorded.events if event.kind == "copy") < 1000


def test_other_tables_are_shown():
    assert len(Cells(usmq.Table({"x": usmq.zeros(0)})._repr_html_()).rows) == 1
    theirs = pa.table({"x": list(range(9)), "s": [str(number) for number in range(9)]})
    batches = theirs.to_batches(max_chunksize=2)
    reader = pa.RecordBatchReader.from_batches(theirs.schema, batches)
    rows = Cells(usmq.from_arrow(reader)._repr_html_()).rows
    assert rows[1:] == [[str(number), str(number)] for number in range(9)]
    wrong = usmq.asarray([0, 900, -5, 2], "i4")
    words = usmq.Column(usmq.asarray(b"abc"), offsets=wrong, type="string")
    rows = Cells(usmq.Table({"w": words})._repr_html_()).rows
    assert [row[0] for row in rows[1:]] == ["abc…", "", "ab"]


def test_the_report_of_the_doctor_has_each_finding():
    report = usmq.doctor()
    html = report._repr_html_()
    Cells(html)
    assert html.count("<tr>") == len(report.to_dict()["findings"])
    assert report.verdict in html
