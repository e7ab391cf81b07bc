"""What tests share with tests/demo/test_check.py."""

from acker.demo.text import Line

TEXT = [Line("f:1", "to be"), Line("f:2", "or not"), Line("f:3", "++"), Line("f:4", "to be")]
