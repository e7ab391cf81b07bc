"""The fault suite: `python -m harness.chaos --seed S --minutes M`. harness/README.md says what it does.

`plan.py` what happens when; `source.py` and `application.py` the processes that are harmed, which
`pipeline.py` starts; `faults.py` how; `verdict.py` whether anything was lost; `report.py` what is said of it.
"""
