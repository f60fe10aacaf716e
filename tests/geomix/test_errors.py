import pytest

from geomix import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.GeomixError]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_caught_as_ours_and_as_its_built_in_kind(kind):
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    assert builtin is not Exception
    assert issubclass(kind, errors.GeomixError)
    with pytest.raises(builtin, match=r"^scan\.las: is empty$"):
        raise kind("scan.las: is empty")
