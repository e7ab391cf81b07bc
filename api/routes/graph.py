"""The graph of a topology."""

from fastapi import APIRouter

from acker.inspect.topology import graph
from api.models.answers import Graph
from api.problems import declared
from api.service.service import LedgerDep, ServiceDep

router = APIRouter(prefix="/topologies/{topology}", tags=["topologies"])


@router.get("/graph", response_model=Graph, responses=declared(404))
async def get_graph(service: ServiceDep, ledger: LedgerDep) -> graph.Graph:
    """Spouts, streams and steps of a topology, what passes between them, and what most needs a look.

    Steps have registered their names and streams; the counts are exact. The difference between the counts of
    two answers, divided by the difference between their `at`, is a rate.
    """
    return await ledger.run(graph.graph(ledger.core, await service.health(ledger)))
