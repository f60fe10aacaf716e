import pytest
import torch

from geomix.device import choose_device, why_no_cuda
from geomix.errors import InputError


def test_auto_takes_cuda_where_it_works(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["gpu", "cpu:1", "cuda:x", ""])
def test_an_unknown_device_lists_the_choices(name):
    with pytest.raises(InputError, match="choose auto, cpu, cuda or cuda:N"):
        choose_device(name)


def test_a_device_that_is_not_there_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(InputError, match=r"'cuda:1' is not there; torch sees 1 CUDA device"):
        choose_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert why_no_cuda() == "torch sees no CUDA device"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "a build without CUDA" in why_no_cuda()
