from htr import bench


def test_the_three_mixers_are_measured_on_lines_and_pages():
    rows = list(bench.rows(60, pages=(2,), width=64, min_seconds=0.01))
    speeds = {row.case: row for row in rows if row.metric == "speed"}
    assert list(speeds) == [
        f"{mixer}, {case}"
        for case in ("single line", "page of 2 lines")
        for mixer in ("attention", "pom", "hybrid")
    ]
    assert all(row.value > 0 and row.unit == "lines/s" for row in speeds.values())
    pom = speeds["pom, page of 2 lines"]
    assert pom.versus == "attention"
    assert pom.ratio == pom.value / speeds["attention, page of 2 lines"].value
    assert all(row.value >= 0 for row in rows if row.metric == "peak memory")
    assert len(rows) == 2 * len(speeds)


def test_a_case_over_the_cap_is_said_not_to_have_run():
    rows = list(bench.rows(1e-9, pages=(), width=64))
    assert [row.value for row in rows if row.metric == "speed"] == [None] * 3


def test_memory_is_that_of_a_process_that_reads_the_page():
    few, many = (bench._memory_of("pom", count, 400) for count in (1, 60))
    assert 1e8 < few < many < 3e9
