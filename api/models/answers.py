"""Answers that show dataclasses of acker: the fields of each stand there, with their descriptions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from acker.inspect import slow_scripts
from acker.inspect.functions import call_progress, figures, function_state
from acker.inspect.lines import overview, unread_streams
from acker.inspect.locate import completion, drops, place, stuck, why
from acker.inspect.operate import activity, manual
from acker.inspect.topology import graph, health, state, totals, triage, troubles, unreadable_topology
from acker.inspect.trees import (
    failure,
    failure_groups,
    failures,
    find_everywhere,
    find_record,
    outcome_pages,
    pages,
    tree_state,
)
from acker.ledger.outcomes import latency_histogram
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.trees import trees, wait
from acker.streams.dead_letters import pages as dead_letter_pages
from acker.streams.log import holders, stream_totals
from acker.streams.sources import attempts, dead_letter_store
from api.fields import answer, several
from api.models.dead_letters import DeadLetterId
from api.models.drpc import RequestId
from api.models.spouts import Confirmation
from api.models.topologies import Configuration, Counters, Thresholds

_FAILED: Any = Literal["failed", "expired"]
_ENDED: Any = Literal["acked", "failed", "expired"]

Latency = answer(latency_histogram.Latency)
answer(wait.Wait)
Tree = answer(trees.Tree)
Trees = answer(pages.TreesPage, "Trees")
TreeOutcome = answer(failure.TreeOutcome)
TreeState = answer(tree_state.TreeState)
FailResult = answer(manual.FailedByHand, "FailResult")
Outcome = answer(failure.Failure, "Outcome")
Outcomes = answer(failures.FailuresPage, "Outcomes")
answer(outcome_pages.EndedTree)
SpoutOutcomes = answer(
    outcome_pages.EntryOutcomes, "SpoutOutcomes", status=_ENDED, confirmation=Confirmation | None
)
SpoutOutcomesPage = answer(outcome_pages.OutcomesPage, "SpoutOutcomesPage")

Activity = answer(activity.Activity)
Activities = answer(activity.ActivityPage, "Activities")

answer(attempts.Attempt, status=_FAILED)
answer(dead_letter_store.Head, "DeadLetterHead", id=DeadLetterId, status=_FAILED)
DeadLetter = answer(
    dead_letter_store.DeadLetter,
    id=DeadLetterId,
    status=_FAILED,
    row=dict[str, Any] | None,
    row_left_out=Literal["", "large", "scope"],
)
DeadLetters = answer(dead_letter_pages.LettersPage, "DeadLetters")
Group = answer(dead_letter_pages.Group, status=_FAILED | None)
Groups = answer(dead_letter_pages.GroupPage, "Groups")
answer(failure_groups.FailureGroup, status=_FAILED | None)
FailureGroups = answer(failure_groups.FailureGroups)
Records = answer(find_record.Found, "Records")

Step = answer(step_registry.Step)
StepTotals = answer(step_totals.StepTotals)
answer(stream_totals.SubscriptionTotals, "SubscriptionState")
StreamState = answer(stream_totals.StreamTotals, "StreamState")
answer(totals.BucketTotals, "BucketState")
answer(totals.ShardTotals, "ShardState", counters=Counters)
answer(troubles.Trouble)
answer(triage.Levels)
answer(troubles.Muted)
PausedSpout = answer(troubles.PausedSpout)
Mute = answer(troubles.Mute)
Health = answer(health.Health)
Stored = answer(state.Stored, configuration=Configuration)
answer(state.Summary, "TopologySummary", counters=Counters)
answer(slow_scripts.SlowScript)
TopologyState = answer(
    state.State,
    "TopologyState",
    thresholds=Thresholds,
)
answer(
    unreadable_topology.Damaged,
    "UnreadableTopology",
    reason=Annotated[str, Field(max_length=unreadable_topology.REASON)],
)
Topologies = answer(state.Listing, "Topologies")
answer(find_everywhere.Hit, "EverywhereHit")
answer(find_everywhere.Unsearched, reason=Annotated[str, Field(max_length=unreadable_topology.REASON)])
EverywhereFound = answer(find_everywhere.FoundEverywhere, "EverywhereFound")

answer(graph.Node, "GraphNode")
answer(graph.Edge, "GraphEdge")
answer(graph.Worst, "GraphWorst")
Graph = answer(graph.Graph)

answer(holders.Holder)
Place = answer(place.Place)
Why = answer(why.Why)
StuckPage = answer(stuck.StuckPage)
answer(completion.OpenPlace)
Completion = answer(completion.Completion)
Drops = several("Drops", "Drops of streams.", "drops", answer(drops.Drop), "The latest first.")

answer(overview.GatherSeen, "GatherState")
answer(unread_streams.Unread, "UnreadStream")
Lines = several("Lines", "All lines of a topology, by name.", "lines", answer(overview.LineSeen, "LineState"))
answer(overview.Section, "SectionState")
LineRequest = answer(overview.RequestSeen, "LineRequest")

answer(figures.Cause, "CallCause", status=Literal["failed", "timed out"])
answer(figures.Counted, "CallCounts")
answer(function_state.StepState, "FunctionStep")
Function = answer(function_state.FunctionState, "Function")
Functions = several("Functions", "All functions of the store, by name.", "functions", Function)
CallHead = answer(call_progress.CallHead, request=RequestId)
Calls = several("Calls", "Some calls of a function.", "calls", CallHead)
answer(call_progress.StepSeen, "CallStep")
CallProgress = answer(call_progress.Progress, "CallProgress")
