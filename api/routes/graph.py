"""The graph of a topology."""

from fastapi import APIRouter

from acker.inspect.as_json import place_forms
from acker.inspect.topology.graph import graph
from api.models.graph import Graph
from api.problems import declared
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(prefix="/topologies/{topology}", tags=["topologies"])


@router.get("/graph", responses=declared(404))
async def get_graph(service: ServiceDep, ledger: LedgerDep) -> Graph:
    """Spouts, streams and steps of a topology, what passes between them, and what most needs a look.

    It is drawn from what steps have said of themselves, and from exact counts: the difference of two answers
    over that of their `at` is a rate.
    """
    found = await service.health(ledger)
    return Graph.model_validate(place_forms.graph(await ledger.run(graph(ledger.core, found))))
