import pytest
from pydantic import Field, model_validator

from geomix import config
from geomix.config import Config, find_config, hint, list_configs, load_config, nearest, parse_config
from geomix.errors import ConfigError, MissingFileError


class Layer(Config):
    width: int = Field(ge=1)
    rate: float = 0.1


class Whole(Config):
    name: str = "x"
    layers: tuple[Layer, ...] = ()
    top: Layer | None = None
    mixer: dict[str, object] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self):
        if self.name == "two" and len(self.layers) != 2:
            raise ValueError("name 'two' wants two layers")
        return self


@pytest.fixture
def write(tmp_path):
    def write(text):
        file = tmp_path / "mine.yaml"
        file.write_text(text)
        return file

    return write


def test_a_file_fills_the_nested_values(write):
    file = write("name: a\ntop: {width: 3, rate: 1e-3}\nlayers:\n  - width: 1\n  - width: 2\n")
    whole = load_config(file, "sits", Whole)
    assert whole == Whole(name="a", top=Layer(width=3, rate=0.001), layers=(Layer(width=1), Layer(width=2)))
    assert load_config(write(""), "sits", Whole) == Whole()


def test_numbers_in_free_parts_are_numbers(write):
    assert load_config(write("mixer: {a: 1e-3, b: 2E4, c: 1e}"), "sits", Whole).mixer == {
        "a": 0.001,
        "b": 2e4,
        "c": "1e",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\ntopp: {width: 1}", r"mine\.yaml:2: unknown key 'topp'; did you mean 'top'\?"),
        ("top:\n  width: 1\n  rte: 2", r"mine\.yaml:3: unknown key 'top\.rte'; did you mean 'rate'\?"),
        (
            "layers:\n- width: 1\n- {width: 1,\n   zzz: 1}",
            r":4: unknown key 'layers\.1\.zzz'; choose from rate, width",
        ),
        ("top: {rate: 1}", r"mine\.yaml:1: key 'top\.width' is missing"),
        (
            "top:\n  rate: x\n  width: 0",
            r":3: key 'top\.width': input should be greater than.*got 0 \(and 1 more\)",
        ),
        (
            "name: a\n\ntop:\n  width: 0",
            r":4: key 'top\.width': input should be greater than or equal to 1, got 0",
        ),
        ("name: a\nname: b", r"mine\.yaml:2: key 'name' is given twice"),
        ("name: two", r"mine\.yaml:1: name 'two' wants two layers"),
        ("name: [", r"mine\.yaml:1: "),
        ("- a", r"mine\.yaml: should hold keys and values, got a list"),
    ],
)
def test_a_mistake_is_named_with_its_line(write, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(write(text), "sits", Whole)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_is_told_before_what_is_missing(write):
    with pytest.raises(ConfigError, match="unknown key 'top.widht'; did you mean 'width'"):
        load_config(write("top: {widht: 1}"), "sits", Whole)


def test_text_that_is_no_text_is_told(write):
    file = write("")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not a text file"):
        load_config(file, "sits", Whole)


def test_values_in_memory_are_checked_as_files_are():
    assert parse_config(Layer, {"width": 2}, "card") == Layer(width=2)
    with pytest.raises(ConfigError, match="^card: unknown key 'widht'; did you mean 'width'"):
        parse_config(Layer, {"widht": 2}, "card")


def test_configurations_are_found_by_name_or_by_path(monkeypatch, tmp_path, write):
    (tmp_path / "sits").mkdir()
    (tmp_path / "sits" / "tiny.yaml").write_text("name: tiny")
    monkeypatch.setattr(config, "config_folder", lambda: tmp_path)
    assert list_configs("sits") == ["tiny"]
    assert list_configs("htr") == []
    assert load_config("tiny", "sits", Whole).name == "tiny"
    assert find_config(str(write("")), "sits") == tmp_path / "mine.yaml"
    with pytest.raises(MissingFileError, match=r"sits has no configuration 'tini'; did you mean 'tiny'\?"):
        find_config("tini", "sits")
    with pytest.raises(MissingFileError, match=r"other\.yaml: there is no such configuration file"):
        find_config(tmp_path / "other.yaml", "sits")


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Layer(width=1).width = 2


def test_the_nearest_word():
    assert nearest("lerning_rate", ["learning_rate", "epochs"]) == "learning_rate"
    assert nearest("zzz", ["learning_rate"]) is None
    assert hint("zzz", ["b", "a"]) == "; choose from a, b"
    assert hint("zzz", []) == ""
